"""Counts of words and word pairs, with the vocabulary scikit-learn's ``CountVectorizer`` would choose.

Its plain way holds every pair of every text as a string before it keeps ten thousand. Here a pair is looked at only if
both of its words are frequent enough: no pair is more frequent than its words.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lmassay.methods.tokens import Coded, Dictionary

if TYPE_CHECKING:
    from scipy.sparse import csr_array

T = TypeVar("T")
S = TypeVar("S")

#: A word or pair of one text only tells nothing about another.
MIN_DF = 2
#: Words of the blocks that counting works on: their keys are sorted in memory of this many 64-bit numbers.
_BLOCK = 1 << 21

Keys = NDArray[np.int64]


def cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_all_cores(work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """``map`` by threads, in order; the arrays' arithmetic runs outside the interpreter's lock."""
    n = cores()
    if n == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(n) as pool:
        waiting = []
        for item in items:
            waiting.append(pool.submit(work, item))
            # Texts are made as they are needed, not all at once.
            if len(waiting) > 2 * n:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


@dataclass(frozen=True, slots=True)
class _Frequent:
    """Words and pairs that may be in the vocabulary.

    Attributes
    ----------
    feature : (n_words + 1,) int64
        Candidate number of each word's code, or -1; the last answers for `UNKNOWN`, which is index -1.
    pair_word : (n_words + 1,) int64
        Compact number of words that may stand in a pair, or -1.
    pairs : (n_pairs,) int64
        Sorted keys ``first * n_pair_words + second``; candidate numbers follow those of the words.
    """

    feature: Keys
    pair_word: Keys
    n_pair_words: int
    n_words: int
    pairs: Keys

    @property
    def n(self) -> int:
        return self.n_words + len(self.pairs)


class NGramCounts:
    """Word and word-pair counts over a vocabulary fitted to some texts.

    Parameters
    ----------
    max_features : int
        Most frequent words and pairs kept (by occurrences in all texts; of equals the first in the alphabet).

    Attributes
    ----------
    names : list of str
        The vocabulary in the order of the columns, which is the alphabet's; a pair has one space.
    """

    def __init__(self, max_features: int = 10_000) -> None:
        self.max_features = max_features
        self.names: list[str] = []

    def fit_transform(self, blocks: Iterable[Sequence[str]]) -> csr_array[Any]:
        """Blocks of texts -> (n_texts, n_features) int64 counts, and the vocabulary in `names`."""
        dictionary = Dictionary(grows=True)
        coded = list(_blocks(on_all_cores(dictionary.code, blocks)))
        frequent = _frequent(coded, len(dictionary.words), self.max_features)
        counts = _stacked(on_all_cores(lambda c: _counted(c, frequent), coded), frequent.n)
        names = _names(dictionary.words, frequent)
        del coded
        df = np.bincount(counts.indices, minlength=frequent.n)
        tf = np.bincount(counts.indices, counts.data, frequent.n).astype(np.int64)
        usable = np.flatnonzero(df >= MIN_DF)
        ranked = sorted(usable.tolist(), key=lambda i: (-tf[i], names[i]))[: self.max_features]
        chosen = sorted(ranked, key=names.__getitem__)
        self.names = [names[i] for i in chosen]
        return _columns(counts, np.array(chosen, np.int64))

    def transform(self, blocks: Iterable[Sequence[str]]) -> csr_array[Any]:
        """Blocks of texts -> (n_texts, n_features) int64 counts of the fitted vocabulary."""
        words = dict.fromkeys(word for name in self.names for word in name.split(" "))
        place = {word: i for i, word in enumerate(words)}
        dictionary = Dictionary(place, grows=False)
        n = len(place)
        single = [i for i, name in enumerate(self.names) if " " not in name]
        double = [i for i, name in enumerate(self.names) if " " in name]
        feature = np.full(n + 1, -1, np.int64)
        feature[[place[self.names[i]] for i in single]] = np.arange(len(single))
        keys = np.array([place[a] * n + place[b] for a, b in (self.names[i].split(" ") for i in double)], np.int64)
        order = np.argsort(keys)
        frequent = _Frequent(feature, np.append(np.arange(n), -1), n, len(single), keys[order])
        coded = _blocks(on_all_cores(dictionary.code, blocks))
        counts = _stacked(on_all_cores(lambda c: _counted(c, frequent), coded), frequent.n)
        where = np.empty(len(self.names), np.int64)
        where[[*single, *(double[i] for i in order)]] = np.arange(len(self.names))
        return _columns(counts, where)


def _blocks(coded: Iterable[Coded]) -> Iterator[Coded]:
    """Texts gathered until they have enough words to be counted together."""
    held: list[Coded] = []
    for one in coded:
        held.append(one)
        if sum(len(c.codes) for c in held) >= _BLOCK:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(coded: Sequence[Coded]) -> Coded:
    return Coded(np.concatenate([c.codes for c in coded]), np.concatenate([c.sizes for c in coded]))


def _frequent(coded: Sequence[Coded], n_words: int, max_features: int) -> _Frequent:
    tf = sum((np.bincount(c.codes, minlength=n_words) for c in coded), start=np.zeros(n_words, np.int64))
    shared = _in_two_texts(coded, n_words)
    in_order = np.sort(tf[shared])[::-1]
    # Pairs can only raise the count that the last feature kept must have.
    least = max(MIN_DF, int(in_order[max_features - 1])) if len(in_order) >= max_features else MIN_DF
    kept = shared & (tf >= least)
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    n = int(kept.sum())

    def tally(one: Coded) -> tuple[Keys, Keys]:
        keys = _pair_keys(one, number, n)[1]
        return np.unique(keys, return_counts=True)

    pairs, counts = _merged(on_all_cores(tally, coded))
    return _Frequent(number, number, n, n, pairs[counts >= least])


def _in_two_texts(coded: Sequence[Coded], n_words: int) -> NDArray[np.bool_]:
    """(n_words,) whether a word stands in two texts or more: its first text is not its last."""
    first, last = np.full(n_words, -1, np.int64), np.full(n_words, -1, np.int64)
    begin = 0
    for one in coded:
        text = begin + np.repeat(np.arange(len(one.sizes)), one.sizes)
        begin += len(one.sizes)
        last[one.codes] = text
        new = np.flatnonzero(first[one.codes] < 0)[::-1]
        first[one.codes[new]] = text[new]
    return np.asarray(first != last)


def _pair_keys(one: Coded, number: Keys, n: int) -> tuple[NDArray[np.intp], Keys]:
    """Neighbouring words of one text that both have a number: where the first stands, and the pair's key."""
    known = number[one.codes]
    together = (known[:-1] >= 0) & (known[1:] >= 0)
    ends = np.cumsum(one.sizes) - 1
    # The last word of a text and the first of the next are no pair.
    together[ends[(ends >= 0) & (ends < len(together))]] = False
    at = np.flatnonzero(together)
    return at, known[at] * n + known[at + 1]


