"""Sentences and words of a chain of thought, as the published boundaries count them."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: After . ! ? followed by white space, or at one or more blank lines; single line breaks do not split.
_END = re.compile(r"(?<=[.!?])\s+|\n[^\S\n]*\n\s*")


def sentences(text: str) -> list[str]:
    """The sentences of a text, stripped, empty ones left out."""
    return [s for s in (piece.strip() for piece in _END.split(text.strip())) if s]


def joined(parts: list[str]) -> str:
    """A prefix of whole sentences; line breaks between them are lost, as in the published data."""
    return " ".join(parts)


def parted(parts: Iterable[str]) -> str:
    """Sentences as a text that `sentences` parts again where it was put together, full stops or not."""
    return "\n\n".join(parts)


def n_words(text: str) -> int:
    """Words between white space."""
    return len(text.split())
