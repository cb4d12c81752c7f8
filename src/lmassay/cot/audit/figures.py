"""One number against two classes: AUROC under a bootstrap by question, and tests that hold for all of them at once.

A draw of whole questions changes how often each pair of questions counts, never the pairs inside it. So one matrix of
ordered pairs between questions, made once, gives every draw's AUROC by two products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmassay.measures.bootstrap import interval_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALPHA = 0.05
#: Cells of the running counts held at once.
_CELLS = 4_000_000
#: An AUROC this near to 1 has every pair in order.
_ALL = 1 - 1e-12


@dataclass(frozen=True, slots=True)
class Side:
    """The rows of one class: scores and the question of each, numbered from 0.

    Attributes
    ----------
    score : (n,) float64
        Without NaN.
    code : (n,) int64
    k : int
        Questions that can be drawn; more than occur here where some have no row of this class.
    """

    score: Floats
    code: Ints
    k: int

    @property
    def sizes(self) -> Floats:
        """(k,) rows of each question."""
        return np.bincount(self.code, minlength=self.k).astype(np.float64)

    @property
    def n_questions(self) -> int:
        """Questions with a row here."""
        return int((self.sizes > 0).sum())


def ordered_pairs(positive: Side, negative: Side) -> Floats:
    """(k_positive, k_negative) pairs of each two questions in which the positive scores higher, a tie counting half."""
    from scipy.sparse import csr_array

    values, place = np.unique(np.concatenate([positive.score, negative.score]), return_inverse=True)
    at = (place[: len(positive.score)], place[len(positive.score) :])
    found = np.zeros((positive.k, negative.k))
    below = np.zeros(negative.k)
    step = max(1, _CELLS // max(1, negative.k))
    order = [np.argsort(places, kind="stable") for places in at]
    cuts = [
        np.searchsorted(places[o], np.arange(0, len(values) + step, step)) for places, o in zip(at, order, strict=True)
    ]
    for chunk, start in enumerate(range(0, len(values), step)):
        width = min(step, len(values) - start)
        rows = [o[c[chunk] : c[chunk + 1]] for o, c in zip(order, cuts, strict=True)]
        here = np.bincount((at[1][rows[1]] - start) * negative.k + negative.code[rows[1]], minlength=width * negative.k)
        counts = here.reshape(width, negative.k).astype(np.float64)
        under = below + counts.cumsum(0)
        below = under[-1].copy()
        under -= counts / 2
        ones = np.ones(len(rows[0]))
        chosen = csr_array((ones, (positive.code[rows[0]], at[0][rows[0]] - start)), shape=(positive.k, width))
        found += chosen @ under
    return found


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs in order and pairs in all, of the data and of every draw; several splits add up.

    Attributes
    ----------
    ordered, pairs : float
    ordered_draws, pairs_draws : (n_draws,) float64
    n : int
        Rows.
    k : int
        Questions the figure rests on: of the class that has fewer.
    """

    ordered: float
    pairs: float
    ordered_draws: Floats
    pairs_draws: Floats
    n: int
    k: int

    @property
    def value(self) -> float | None:
        """The AUROC; None without a pair."""
        return self.ordered / self.pairs if self.pairs else None

    @property
    def draws(self) -> Floats:
        """(n_draws,) AUROC of each draw, NaN without a pair."""
        return np.where(self.pairs_draws > 0, self.ordered_draws / np.maximum(self.pairs_draws, 1), np.nan)

    def bounds(self) -> tuple[float | None, float | None, str]:
        """The 95 % percentile interval and its status."""
        return interval_of(self.draws, self.k)


def between(positive: Side, negative: Side, times: tuple[Floats, Floats]) -> Pairs:
    """AUROC of all pairs, under (n_draws, k) times each question of a side is drawn."""
    n_values = len(np.unique(np.concatenate([positive.score, negative.score])))
    if n_values <= min(positive.k, negative.k):
        held = _by_value(positive, negative, n_values)
        drawn = [t @ h for t, h in zip(times, held, strict=True)]
        ordered, ordered_draws = _in_order(held[0].sum(0), held[1].sum(0)), _in_order(drawn[0], drawn[1])
    else:
        matrix = ordered_pairs(positive, negative)
        ordered, ordered_draws = matrix.sum(), ((times[0] @ matrix) * times[1]).sum(1)
    return Pairs(
        float(ordered),
        float(len(positive.score) * len(negative.score)),
        ordered_draws,
        (times[0] @ positive.sizes) * (times[1] @ negative.sizes),
        len(positive.score) + len(negative.score),
        min(positive.n_questions, negative.n_questions),
    )


def _by_value(positive: Side, negative: Side, n_values: int) -> list[Floats]:
    """(k, n_values) rows of each question at each distinct score, for both sides."""
    place = np.unique(np.concatenate([positive.score, negative.score]), return_inverse=True)[1]
    at = (place[: len(positive.score)], place[len(positive.score) :])
    return [
        np.bincount(s.code * n_values + p, minlength=s.k * n_values).reshape(s.k, n_values).astype(np.float64)
        for s, p in zip((positive, negative), at, strict=True)
    ]