def _merged(tallies: Iterable[tuple[Keys, Keys]]) -> tuple[Keys, Keys]:
    """Sorted distinct keys of all blocks and their counts."""
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for more, times in tallies:
        joined, weight = np.concatenate([keys, more]), np.concatenate([counts, times])
        order = np.argsort(joined, kind="stable")
        joined, weight = joined[order], weight[order]
        starts = np.flatnonzero(np.diff(joined, prepend=-1))
        keys = joined[starts]
        counts = np.add.reduceat(weight, starts) if len(starts) else np.zeros(0, np.int64)
    return keys, counts


def _counted(one: Coded, frequent: _Frequent) -> tuple[Keys, Keys, Keys]:
    """Rows, candidate numbers and counts of one block, sorted by row and number."""
    rows = np.repeat(np.arange(len(one.sizes)), one.sizes)
    single = frequent.feature[one.codes]
    known = np.flatnonzero(single >= 0)
    keys = [rows[known] * frequent.n + single[known]]
    if len(frequent.pairs) and len(one.codes):
        at, pair = _pair_keys(one, frequent.pair_word, frequent.n_pair_words)
        place = np.minimum(np.searchsorted(frequent.pairs, pair), len(frequent.pairs) - 1)
        hit = np.flatnonzero(frequent.pairs[place] == pair)
        keys.append(rows[at[hit]] * frequent.n + frequent.n_words + place[hit])
    cells, counts = np.unique(np.concatenate(keys), return_counts=True)
    per_row = np.bincount(cells // max(frequent.n, 1), minlength=len(one.sizes))
    return per_row, cells % max(frequent.n, 1), counts


def _stacked(blocks: Iterable[tuple[Keys, Keys, Keys]], n: int) -> csr_array[Any]:
    from scipy.sparse import csr_array

    sizes, columns, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for per_row, column, count in blocks:
        sizes.append(per_row)
        columns.append(column.astype(np.int32))
        counts.append(count.astype(np.int32))
    per_row = np.concatenate(sizes)
    pointers = np.concatenate([[0], np.cumsum(per_row)])
    if pointers[-1] < 2**31:
        pointers = pointers.astype(np.int32)
    return csr_array((np.concatenate(counts), np.concatenate(columns), pointers), shape=(len(per_row), n))


def _columns(counts: csr_array[Any], chosen: Keys) -> csr_array[Any]:
    """The chosen columns in the chosen order, indices sorted in every row."""
    from scipy.sparse import csr_array

    where = np.full(counts.shape[1], -1, np.int32)
    where[chosen] = np.arange(len(chosen), dtype=np.int32)
    column = where[counts.indices]
    kept = column >= 0
    pointers = np.concatenate([[0], np.cumsum(kept)])[counts.indptr].astype(counts.indptr.dtype)
    found = csr_array((counts.data[kept], column[kept], pointers), shape=(counts.shape[0], len(chosen)))
    found.sort_indices()
    return found


def _names(words: Sequence[str], frequent: _Frequent) -> list[str]:
    mine = [words[i] for i in np.flatnonzero(frequent.feature >= 0).tolist()]
    return mine + [
        f"{mine[k // frequent.n_pair_words]} {mine[k % frequent.n_pair_words]}" for k in frequent.pairs.tolist()
    ]
