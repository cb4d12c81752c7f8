"""How much attention stretches of text receive from later ones, over all blocks and heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from lmassay.errors import LmassayError
from lmassay.models.rows import chain, right_padded
from lmassay.models.sampling import Prompt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.models.generate import InProcess
    from lmassay.models.language_model import LanguageModel

Span = tuple[int, int]


class Attended(Protocol):
    """Attention that the sentences of a prefix receive from its last sentence, and from the next one."""

    def __call__(
        self, asked: str, own: Sequence[str], following: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(n_sentences,) from the last sentence of `own`, and (n_sentences,) from `following`."""
        ...


class SentenceAttention:
    """The `Attended` of a subject in this process.

    Parameters
    ----------
    engine : InProcess
    """

    def __init__(self, engine: InProcess) -> None:
        self.engine = engine

    def __call__(
        self, asked: str, own: Sequence[str], following: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `Attended`; sentences are joined by spaces, as prefixes of whole sentences are."""
        thinking, renderer = self.engine.thinking, self.engine.renderer
        cot = " ".join([*own, following])
        text = renderer.text(Prompt.of(thinking.asking(asked), thinking.begun(cot)))
        at, spans = text.rindex(cot), []
        for sentence in (*own, following):
            spans.append((at, at + len(sentence)))
            at += len(sentence) + 1
        encoded = renderer.tokens.hf(text, add_special_tokens=False, return_offsets_mapping=True)
        lead = [] if renderer.chat else list(renderer.tokens.prefix)
        tokens = _token_spans(spans, encoded["offset_mapping"], len(lead))
        found = received(self.engine.model, [*lead, *encoded["input_ids"]], tokens[-2:], tokens[:-1])
        return found[0], found[1]


def _token_spans(spans: Sequence[Span], offsets: Sequence[Span], lead: int) -> list[Span]:
    """Character spans as token spans: a token belongs to the sentence that holds its last character."""
    ends = np.array([stop - 1 for _, stop in offsets])
    return [
        (lead + int(np.searchsorted(ends, start)), lead + int(np.searchsorted(ends, stop))) for start, stop in spans
    ]


@torch.inference_mode()
def received(
    model: LanguageModel, ids: Sequence[int], queries: Sequence[Span], keys: Sequence[Span]
) -> NDArray[np.float64]:
    """(n_queries, n_keys) attention mass from the tokens of a query span to those of a key span.

    Summed over the key's tokens; mean over the query's tokens, all heads and all blocks. One forward pass with eager
    attention, a block's weights reduced before the next block runs.

    Raises
    ------
    LmassayError
        ``model-not-supported`` when the attention modules do not return their weights.
    """
    found = np.zeros((len(queries), len(keys)))
    seen: set[int] = set()

    def seer(block: int) -> Callable[[torch.nn.Module, Any, Any], None]:
        def see(_: torch.nn.Module, __: Any, output: Any) -> None:
            # Which module returns the weights, families name differently; a block's first to do so is its attention.
            weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
            if not isinstance(weights, torch.Tensor) or weights.ndim != 4 or block in seen:
                return
            seen.add(block)
            mean = weights[0].double().mean(0).cpu().numpy()
            for q, (first, last) in enumerate(queries):
                rows = mean[first:last].mean(0)
                found[q] += [rows[start:stop].sum() for start, stop in keys]

        return see

    batch = right_padded(model, [chain(tuple(ids))])
    before = model.hf.config._attn_implementation
    model.hf.set_attn_implementation("eager")
    try:
        with ExitStack() as stack:
            for index, block in enumerate(model.anatomy.blocks):
                for module in block.modules():
                    stack.callback(module.register_forward_hook(seer(index)).remove)
            model.hf(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                position_ids=batch.position_ids,
                use_cache=False,
                logits_to_keep=1,
            )
    finally:
        model.hf.set_attn_implementation(before)
    if len(seen) != model.n_blocks:
        raise LmassayError(
            "model-not-supported",
            f"{model.name}: {len(seen)} of {model.n_blocks} attention modules returned their weights",
            "leave the selectors by attention out",
        )
    return found / len(seen)