def _in_order(positive: Floats, negative: Floats) -> Floats:
    """(..., n_values) rows at each score, ascending -> (...,) pairs in order."""
    return np.asarray((positive * (negative.cumsum(-1) - negative / 2)).sum(-1))


def within(positive: Side, negative: Side, times: Floats) -> Pairs:
    """AUROC of the pairs inside one question; the sides number the same questions."""
    pairs = positive.sizes * negative.sizes
    mixed = pairs > 0
    ordered = np.zeros(len(pairs))
    order = [np.argsort(s.code, kind="stable") for s in (positive, negative)]
    ends = [np.searchsorted(s.code[o], np.arange(s.k + 1)) for s, o in zip((positive, negative), order, strict=True)]
    for q in np.flatnonzero(mixed).tolist():
        high, low = (s.score[o[e[q] : e[q + 1]]] for s, o, e in zip((positive, negative), order, ends, strict=True))
        low = np.sort(low)
        ordered[q] = (np.searchsorted(low, high, "left") + np.searchsorted(low, high, "right")).sum() / 2
    n = int((positive.sizes + negative.sizes)[mixed].sum())
    return Pairs(float(ordered.sum()), float(pairs.sum()), times @ ordered, times @ pairs, n, int(mixed.sum()))


def together(parts: Sequence[Pairs]) -> Pairs:
    """The pairs of several splits, each drawn by itself."""
    # A split of few questions has fewer draws: those of one class are given up. Draws of splits are independent.
    n = min(len(p.pairs_draws) for p in parts)
    return Pairs(
        sum(p.ordered for p in parts),
        sum(p.pairs for p in parts),
        np.sum([p.ordered_draws[:n] for p in parts], axis=0),
        np.sum([p.pairs_draws[:n] for p in parts], axis=0),
        sum(p.n for p in parts),
        sum(p.k for p in parts if p.pairs),
    )


@dataclass(frozen=True, slots=True)
class Strength:
    """How far a figure lies from one half, ready for a test.

    Attributes
    ----------
    value : float
        max(AUROC, 1 - AUROC), or the AUROC itself where the direction was fixed beforehand.
    error : float
        Standard error: deviation of the bootstrap draws.
    k : int
        Questions.
    sides : int
        2 where the direction was read off the same rows.
    """

    value: float
    error: float
    k: int
    sides: int

    def p(self, null: float) -> float:
        """Of the hypothesis that the strength is at most `null`: Student's t on the logit scale, k - 1 degrees.

        With every pair in order there is no error to go by; then k questions, each in order with chance `null`.
        """
        from scipy.special import stdtr

        if self.k < 3 or self.value <= null:
            return 1.0
        if self.value > _ALL:
            return float(min(1.0, self.sides * null**self.k))
        if self.error <= 0:
            return 1.0
        t = (_logit(self.value) - _logit(null)) * self.value * (1 - self.value) / self.error
        return float(min(1.0, self.sides * stdtr(self.k - 1, -t)))

    def low(self, level: float) -> float:
        """The largest null that a test at `level` rejects."""
        from scipy.special import expit, stdtrit

        if self.k < 3:
            return 0.0
        if self.value > _ALL:
            return float((level / self.sides) ** (1 / self.k))
        if self.error <= 0:
            return 0.0
        t = float(stdtrit(self.k - 1, 1 - level / self.sides))
        return float(expit(_logit(self.value) - t * self.error / (self.value * (1 - self.value))))


def strength(pairs: Pairs, *, one_sided: bool) -> Strength | None:
    """Of a figure; None where it is undefined."""
    if pairs.value is None:
        return None
    draws = pairs.draws
    known = draws[~np.isnan(draws)]
    error = float(known.std(ddof=1)) if len(known) > 1 else 0.0
    value = pairs.value if one_sided else max(pairs.value, 1 - pairs.value)
    return Strength(value, error if error > 1e-12 else 0.0, pairs.k, 1 if one_sided else 2)


def _logit(p: float) -> float:
    return float(np.log(p) - np.log1p(-p))


@dataclass(frozen=True, slots=True)
class Corrected:
    """Holm's correction of one test.

    Attributes
    ----------
    p : float
        Adjusted.
    low : float
        The largest strength that the test, at the level its rank leaves it, rejects; never above that of a test
        that ranks before it and failed.
    """

    p: float
    low: float


def holm(tests: Sequence[Strength | float], null: float) -> list[Corrected]:
    """Corrected tests of ``strength <= null``; a bare number is the p-value of a test of another kind.

    Holm 1979, *A simple sequentially rejective multiple test procedure*.
    """
    p = np.array([t if isinstance(t, float) else t.p(null) for t in tests], np.float64)
    found: list[Corrected | None] = [None] * len(tests)
    highest, rejecting = 0.0, True
    for rank, index in enumerate(np.argsort(p, kind="stable").tolist()):
        left = len(tests) - rank
        highest = max(highest, min(1.0, left * float(p[index])))
        rejecting = rejecting and highest < ALPHA
        test = tests[index]
        low = 0.0 if isinstance(test, float) else test.low(ALPHA / left)
        found[index] = Corrected(highest, low if rejecting else min(low, null))
    return [c for c in found if c is not None]
