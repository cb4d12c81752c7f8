"""Words of many texts as integers, without a Python object per word.

A word is what scikit-learn's default token pattern finds in the lower-cased text: a run of two or more
letters, digits or underscores. Words are found, hashed and looked up in whole arrays, which numpy does outside the
interpreter's lock, so two cores work at once.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Hashes = NDArray[np.uint64]

UNKNOWN = -1
#: Slots of the table that answers for most words at once; the rest are looked up one by one.
_SLOT_BITS = 20
_MIN_LENGTH = 2


@dataclass(frozen=True, slots=True)
class Coded:
    """Words of some texts.

    Attributes
    ----------
    codes : (n_words,) int32
        In reading order, text after text; `UNKNOWN` where a fixed dictionary lacks the word.
    sizes : (n_texts,) int64
        Words of each text.
    """

    codes: Ints
    sizes: NDArray[np.int64]


@cache
def _word_characters() -> NDArray[np.bool_]:
    """(0x110000,) whether a character belongs to a word, as Python's own ``re`` has it."""
    table = np.zeros(0x110000, np.bool_)
    for run in re.finditer(r"\w+", "".join(map(chr, range(len(table))))):
        table[run.start() : run.end()] = True
    return table


class _Weights:
    """Random odd 64-bit weights by place in the word: no two words are likely to share a sum of products."""

    def __init__(self) -> None:
        self._held = np.zeros(0, np.uint64)

    def up_to(self, n: int) -> Hashes:
        if len(self._held) < n:
            size = max(1024, 1 << (n - 1).bit_length())
            drawn = np.random.default_rng(20260326).integers(0, 2**64, size, dtype=np.uint64)
            self._held = drawn | np.uint64(1)
        return self._held[:n]


_WEIGHTS = _Weights()


class Dictionary:
    """Words and their codes, growing as texts are read or fixed.

    Parameters
    ----------
    words : iterable of str
        Words to begin with; their codes are their places.
    grows : bool
        Whether a new word is added or `UNKNOWN`.
    """

    def __init__(self, words: Iterable[str] = (), *, grows: bool) -> None:
        self.words: list[str] = []
        self._grows = grows
        self._codes: dict[int, int] = {}
        self._slot_hash = np.zeros(1 << _SLOT_BITS, np.uint64)
        self._slot_code = np.full(1 << _SLOT_BITS, UNKNOWN, np.int32)
        self._lock = threading.Lock()
        given = list(words)
        if given:
            # Every word is a text of its own here, whatever the pattern would make of it.
            for word, hashed in zip(given, _hashes_of(given), strict=True):
                self._add(int(hashed), word)

    def _add(self, hashed: int, word: str) -> int:
        code = self._codes[hashed] = len(self.words)
        self.words.append(word)
        slot = hashed >> (64 - _SLOT_BITS)
        if self._slot_code[slot] == UNKNOWN:
            # The hash last: another thread that sees it must find the code.
            self._slot_code[slot] = code
            self._slot_hash[slot] = hashed
        return code

    def code(self, texts: Sequence[str]) -> Coded:
        """Lower-case `texts`, find their words and look them up."""
        lowered = [text.lower() for text in texts]
        lengths = np.array([len(text) for text in lowered], np.int64)
        joined = "\n".join(lowered)
        characters = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        inside = _word_characters()[characters]
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        long_enough = ends - starts >= _MIN_LENGTH
        starts, ends = starts[long_enough], ends[long_enough]
        # The line break between two texts is one character more.
        text_ends = np.cumsum(lengths + 1)
        sizes = np.diff(np.searchsorted(starts, text_ends), prepend=0)
        if not len(starts):
            return Coded(np.zeros(0, np.int32), sizes)
        hashes = _hash_spans(characters, starts, ends)
        slots = (hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)
        codes = self._slot_code[slots]
        odd = np.flatnonzero((self._slot_hash[slots] != hashes) | (codes == UNKNOWN))
        if len(odd):
            distinct, first, back = np.unique(hashes[odd], return_index=True, return_inverse=True)
            codes[odd] = self._look_up(distinct, odd[first], joined, starts, ends)[back]
        return Coded(codes, sizes)

    def _look_up(
        self, hashes: Hashes, at: NDArray[np.intp], joined: str, starts: NDArray[np.intp], ends: NDArray[np.intp]
    ) -> Ints:
        found = np.empty(len(hashes), np.int32)
        with self._lock:
            for i, hashed in enumerate(hashes.tolist()):
                code = self._codes.get(hashed)
                if code is None:
                    code = self._add(hashed, joined[starts[at[i]] : ends[at[i]]]) if self._grows else UNKNOWN
                found[i] = code
        return found


def _hash_spans(characters: NDArray[np.uint32], starts: NDArray[np.intp], ends: NDArray[np.intp]) -> Hashes:
    """(n_words,) hashes of spans of characters, none of them empty."""
    lengths = ends - starts
    first = np.cumsum(lengths) - lengths
    place = np.arange(int(lengths.sum())) - np.repeat(first, lengths)
    used = characters[place + np.repeat(starts, lengths)]
    products = used * _WEIGHTS.up_to(int(lengths.max()))[place]
    return np.asarray(np.add.reduceat(products, first), np.uint64)


def _hashes_of(words: Sequence[str]) -> Hashes:
    characters = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(word) for word in words])
    return _hash_spans(characters, np.concatenate([[0], ends[:-1]]), ends)
