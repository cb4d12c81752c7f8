"""Encoding text with exactly the special tokens the tokenizer itself adds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lmassay.errors import LmassayError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBE = "a b"
#: A character of the private use area, for which no vocabulary has a piece of its own.
_STRANGE = "\ue0a7"


@dataclass(frozen=True)
class TokenizerView:
    """The tokenizer with its special-token convention made explicit.

    Attributes
    ----------
    hf : PreTrainedTokenizerBase
    prefix : tuple of int
        Ids the tokenizer puts before a text by default (a BOS, or nothing). What it appends (an EOS) is left out:
        nothing is scored after the end of a text.
    """

    hf: PreTrainedTokenizerBase
    prefix: tuple[int, ...]

    @cached_property
    def unknown(self) -> int | None:
        """The id that stands for what the tokenizer has no piece for; None where every text has its own pieces."""
        found: int | None = getattr(self.hf, "unk_token_id", None)
        # Byte-level tokenizers name an end-of-text token here, which no text is encoded to.
        return found if found is not None and found in self.encode(_STRANGE) else None

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` without any special token."""
        ids: list[int] = self.hf.encode(text, add_special_tokens=False)
        return ids


def view(tokenizer: PreTrainedTokenizerBase) -> TokenizerView:
    """Find what the tokenizer adds by itself.

    Raises
    ------
    LmassayError
        ``tokenizer-not-usable`` when it has no vocabulary, or drops or changes the text's own tokens.
    """
    bare = tokenizer.encode(_PROBE, add_special_tokens=False)
    if not bare:
        raise LmassayError(
            "tokenizer-not-usable",
            f"{type(tokenizer).__name__} encodes {_PROBE!r} to nothing: it has no vocabulary",
            "put the tokenizer's files (tokenizer.json) beside the model's",
        )
    full = tokenizer.encode(_PROBE)
    at = next((i for i in range(len(full) - len(bare) + 1) if full[i : i + len(bare)] == bare), None)
    if at is None:
        raise LmassayError(
            "tokenizer-not-usable",
            f"{type(tokenizer).__name__} encodes {_PROBE!r} to {full} with special tokens and {bare} without",
            "use the model's own tokenizer",
        )
    return TokenizerView(tokenizer, tuple(full[:at]))
