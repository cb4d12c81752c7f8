"""Where a decoder keeps its embedding, blocks, attention, MLP, final norm and head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


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
    norm : nn.Module or None
        Final norm (None only where the config says there is none).
    projection : nn.Module or None
        Between norm and head, where the model has one (OPT-350m's ``project_out``).
    head : nn.Linear
        Unembedding, bias included.
    finish : callable
        Head output ``(..., vocabulary)`` float32 -> logits (soft-cap or scaling); identity when there is none.
        Works in place where it can.
    """

    family: str
    embedding: nn.Embedding
    blocks: nn.ModuleList
    attention: tuple[nn.Module | None, ...]
    mlp: tuple[nn.Module | None, ...]
    norm: nn.Module | None
    projection: nn.Module | None
    head: nn.Linear
    finish: Callable[[Tensor], Tensor]
