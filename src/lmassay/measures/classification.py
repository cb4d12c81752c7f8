"""Binary scores: AUROC, rates and g-mean² at a threshold chosen elsewhere, all from counts by distinct score.

Every figure is computed from the same two rows of numbers: how many positives, and how many negatives, score at most
each distinct value. Counts may carry leading axes (one row per bootstrap draw); a figure that is undefined in a row is
NaN there, and the functions that take labels and scores give it a name instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OK = "ok"
ONE_CLASS = "undefined: one class"
NO_THRESHOLD = "undefined: no_threshold"
NO_DATA = "undefined: no data"
NO_MIXED_GROUP = "undefined: no question has both classes"
NO_EFFECT = "undefined: no effect (R <= 0)"
NO_POSITIVES = "undefined: no positives"


@dataclass(frozen=True, slots=True)
class Point:
    """A figure without its interval.

    Attributes
    ----------
    value : float or None
        None where undefined, and then `status` says why.
    flags : tuple of str
        What a reader must know beside the value, such as ``never predicts class 0``.
    """

    value: float | None
    status: str = OK
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """Labels counted by distinct score.

    Attributes
    ----------
    values : (k,) float64
        Distinct scores, ascending.
    positives, negatives : (..., k) int64
        Rows of each class that score at most ``values[j]``.
    """

    values: Floats
    positives: Ints
    negatives: Ints

    @property
    def n_positive(self) -> Ints:
        """(...,) positives in all."""
        return self.positives[..., -1] if len(self.values) else np.zeros(self.positives.shape[:-1], np.int64)

    @property
    def n_negative(self) -> Ints:
        """(...,) negatives in all."""
        return self.negatives[..., -1] if len(self.values) else np.zeros(self.negatives.shape[:-1], np.int64)


def ranked(y: ArrayLike, score: ArrayLike) -> Ranked:
    """(n,) labels 0/1 and (n,) scores -> counts; rows whose score is NaN (abstained) are left out."""
    labels, scores = np.asarray(y, np.int64), np.asarray(score, np.float64)
    kept = ~np.isnan(scores)
    values, place = np.unique(scores[kept], return_inverse=True)
    counts = [np.cumsum(np.bincount(place[labels[kept] == c], minlength=len(values))) for c in (1, 0)]
    return Ranked(values, *counts)


def aurocs(r: Ranked) -> Floats:
    """(...,) AUROC, a tie counting half; NaN with one class."""
    below = r.negatives - np.diff(r.negatives, prepend=0, axis=-1)
    # Twice the number of pairs in order, in whole numbers.
    twice = (np.diff(r.positives, prepend=0, axis=-1) * (below + r.negatives)).sum(-1)
    pairs = r.n_positive * r.n_negative
    return np.where(pairs > 0, twice / (2 * np.maximum(pairs, 1)), np.nan)


def rates_at(r: Ranked, threshold: ArrayLike) -> tuple[Floats, Floats]:
    """TPR and TNR, each (...,), when a score above `threshold` (a number or (...,)) counts as positive.

    NaN where the threshold is NaN or the class is absent.
    """
    t = np.asarray(threshold, np.float64)
    place = np.searchsorted(r.values, t, side="right")
    counts = []
    for held in (r.positives, r.negatives):
        padded = np.concatenate([np.zeros((*held.shape[:-1], 1), np.int64), held], axis=-1)
        at = np.broadcast_to(place, held.shape[:-1])[..., None]
        counts.append(np.take_along_axis(padded, at, axis=-1)[..., 0])
    tpr = _ratio(r.n_positive - counts[0], r.n_positive)
    tnr = _ratio(counts[1], r.n_negative)
    known = ~np.isnan(t)
    return np.where(known, tpr, np.nan), np.where(known, tnr, np.nan)


def best_thresholds(r: Ranked) -> Floats:
    """(...,) the midpoint of neighbouring scores with the best TPR x TNR; of equals the widest gap, then the lower.

    Only scores that carry a row take part, so in a bootstrap draw neighbours are those drawn. NaN where the draw has
    one class or a single distinct score.
    """
    if len(r.values) < 2:
        return np.full(r.positives.shape[:-1], np.nan)
    held = np.diff(r.positives + r.negatives, prepend=0, axis=-1) > 0
    # The next score that carries a row, seen from each; the last has none.
    k = len(r.values)
    nearest = np.minimum.accumulate(np.where(held, np.arange(k), k)[..., ::-1], axis=-1)[..., ::-1]
    following = np.concatenate([nearest[..., 1:], np.full((*held.shape[:-1], 1), k)], axis=-1)
    open_ = held & (following < k)
    # Whole numbers, so equal products are equal.
    product = np.where(open_, (r.n_positive[..., None] - r.positives) * r.negatives, -1)
    upper = r.values[np.minimum(following, k - 1)]
    gap = np.where(product == product.max(-1, keepdims=True), upper - r.values, -1.0)
    first = gap.argmax(-1)
    low, high = r.values[first], np.take_along_axis(upper, first[..., None], -1)[..., 0]
    usable = open_.any(-1) & (r.n_positive > 0) & (r.n_negative > 0)
    return np.where(usable, _between(low, high), np.nan)


def _between(low: Floats, high: Floats) -> Floats:
    """A midpoint that keeps `high` above it, however near the two are."""
    middle = low + (high - low) / 2
    return np.where(middle < high, middle, low)


def oracle_g_mean2s(r: Ranked) -> Floats:
    """(...,) the best TPR x TNR any threshold could have had on these very rows; NaN with one class."""
    pairs = r.n_positive * r.n_negative
    if not len(r.values):
        return np.full(pairs.shape, np.nan)
    best = ((r.n_positive[..., None] - r.positives) * r.negatives).max(-1)
    return _ratio(best, pairs)


def _ratio(part: Ints, whole: Ints) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def auroc(y: ArrayLike, score: ArrayLike) -> Point:
    """Share of (positive, negative) pairs in which the positive scores higher, a tie counting half."""
    return _named(ranked(y, score), aurocs)


def oracle_g_mean2(y: ArrayLike, score: ArrayLike) -> Point:
    """g-mean² at the threshold that is best on these very rows: what no honest threshold can pass."""
    return _named(ranked(y, score), oracle_g_mean2s)


def _named(r: Ranked, figure: Callable[[Ranked], Floats]) -> Point:
    if not len(r.values):
        return Point(None, NO_DATA)
    value = float(figure(r))
    return Point(None, ONE_CLASS) if np.isnan(value) else Point(value)


def choose_threshold(y: ArrayLike, score: ArrayLike) -> Point:
    """Among midpoints of scores, the one with the best g-mean²; of equals the widest gap, then the lower.

    A row is positive if and only if its score is above the threshold. Undefined (``no_threshold``) for constant scores.
    """
    r = ranked(y, score)
    if not len(r.values):
        return Point(None, NO_DATA)
    if not (r.n_positive and r.n_negative):
        return Point(None, ONE_CLASS)
    value = float(best_thresholds(r))
    return Point(None, NO_THRESHOLD) if np.isnan(value) else Point(value)


def rates(y: ArrayLike, score: ArrayLike, threshold: float | None) -> dict[str, Point]:
    """``tpr``, ``tnr`` and ``g_mean2`` = TPR·TNR at a threshold; a class that is never predicted is flagged."""
    r = ranked(y, score)
    if not len(r.values):
        return dict.fromkeys(("tpr", "tnr", "g_mean2"), Point(None, NO_DATA))
    if threshold is None:
        return dict.fromkeys(("tpr", "tnr", "g_mean2"), Point(None, NO_THRESHOLD))
    tpr, tnr = (float(v) for v in rates_at(r, threshold))
    flags = never_predicted(bool((r.values > threshold).any()), bool((r.values <= threshold).any()))
    return {
        name: Point(None, ONE_CLASS) if np.isnan(v) else Point(v, flags=flags)
        for name, v in (("tpr", tpr), ("tnr", tnr), ("g_mean2", tpr * tnr))
    }


def never_predicted(any_positive: bool, any_negative: bool) -> tuple[str, ...]:
    """The flag of a classifier that calls everything the same."""
    return tuple(f"never predicts class {c}" for c, present in ((1, any_positive), (0, any_negative)) if not present)


def within_auroc(y: ArrayLike, score: ArrayLike, groups: Sequence[object] | ArrayLike) -> Point:
    """AUROC over pairs of one question: of all (positive, negative) pairs that share it, the share in order."""
    counted = within_pairs(y, score, groups)
    if not counted.size:
        return Point(None, NO_DATA)
    ordered, pairs = counted.sum(0)
    return Point(float(ordered / pairs)) if pairs else Point(None, NO_MIXED_GROUP)


def within_pairs(y: ArrayLike, score: ArrayLike, groups: Sequence[object] | ArrayLike) -> Floats:
    """(n_groups, 2) float64: pairs in order (a tie counts half) and pairs in all, groups in sorted order."""
    labels, scores = np.asarray(y, np.int64), np.asarray(score, np.float64)
    names, code = np.unique(np.asarray(groups), return_inverse=True)
    found = np.zeros((len(names), 2))
    order = np.argsort(code, kind="stable")
    for group, rows in zip(code[order][_starts(code[order])], np.split(order, _starts(code[order])[1:]), strict=True):
        r = ranked(labels[rows], scores[rows])
        pairs = float(r.n_positive * r.n_negative)
        if pairs:
            found[group] = float(aurocs(r)) * pairs, pairs
    return found


def _starts(sorted_codes: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.flatnonzero(np.diff(sorted_codes, prepend=-1))


def effect_ratio(p1: ArrayLike, p0: ArrayLike) -> Point:
    """R: mean over positive records of (p1 - p0) / p1, the least share of them that the intervention caused.

    Parameters
    ----------
    p1, p0 : (n_positive,) float
        P(behaviour | intervention) and P(behaviour | control) of each record's pair; NaN where unknown.
    """
    with_, without = np.asarray(p1, np.float64), np.asarray(p0, np.float64)
    known = ~np.isnan(with_) & ~np.isnan(without) & (with_ > 0)
    if not known.any():
        return Point(None, NO_POSITIVES)
    ratio = float(((with_ - without)[known] / with_[known]).mean())
    return Point(ratio) if ratio > 0 else Point(None, NO_EFFECT)


def g_mean2_mc(tpr: float, tnr: float, ratio: float) -> float:
    """Minimal-criterion g-mean²: min(1, TPR / R) · TNR (Guan et al. 2025, arXiv 2512.18311, section 3.1)."""
    return min(1.0, tpr / ratio) * tnr


def chance_mc(ratio: float) -> float:
    """What guessing reaches at best: the maximum over t in [0, 1] of min(1, t / R)·(1 - t)."""
    return 1 - ratio if ratio <= 0.5 else 1 / (4 * ratio)
