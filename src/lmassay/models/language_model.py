"""A decoder as the rest of the package sees it: its parts, its depths, its tokenizer and its fingerprint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from lmassay.models.anatomy import Anatomy
from lmassay.models.tokens import TokenizerView

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lmassay.models.tuned_lens import TunedLens


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """sha256 hex digests of what decides a model's numbers."""

    weights: str
    tokenizer: str
    config: str


@dataclass(frozen=True)
class LanguageModel:
    """An opened and self-checked decoder.

    Attributes
    ----------
    name : str
        What the user asked for.
    hf : PreTrainedModel
        The body, in evaluation mode, without gradients.
    anatomy : Anatomy
        Where embedding, blocks, final norm and head are.
    tokens : TokenizerView
        Encoding with exactly the special tokens the tokenizer adds by default.
    context_length : int or None
        Longest sequence in tokens, None when the architecture sets no limit.
    notes : tuple of str
        What a report must say beside every figure (dequantised weights, a licence, a refused packing).
    packing : bool
        Whether several branches may share one row under a block mask (found by the self-check).
    window : int or None
        Tokens a sliding-window layer sees, where the model has such layers: longer sequences are not packed.
    tuple_blocks : bool
        Whether a block returns a tuple (found by the self-check).
    lens : TunedLens or None
        How the depths before the last are read; None is the logit lens. ``final`` is the model's output under any.
    """

    name: str
    hf: PreTrainedModel
    anatomy: Anatomy
    tokens: TokenizerView
    fingerprint: Fingerprint
    revision: str | None = None
    context_length: int | None = None
    notes: tuple[str, ...] = ()
    packing: bool = False
    window: int | None = None
    numerics: dict[str, float] = field(default_factory=dict)
    tuple_blocks: bool = False
    lens: TunedLens | None = None

    @property
    def n_blocks(self) -> int:
        """Number of transformer blocks."""
        return len(self.anatomy.blocks)

    @property
    def depths(self) -> tuple[str, ...]:
        """``embed``, ``block.0`` … ``block.{n-1}``, ``final``: ``n_blocks + 2`` of them."""
        return ("embed", *(f"block.{i}" for i in range(self.n_blocks)), "final")

    @property
    def device(self) -> torch.device:
        """Where the embedding lives and inputs must be sent."""
        return self.anatomy.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The body's floating-point type; the head always runs in float32 or wider."""
        return self.anatomy.embedding.weight.dtype

    @property
    def n_parameters(self) -> int:
        """Parameters, tied ones counted once."""
        return sum(p.numel() for p in self.hf.parameters())

    def convention(self) -> dict[str, Any]:
        """The numeric convention, part of every cache key and of every comparison."""
        return {
            "dtype": str(self.dtype).removeprefix("torch."),
            "attention": self.hf.config._attn_implementation,
            "lens": "logit" if self.lens is None else {"tuned": self.lens.sha256},
        }
