"""All figures of one method on one split, each with its interval; and their draws, which evidence pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.predictions import Rows
from lmassay.measures.bootstrap import (
    ClusterDraws,
    bincounts,
    interval_of,
    rank_draws,
    rates_draws,
    ratio_draws,
    threshold_draws,
    within_auroc_draws,
)
from lmassay.measures.classification import (
    Point,
    auroc,
    chance_mc,
    choose_threshold,
    effect_ratio,
    g_mean2_mc,
    oracle_g_mean2,
    rates,
    within_auroc,
)
from lmassay.measures.intervals import Estimate, undefined
from lmassay.measures.regression import (
    r2,
    r2s,
    spearman_by_group,
    sums,
    within_r2,
    within_r2s,
    within_spearman,
)

Floats = NDArray[np.float64]

TITLES = {
    "auroc": "AUROC",
    "g_mean2": "TPR x TNR at the validation threshold",
    "g_mean2_retuned": "the same; its interval draws the validation questions too",
    "tpr": "positives above the validation threshold",
    "tnr": "negatives at or below it",
    "oracle_g_mean2": "oracle: g-mean² at the threshold that is best on the test rows themselves",
    "within_auroc": "AUROC over pairs of one question",
    "effect_ratio": "R: mean of (p1 - p0) / p1 over positives",
    "tpr_mc": "min(1, TPR / R)",
    "g_mean2_mc": "minimal criterion: min(1, TPR / R) x TNR",
    "g_mean2_mc_retuned": "the same; its interval draws the validation questions too",
    "chance_mc": "what guessing reaches at best in g_mean2_mc",
    "r2": "1 - MSE / variance",
    "within_r2": "the same on question-centred values",
    "within_spearman": "rank correlation within questions, mean over them",
    "r2_normalised": "R² of entropy divided by the log of the number of options",
}


@dataclass
class Figures:
    """What one method gets on one split.

    Attributes
    ----------
    estimates : dict of str to Estimate
    flags : dict of str to tuple of str
    draws : dict of str to (n_draws,) float64
        By figure; NaN where it is undefined in a draw.
    """

    rows: Rows
    drawn: ClusterDraws
    estimates: dict[str, Estimate] = field(default_factory=dict)
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    draws: dict[str, Floats] = field(default_factory=dict)

    def add(self, name: str, point: Point, draws: Floats, n: int | None = None) -> None:
        """Put a figure down with the interval of its draws."""
        n = int(self.rows.scored.sum()) if n is None else n
        self.draws[name] = draws
        if point.flags:
            self.flags[name] = point.flags
        if point.value is None:
            self.estimates[name] = undefined(TITLES[name], point.status.removeprefix("undefined: "), n)
            return
        low, high, status = self.drawn.bounds(draws)
        k = len(np.unique(self.rows.groups[self.rows.scored]))
        self.estimates[name] = Estimate(point.value, low, high, n, TITLES[name], k, status)


@dataclass(frozen=True, slots=True)
class Tuned:
    """A method's threshold, and the one each draw of the validation questions would have given.

    Attributes
    ----------
    threshold : Point
    draws : (n_draws,) float64
    """

    threshold: Point
    draws: Floats


def tuned(rows: Rows, drawn: ClusterDraws) -> Tuned:
    """The threshold from validation rows."""
    threshold = choose_threshold(rows.y, rows.score)
    draws = threshold_draws(rows.y, rows.score, drawn) if len(rows.y) else np.full(len(drawn.times), np.nan)
    return Tuned(threshold, draws)


def binary_figures(rows: Rows, drawn: ClusterDraws, at: Tuned, *, interventional: bool) -> Figures:
    """AUROC, rates, g-mean² (plain, oracle and, in interventional tasks, minimal criterion)."""
    found = Figures(rows, drawn)
    y, score, t = rows.y, rows.score, at.threshold.value
    area, oracle = rank_draws(y, score, drawn)
    given = rates_draws(y, score, np.nan if t is None else t, drawn)
    own = rates_draws(y, score, at.draws, drawn)
    points = rates(y, score, t)
    if t is None:
        # Why there is none (constant scores, one class, no data) says more than that there is none.
        points = {name: Point(None, at.threshold.status) for name in points}
    found.add("auroc", auroc(y, score), area)
    found.add("g_mean2", points["g_mean2"], given[0] * given[1])
    found.add("g_mean2_retuned", points["g_mean2"], own[0] * own[1])
    found.add("tpr", points["tpr"], given[0])
    found.add("tnr", points["tnr"], given[1])
    found.add("oracle_g_mean2", oracle_g_mean2(y, score), oracle)
    found.add("within_auroc", within_auroc(y, score, rows.groups), within_auroc_draws(y, score, drawn))
    if interventional:
        _minimal_criterion(found, points, given, own)
    return found


def _minimal_criterion(
    found: Figures, points: Mapping[str, Point], given: tuple[Floats, Floats], own: tuple[Floats, Floats]
) -> None:
    rows = found.rows
    positive = (rows.y == 1) & rows.scored
    known = positive & ~np.isnan(rows.p0) & (rows.p1 > 0)
    ratio = effect_ratio(rows.p1[positive], rows.p0[positive])
    each = np.where(known, (rows.p1 - rows.p0) / np.where(known, rows.p1, 1.0), 0.0)
    drawn_ratio = ratio_draws(
        bincounts(each, found.drawn), bincounts(known.astype(np.float64), found.drawn), found.drawn
    )
    drawn_ratio = np.where(drawn_ratio > 0, drawn_ratio, np.nan)
    found.add("effect_ratio", ratio, drawn_ratio, int(known.sum()))
    if ratio.value is None:
        for name in ("tpr_mc", "g_mean2_mc", "g_mean2_mc_retuned", "chance_mc"):
            found.add(name, Point(None, ratio.status), drawn_ratio)
        return
    r, tpr, tnr = ratio.value, points["tpr"], points["tnr"]
    if tpr.value is None or tnr.value is None:
        mc = tpr_mc = Point(None, tpr.status if tpr.value is None else tnr.status)
    else:
        tpr_mc = Point(min(1.0, tpr.value / r), flags=tpr.flags)
        mc = Point(g_mean2_mc(tpr.value, tnr.value, r), flags=tpr.flags)
    found.add("tpr_mc", tpr_mc, np.minimum(1.0, given[0] / drawn_ratio))
    found.add("g_mean2_mc", mc, np.minimum(1.0, given[0] / drawn_ratio) * given[1])
    found.add("g_mean2_mc_retuned", mc, np.minimum(1.0, own[0] / drawn_ratio) * own[1])
    chance = np.where(drawn_ratio <= 0.5, 1 - drawn_ratio, 1 / (4 * drawn_ratio))
    found.add("chance_mc", Point(chance_mc(r)), chance, int(known.sum()))


def regression_figures(rows: Rows, drawn: ClusterDraws) -> Figures:
    """R², within questions, by rank, and on the scale of each question's own maximum."""
    found = Figures(rows, drawn)
    s = sums(rows.y, rows.score, drawn.codes)
    found.add("r2", r2(rows.y, rows.score), r2s(s, drawn.times))
    found.add("within_r2", within_r2(rows.y, rows.score, rows.groups), within_r2s(s, drawn.times))
    ranks = spearman_by_group(rows.y, rows.score, drawn.codes)
    known = ~np.isnan(ranks)
    found.add(
        "within_spearman",
        within_spearman(rows.y, rows.score, rows.groups),
        ratio_draws(np.where(known, ranks, 0.0), known.astype(np.float64), drawn),
    )
    if (rows.n_options > 1).all() and len(rows.y):
        top = np.log(rows.n_options)
        scaled = sums(rows.y / top, rows.score / top, drawn.codes)
        found.add("r2_normalised", r2(rows.y / top, rows.score / top), r2s(scaled, drawn.times))
        # The flag's bound is in nats squared.
        found.flags.pop("r2_normalised", None)
    return found


def median_figures(sets: list[Figures], names: tuple[str, ...]) -> Figures:
    """The median over test sets, of each figure; undefined where it is undefined on one of them."""
    first = sets[0]
    found = Figures(first.rows, first.drawn)
    for name in names:
        parts = [s.estimates[name] for s in sets]
        title = f"median over {len(sets)} test sets: {TITLES[name]}"
        n, k = sum(p.n for p in parts), sum(p.n_clusters for p in parts)
        if any(p.value is None for p in parts):
            found.estimates[name] = undefined(title, "undefined on a test set", n)
            continue
        # Sets with too few questions have no draws, and then the median has none.
        whole = [s.draws[name] for s in sets if len(s.draws[name])]
        draws = np.median(np.stack(whole), axis=0) if len(whole) == len(sets) else np.zeros(0)
        low, high, status = interval_of(draws, k)
        found.estimates[name] = Estimate(
            float(np.median([p.value for p in parts if p.value is not None])), low, high, n, title, k, status
        )
        found.draws[name] = draws
        flags = tuple(dict.fromkeys(f for s in sets for f in s.flags.get(name, ())))
        if flags:
            found.flags[name] = flags
    return found
