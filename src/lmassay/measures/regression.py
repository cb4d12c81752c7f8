"""Regression scores: R², R² and rank correlation within questions, from sums that a bootstrap can weigh by cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmassay.measures.classification import NO_DATA, Point

Floats = NDArray[np.float64]

CONSTANT = "undefined: constant target"
NO_ORDER = "undefined: no question has an order"
#: nats²: under this much target variance an R² says little, and is flagged.
SMALL_VARIANCE = 0.02


@dataclass(frozen=True, slots=True)
class Sums:
    """What R² needs, cluster by cluster.

    Attributes
    ----------
    n, y, yy, residual : (n_groups,) float64
        Rows, and sums of y, y² and (y - prediction)², y measured from `centre`.
    within_residual, within_total : (n_groups,) float64
        The same sums of squares after both were centred on their question's mean.
    centre : float
        Mean target, subtracted so that squares do not swallow digits.
    """

    n: Floats
    y: Floats
    yy: Floats
    residual: Floats
    within_residual: Floats
    within_total: Floats
    centre: float


def sums(y: ArrayLike, prediction: ArrayLike, groups: ArrayLike) -> Sums:
    """(n,) targets, predictions and questions -> sums; rows whose prediction is NaN (abstained) are left out."""
    target, guess = np.asarray(y, np.float64), np.asarray(prediction, np.float64)
    names, code = np.unique(np.asarray(groups), return_inverse=True)
    kept = ~np.isnan(guess) & ~np.isnan(target)
    target, guess, code = target[kept], guess[kept], code[kept]
    centre = float(target.mean()) if len(target) else 0.0

    def per_group(values: Floats) -> Floats:
        return np.bincount(code, values, len(names)).astype(np.float64)

    n = np.bincount(code, minlength=len(names)).astype(np.float64)
    shifted, size = target - centre, np.maximum(n, 1)
    inner_y = target - (per_group(target) / size)[code]
    inner_guess = guess - (per_group(guess) / size)[code]
    return Sums(
        n=n,
        y=per_group(shifted),
        yy=per_group(shifted**2),
        residual=per_group((target - guess) ** 2),
        within_residual=per_group((inner_y - inner_guess) ** 2),
        within_total=per_group(inner_y**2),
        centre=centre,
    )


def r2s(s: Sums, times: ArrayLike) -> Floats:
    """(..., n_groups) multiplicities -> (...,) R² = 1 - MSE / Var, population variance; NaN for a constant target."""
    weight = np.asarray(times, np.float64)
    n = weight @ s.n
    total = weight @ s.yy - (weight @ s.y) ** 2 / np.maximum(n, 1)
    scale = weight @ s.yy + n * s.centre**2
    return _one_minus(weight @ s.residual, np.where(total > 1e-13 * scale, total, 0.0))


def within_r2s(s: Sums, times: ArrayLike) -> Floats:
    """(..., n_groups) multiplicities -> (...,) R² after targets and predictions were centred on their question."""
    weight = np.asarray(times, np.float64)
    scale = weight @ s.yy + (weight @ s.n) * s.centre**2
    total = weight @ s.within_total
    return _one_minus(weight @ s.within_residual, np.where(total > 1e-13 * scale, total, 0.0))


def _one_minus(residual: Floats, total: Floats) -> Floats:
    return np.where(total > 0, 1 - residual / np.where(total > 0, total, 1.0), np.nan)


def variance(s: Sums) -> float:
    """Population variance of the target."""
    n = s.n.sum()
    return float(s.yy.sum() / n - (s.y.sum() / n) ** 2) if n else float("nan")


def r2(y: ArrayLike, prediction: ArrayLike) -> Point:
    """1 - MSE / Var(y); flagged where the target hardly varies."""
    s = sums(y, prediction, np.zeros(len(np.asarray(y)), np.int64))
    if not s.n.sum():
        return Point(None, NO_DATA)
    value = float(r2s(s, np.ones(len(s.n))))
    if np.isnan(value):
        return Point(None, CONSTANT)
    return Point(value, flags=variance_flags(s))


def variance_flags(s: Sums) -> tuple[str, ...]:
    """``var < .02`` where it applies."""
    return (f"var < {SMALL_VARIANCE:.2f}".replace("0.", "."),) if variance(s) < SMALL_VARIANCE else ()


def within_r2(y: ArrayLike, prediction: ArrayLike, groups: ArrayLike) -> Point:
    """R² on question-centred values: 1 - Σ(ỹ - ŷ̃)² / Σỹ²."""
    s = sums(y, prediction, groups)
    if not s.n.sum():
        return Point(None, NO_DATA)
    value = float(within_r2s(s, np.ones(len(s.n))))
    return Point(None, CONSTANT) if np.isnan(value) else Point(value)


def spearman_by_group(y: ArrayLike, prediction: ArrayLike, groups: ArrayLike) -> Floats:
    """(n_groups,) Spearman correlation inside each question, in sorted order; NaN where one side is constant there."""
    from scipy.stats import rankdata

    target, guess = np.asarray(y, np.float64), np.asarray(prediction, np.float64)
    names, code = np.unique(np.asarray(groups), return_inverse=True)
    kept = ~np.isnan(guess) & ~np.isnan(target)
    found = np.full(len(names), np.nan)
    for group in range(len(names)):
        rows = kept & (code == group)
        if rows.sum() < 2:
            continue
        a, b = (ranks - ranks.mean() for ranks in (rankdata(target[rows]), rankdata(guess[rows])))
        scale = np.sqrt((a**2).sum() * (b**2).sum())
        if scale > 0:
            found[group] = (a * b).sum() / scale
    return found


def within_spearman(y: ArrayLike, prediction: ArrayLike, groups: ArrayLike) -> Point:
    """Mean over questions of the rank correlation inside them; questions without an order are left out and flagged."""
    found = spearman_by_group(y, prediction, groups)
    if not len(found):
        return Point(None, NO_DATA)
    known = ~np.isnan(found)
    if not known.any():
        return Point(None, NO_ORDER)
    left_out = int((~known).sum())
    flags = (f"no order in {left_out} of {len(found)} questions",) if left_out else ()
    return Point(float(found[known].mean()), flags=flags)
