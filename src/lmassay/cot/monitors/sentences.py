"""Sentences as tasks 8 and 9 cut them."""

from __future__ import annotations

import re

_END = re.compile(r"(?<=[.!?])\s+|\n[ \t]*\n\s*")


def sentences(text: str) -> list[str]:
    """Split after ``.``, ``!`` or ``?`` before white space, and at blank lines; stripped, empty ones dropped."""
    return [piece.strip() for piece in _END.split(text.strip()) if piece.strip()]
