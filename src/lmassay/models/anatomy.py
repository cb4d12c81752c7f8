"""Where a decoder keeps its embedding, blocks, attention, MLP, final norm and head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lmassay.errors import LmassayError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Anatomy:
    """The named parts of one decoder.

    Attributes
    ----------
    family : str
        Row of the table that matched, or ``structural``.
    embedding : nn.Embedding
        Token embedding.
    blocks : nn.ModuleList
        Transformer blocks, in order; a block returns its residual stream as a tensor or first in a tuple.
    attention, mlp : tuple of nn.Module or None
        Per block, the module whose output is *added to the residual stream* (a post-norm where the family has one).
    out_projection : tuple of nn.Module or None
        Per block, the attention's output projection, whose input is the heads' outputs side by side.
    norm : nn.Module or None
        Final norm (None only where the config says there is none).
    projection : nn.Module or None
        Between norm and head, where the model has one (OPT-350m's ``project_out``).
    head : nn.Linear
        Unembedding, bias included.
    finish : callable
        Head output of any shape, float32 or wider -> logits, element by element (soft-cap, scaling, or nothing).
    """

    family: str
    embedding: nn.Embedding
    blocks: nn.ModuleList
    attention: tuple[nn.Module | None, ...]
    mlp: tuple[nn.Module | None, ...]
    out_projection: tuple[nn.Module | None, ...]
    norm: nn.Module | None
    projection: nn.Module | None
    head: nn.Linear
    finish: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the table: dotted paths from the model, and within a block.

    ``attention`` and ``mlp`` name the module whose output is added to the residual stream: where a family adds the
    residual inside the sublayer (BLOOM, MPT's MLP) that is its last projection, and where it norms the sublayer's
    output before adding it (Gemma 2 and 3, OLMo 2) that is the norm.
    """

    name: str
    model_types: tuple[str, ...]
    blocks: str
    norm: str
    attention: str
    mlp: str
    projection: str | None = None


FAMILIES: tuple[Family, ...] = (
    Family("GPT-2", ("gpt2", "gptj", "gpt_neo"), "transformer.h", "transformer.ln_f", "attn", "mlp"),
    Family("GPT-NeoX", ("gpt_neox",), "gpt_neox.layers", "gpt_neox.final_layer_norm", "attention", "mlp"),
    Family(
        "Llama",
        ("llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral", "cohere", "cohere2", "granite", "smollm3",
         "starcoder2", "stablelm"),
        "model.layers", "model.norm", "self_attn", "mlp",
    ),
    Family(
        "Gemma 2, Gemma 3, OLMo 2",
        ("gemma2", "gemma3_text", "olmo2"),
        "model.layers", "model.norm", "post_attention_layernorm", "post_feedforward_layernorm",
    ),
    Family(
        "OPT", ("opt",), "model.decoder.layers", "model.decoder.final_layer_norm", "self_attn", "fc2",
        projection="model.decoder.project_out",
    ),
    Family("Phi", ("phi",), "model.layers", "model.final_layernorm", "self_attn", "mlp"),
    Family("Falcon", ("falcon",), "transformer.h", "transformer.ln_f", "self_attention", "mlp"),
    Family(
        "BLOOM", ("bloom",), "transformer.h", "transformer.ln_f", "self_attention.dense", "mlp.dense_4h_to_h"
    ),
    Family("MPT", ("mpt",), "transformer.blocks", "transformer.norm_f", "attn", "ffn.down_proj"),
)  # fmt: skip


#: What families call the output projection inside their attention.
OUT_PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "wo")


