"""Randomness by hashing: every draw is named by (seed, item, purpose), so no two purposes share one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def digest(seed: int, *parts: str) -> bytes:
    """sha256 over the seed and the parts, separated unambiguously."""
    joined = "\x1f".join([str(seed), *(part.replace("\x1f", "\x1f\x1f") for part in parts)])
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).digest()


def derive(seed: int, item: str, purpose: str) -> int:
    """A 63-bit integer seed for one item and one purpose."""
    return int.from_bytes(digest(seed, item, purpose)[:8], "big") >> 1


def generator(seed: int, item: str, purpose: str) -> np.random.Generator:
    """A numpy generator of its own for one item and one purpose."""
    return np.random.default_rng(derive(seed, item, purpose))


def smallest_hash(candidates: Iterable[T], seed: int, item: str, purpose: str, *, text: Callable[[T], str]) -> T:
    """The candidate whose ``sha256(seed, item, purpose, text)`` is smallest.

    No index is drawn, so neither the order of candidates nor other items change the choice.

    Raises
    ------
    ValueError
        If there are no candidates.
    """
    return min(candidates, key=lambda c: digest(seed, item, purpose, text(c)))


def seeded_choice(options: Sequence[T], seed: int, item: str, purpose: str) -> T:
    """One element of an ordered sequence (for ordered menus, such as the shift sizes 2 to 5)."""
    return options[derive(seed, item, purpose) % len(options)]
