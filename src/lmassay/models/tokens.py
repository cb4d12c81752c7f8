"""Encoding text with exactly the special tokens the tokenizer itself adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TokenizerView:
    """The tokenizer with its special-token convention made explicit.

    Attributes
    ----------
    hf : PreTrainedTokenizerBase
    prefix : tuple of int
        Ids the tokenizer puts before a text by default (a BOS, or nothing).
    """

    hf: PreTrainedTokenizerBase
    prefix: tuple[int, ...]

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` without any special token."""
        ids: list[int] = self.hf.encode(text, add_special_tokens=False)
        return ids