def take_apart(hf: PreTrainedModel) -> Anatomy:
    """Find the parts of a decoder by the table, else by structure.

    Raises
    ------
    LmassayError
        ``model-not-supported``, naming what was looked for and not found.
    """
    text_config = hf.config.get_text_config()
    if getattr(hf.config, "is_encoder_decoder", False):
        raise _unsupported(hf, "it is an encoder-decoder", "choose a decoder-only model")
    row = next((f for f in FAMILIES if text_config.model_type in f.model_types and _at(hf, f.blocks)), None)
    norm: nn.Module | None
    projection: nn.Module | None = None
    if row is None:
        blocks, norm = _structure(hf, getattr(text_config, "num_hidden_layers", None))
        attention, mlp = _child(blocks[0], ("attn", "attention")), _child(blocks[0], ("mlp", "ffn", "feed_forward"))
        family = "structural"
    else:
        found, norm = _at(hf, row.blocks), _at(hf, row.norm)
        if not isinstance(found, nn.ModuleList):
            raise _unsupported(hf, f"{row.blocks} is no list of blocks", "report its family")
        blocks, attention, mlp, family = found, row.attention, row.mlp, row.name
        projection = _at(hf, row.projection) if row.projection else None
        if norm is None and not (text_config.model_type == "opt" and _has_no_final_norm(text_config)):
            raise _unsupported(hf, f"no final norm at {row.norm}", "report its family")
    head = hf.get_output_embeddings()
    embedding = hf.get_input_embeddings()
    if not isinstance(head, nn.Linear) or not head.weight.is_floating_point():
        raise _unsupported(hf, f"its head is a {type(head).__name__}, not a plain linear layer", "dequantise the head")
    if not isinstance(embedding, nn.Embedding):
        raise _unsupported(hf, f"its embedding is a {type(embedding).__name__}", "report its family")
    return Anatomy(
        family=family,
        embedding=embedding,
        blocks=blocks,
        attention=tuple(_at(block, attention) if attention else None for block in blocks),
        mlp=tuple(_at(block, mlp) if mlp else None for block in blocks),
        out_projection=tuple(_out_projection(block) for block in blocks),
        norm=norm,
        projection=projection,
        head=head,
        finish=finish_of(text_config),
    )


def _out_projection(block: nn.Module) -> nn.Module | None:
    """The one module inside the attention that is called as output projections are."""
    found = [
        module
        for name, module in block.named_modules()
        if name.rpartition(".")[2] in OUT_PROJECTIONS and "att" in name.rpartition(".")[0]
    ]
    return found[0] if len(found) == 1 else None


def finish_of(config: Any) -> Callable[[Tensor], Tensor]:
    """What the architecture does to the head's output, in the precision it is given (float32 or wider)."""
    cap = getattr(config, "final_logit_softcapping", None)
    if cap:
        return lambda logits: cap * torch.tanh(logits / cap)
    if config.model_type in ("cohere", "cohere2"):
        return lambda logits: logits * config.logit_scale
    if config.model_type.startswith("granite"):
        return lambda logits: logits / config.logits_scaling
    return lambda logits: logits


def _has_no_final_norm(config: Any) -> bool:
    return not config.do_layer_norm_before or bool(config._remove_final_layer_norm)


def _unsupported(hf: PreTrainedModel, what: str, do: str) -> LmassayError:
    return LmassayError("model-not-supported", f"{type(hf).__name__}: {what}", do)


def _at(module: nn.Module, path: str) -> nn.Module | None:
    for name in path.split("."):
        child = getattr(module, name, None)
        if not isinstance(child, nn.Module):
            return None
        module = child
    return module


def _structure(hf: PreTrainedModel, n_blocks: int | None) -> tuple[nn.ModuleList, nn.Module]:
    """The one list of equal blocks, and the one norm beside it."""
    lists = [
        (name, module)
        for name, module in hf.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module) == (n_blocks or len(module))
        and len({type(child) for child in module}) == 1
        and len(list(module[0].children())) > 1
    ]
    if len(lists) != 1:
        looked = f"a list of {n_blocks or 'several'} equal blocks; found {[name for name, _ in lists] or 'none'}"
        raise _unsupported(hf, f"looked for {looked}", "add a row to the family table")
    name, blocks = lists[0]
    parent = hf.get_submodule(name.rpartition(".")[0])
    beside = list(parent.named_children())
    after = beside[[child for _, child in beside].index(blocks) + 1 :]
    norms = [(n, m) for n, m in after if "norm" in type(m).__name__.lower()]
    if len(norms) != 1:
        seen = ", ".join(f"{n} ({type(m).__name__})" for n, m in after) or "nothing"
        raise _unsupported(hf, f"looked for one norm after {name}; found {seen}", "add a row to the family table")
    return blocks, norms[0][1]


def _child(block: nn.Module, words: tuple[str, ...]) -> str | None:
    named = [name for name, _ in block.named_children() if any(w in name.lower() for w in words)]
    plain = [name for name in named if "norm" not in name.lower() and "dropout" not in name.lower()]
    return plain[0] if len(plain) == 1 else None
