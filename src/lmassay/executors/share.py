"""Share i of n, for schedulers that start the same command n times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lmassay.errors import LmassayError


@dataclass(frozen=True, slots=True)
class Share:
    """One of `of` equal shares; they are counted from 1.

    Every share takes each n-th item, so that shares cost alike where items are sorted by size.
    """

    number: int
    of: int

    def taken(self, items: Sequence[int]) -> list[int]:
        """The items of this share."""
        return [item for item in items if item % self.of == self.number - 1]

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_share(text: str) -> Share:
    """``2/8`` as the second of eight shares.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise LmassayError("bad-request", f"{text!r} is no share", "write it as i/n, counted from 1: 1/8, 2/8 … 8/8")
    return Share(int(found[1]), int(found[2]))
