"""The architecture of the known-answer models: a GPT-2 of two narrow blocks, many of which are held as one stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lmassay.seeds import derive
from lmassay.xray.calibrate.words import vocabulary, word_tokenizer

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

    from lmassay.models.language_model import LanguageModel

WIDTH, HEADS, BLOCKS, CONTEXT = 32, 4, 2, 48
#: Name in a stack -> name in a GPT-2 block; a stack's tensors carry one leading dimension more, the model.
_IN_BLOCK = {
    "ln1": "ln_1",
    "qkv": "attn.c_attn",
    "out": "attn.c_proj",
    "ln2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
_OUTSIDE = {
    "tokens": "transformer.wte.weight",
    "positions": "transformer.wpe.weight",
    "norm.weight": "transformer.ln_f.weight",
    "norm.bias": "transformer.ln_f.bias",
    "head": "lm_head.weight",
}
#: Tensors (n_models, ...) by name.
Stack = dict[str, Tensor]


def initial(seeds: Sequence[int]) -> Stack:
    """Random models, each drawn from its own seed; every tensor is (n_models, ...), float32.

    Matrices are scaled so that a block moves the residual stream by about its own size: what an untrained model scores
    depends on the whole prompt.
    """
    drawn = [_one(torch.Generator().manual_seed(derive(seed, "model", "calibration weights"))) for seed in seeds]
    return {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}


def _one(rng: torch.Generator) -> Stack:
    def normal(*shape: int, std: float) -> Tensor:
        return torch.randn(*shape, generator=rng) * std

    size, embedded = len(vocabulary()), WIDTH**-0.5
    found = {
        "tokens": normal(size, WIDTH, std=embedded),
        "positions": normal(CONTEXT, WIDTH, std=0.3 * embedded),
        "head": normal(size, WIDTH, std=embedded),
        "norm.weight": torch.ones(WIDTH),
        "norm.bias": torch.zeros(WIDTH),
    }
    for block in range(BLOCKS):
        for name, n_in, n_out, scale in (
            ("qkv", WIDTH, 3 * WIDTH, 1.0),
            ("out", WIDTH, WIDTH, 0.5),
            ("up", WIDTH, 4 * WIDTH, 1.0),
            ("down", 4 * WIDTH, WIDTH, 0.5),
        ):
            found[f"{block}.{name}.weight"] = normal(n_in, n_out, std=scale * n_in**-0.5)
            found[f"{block}.{name}.bias"] = torch.zeros(n_out)
        for name in ("ln1", "ln2"):
            found[f"{block}.{name}.weight"] = torch.ones(WIDTH)
            found[f"{block}.{name}.bias"] = torch.zeros(WIDTH)
    return found


def n_blocks_of(stack: Mapping[str, Tensor]) -> int:
    """Blocks of a stack's models."""
    return 1 + max(int(name.split(".")[0]) for name in stack if name[0].isdigit())


def hugging_face(stack: Mapping[str, Tensor], index: int = 0) -> GPT2LMHeadModel:
    """The model at `index` of a stack as a Hugging Face GPT-2, with as many blocks as the stack has."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size, width = stack["tokens"].shape[1:]
    n_blocks = n_blocks_of(stack)
    config = GPT2Config(
        n_layer=n_blocks,
        n_head=HEADS,
        n_embd=width,
        vocab_size=size,
        n_positions=stack["positions"].shape[1],
        activation_function="relu",
        tie_word_embeddings=False,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    # Building draws weights that are then replaced; the caller's random state is none of its business.
    with torch.random.fork_rng(devices=[]):
        model = GPT2LMHeadModel(config)
    weights = {path: stack[name][index] for name, path in _OUTSIDE.items()}
    for block in range(n_blocks):
        for name, path in _IN_BLOCK.items():
            for kind in ("weight", "bias"):
                weights[f"transformer.h.{block}.{path}.{kind}"] = stack[f"{block}.{name}.{kind}"][index]
    model.load_state_dict(weights, strict=True)
    return model.eval()


def opened(stack: Mapping[str, Tensor], index: int = 0, *, name: str = "known-answer") -> LanguageModel:
    """The model at `index`, opened and self-checked like any other."""
    from lmassay.models.open import open_model

    model = hugging_face(stack, index)
    model.config.name_or_path = name
    return open_model(model, tokenizer=word_tokenizer())
