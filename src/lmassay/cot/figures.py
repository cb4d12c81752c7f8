"""All figures of one method on one split, each with its interval; and their draws, which evidence pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.predictions import LABEL, LABEL_THRESHOLD, Rows
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
    NO_DATA,
    NO_THRESHOLD,
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
#: Of a language model that was asked; the figures above count its unparsed replies as wrong.
MONITOR_TITLES = {
    "unparsed": "share of items whose replies say nothing",
    "g_mean2_parsed": "TPR x TNR at the validation threshold, parsed replies only",
    "positive_rate": "share of parsed items that are called positive",
    "base_rate": "share of positives among parsed items",
    "bias": "positive_rate - base_rate",
    "r2_parsed": "1 - MSE / variance, parsed replies only",
}
#: With a larger share of unparsed replies, what is taken over the parsed ones alone is undefined.
MOST_UNPARSED = 0.1
LABELS_ONLY = "undefined: labels only"
MANY_UNPARSED = f"undefined: more than {MOST_UNPARSED:.0%} unparsed"
NO_OPTIONS = "undefined: replies are unparsed and the number of options is unknown"


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

    def add(
        self, name: str, point: Point, draws: Floats, of: NDArray[np.bool_] | None = None, *, parsed: bool = False
    ) -> None:
        """Put a figure down with the interval of its draws.

        Parameters
        ----------
        of : (n_rows,) bool, optional
            The rows it is taken over, where they are not all.
        parsed : bool
            It is taken over rows with a score only.
        """
        used = of if of is not None else self.rows.scored if parsed else self.rows.counted
        n, k = int(used.sum()), len(np.unique(self.rows.groups[used]))
        title = TITLES.get(name) or MONITOR_TITLES[name]
        self.draws[name] = draws
        if point.flags:
            self.flags[name] = point.flags
        if point.value is None:
            self.estimates[name] = Estimate(None, None, None, n, title, k, point.status)
            return
        low, high, status = interval_of(draws, k)
        self.estimates[name] = Estimate(point.value, low, high, n, title, k, status)


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


def tuned(rows: Rows, drawn: ClusterDraws, answers: str | None = None) -> Tuned:
    """The threshold from validation rows; labels have one already.

    Unparsed rows change nothing: as wrong ones they multiply TPR and TNR at every threshold alike.
    """
    if answers == LABEL:
        return Tuned(Point(LABEL_THRESHOLD), np.full(len(drawn.times), LABEL_THRESHOLD))
    threshold = choose_threshold(rows.y, rows.score)
    draws = threshold_draws(rows.y, rows.score, drawn) if len(rows.y) else np.full(len(drawn.times), np.nan)
    return Tuned(threshold, draws)


def binary_figures(
    rows: Rows, drawn: ClusterDraws, at: Tuned, *, interventional: bool, answers: str | None = None
) -> Figures:
    """AUROC, rates, g-mean² (plain, oracle and, in interventional tasks, minimal criterion).

    Parameters
    ----------
    answers : str or None
        What a language model that was asked replies with; adds the figures of `MONITOR_TITLES`.
    """
    found = Figures(rows, drawn)
    y, score, t = rows.y, rows.as_wrong, at.threshold.value
    area, oracle = rank_draws(y, score, drawn)
    if rows.unparsed.any():
        area, _ = rank_draws(y, rows.score, drawn)
    given = rates_draws(y, score, np.nan if t is None else t, drawn)
    own = rates_draws(y, score, at.draws, drawn)
    points = rates(y, score, t)
    if rows.unparsed.any():
        flags = rates(y, rows.score, t)["tpr"].flags
        points = {name: replace(point, flags=flags) for name, point in points.items()}
    if t is None:
        # Why validation gives none (constant scores, one class, no data) says more than that there is none.
        points = {name: Point(None, _without_threshold(at)) for name in points}
    kept_from_ranks = _no_ranks(rows, answers)
    found.add("auroc", kept_from_ranks or auroc(y, rows.score), area, parsed=True)
    found.add("g_mean2", points["g_mean2"], given[0] * given[1])
    found.add("g_mean2_retuned", points["g_mean2"], own[0] * own[1])
    found.add("tpr", points["tpr"], given[0])
    found.add("tnr", points["tnr"], given[1])
    by_label = Point(None, LABELS_ONLY) if answers == LABEL else None
    found.add("oracle_g_mean2", by_label or oracle_g_mean2(y, score), oracle)
    within = kept_from_ranks or within_auroc(y, rows.score, rows.groups)
    found.add("within_auroc", within, within_auroc_draws(y, rows.score, drawn), parsed=True)
    if interventional:
        _minimal_criterion(found, points, given, own)
    if answers is not None:
        _of_replies(found, t, _without_threshold(at))
    return found


def _without_threshold(at: Tuned) -> str:
    why = at.threshold.status
    return why if why == NO_THRESHOLD else f"{NO_THRESHOLD} (validation: {why.removeprefix('undefined: ')})"


def _no_ranks(rows: Rows, answers: str | None) -> Point | None:
    """Why there is no figure of the order of scores, if there is none."""
    if answers == LABEL:
        return Point(None, LABELS_ONLY)
    many = rows.unparsed.sum() > MOST_UNPARSED * rows.counted.sum()
    return Point(None, MANY_UNPARSED) if many else None


def _share_unparsed(found: Figures) -> None:
    rows, drawn = found.rows, found.drawn
    whole = bincounts(rows.counted.astype(np.float64), drawn)
    point = Point(float(rows.unparsed.sum() / rows.counted.sum())) if rows.counted.any() else Point(None, NO_DATA)
    found.add("unparsed", point, ratio_draws(bincounts(rows.unparsed.astype(np.float64), drawn), whole, drawn))


def _of_replies(found: Figures, threshold: float | None, status: str) -> None:
    """How many replies are unparsed, what the others get, and which class they lean to."""
    _share_unparsed(found)
    rows, drawn = found.rows, found.drawn
    parsed = rates(rows.y, rows.score, threshold)["g_mean2"]
    called, positive = np.zeros(len(rows.y)), np.where(rows.scored, rows.y, 0.0)
    points = dict.fromkeys(("g_mean2_parsed", "positive_rate", "bias"), Point(None, status))
    whole = bincounts(rows.scored.astype(np.float64), drawn)
    n = int(rows.scored.sum())
    if threshold is not None:
        called = (rows.scored & (np.nan_to_num(rows.score, nan=-np.inf) > threshold)).astype(np.float64)
        share = Point(float(called.sum() / n)) if n else Point(None, NO_DATA)
        bias = Point(float((called - positive).sum() / n)) if n else share
        points = {"g_mean2_parsed": parsed, "positive_rate": share, "bias": bias}
    tpr, tnr = rates_draws(rows.y, rows.score, np.nan if threshold is None else threshold, drawn)
    found.add("g_mean2_parsed", points["g_mean2_parsed"], tpr * tnr, parsed=True)
    found.add(
        "positive_rate", points["positive_rate"], ratio_draws(bincounts(called, drawn), whole, drawn), parsed=True
    )
    base = Point(float(positive.sum() / n)) if n else Point(None, NO_DATA)
    found.add("base_rate", base, ratio_draws(bincounts(positive, drawn), whole, drawn), parsed=True)
    found.add("bias", points["bias"], ratio_draws(bincounts(called - positive, drawn), whole, drawn), parsed=True)


def _minimal_criterion(
    found: Figures, points: Mapping[str, Point], given: tuple[Floats, Floats], own: tuple[Floats, Floats]
) -> None:
    rows = found.rows
    positive = (rows.y == 1) & rows.counted
    known = positive & ~np.isnan(rows.p0) & (rows.p1 > 0)
    ratio = effect_ratio(rows.p1[positive], rows.p0[positive])
    each = np.where(known, (rows.p1 - rows.p0) / np.where(known, rows.p1, 1.0), 0.0)
    drawn_ratio = ratio_draws(
        bincounts(each, found.drawn), bincounts(known.astype(np.float64), found.drawn), found.drawn
    )
    drawn_ratio = np.where(drawn_ratio > 0, drawn_ratio, np.nan)
    found.add("effect_ratio", ratio, drawn_ratio, known)
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
    found.add("chance_mc", Point(chance_mc(r)), chance, known)


def regression_figures(rows: Rows, drawn: ClusterDraws, answers: str | None = None) -> Figures:
    """R², within questions, by rank, and on the scale of each question's own maximum.

    An unparsed reply counts as the entropy, of those there can be, that is farthest from the right one. What is taken
    within questions is taken over parsed replies.
    """
    found = Figures(rows, drawn)
    if answers is None:
        s = sums(rows.y, rows.score, drawn.codes)
        found.add("r2", r2(rows.y, rows.score), r2s(s, drawn.times))
        _within(found, None)
        _normalised(found, rows)
        return found
    worst = np.where(rows.y > np.log(np.maximum(rows.n_options, 1)) / 2, 0.0, np.log(np.maximum(rows.n_options, 1)))
    counted = replace(rows, score=np.where(rows.unparsed, worst, rows.score), unparsed=np.zeros(0, np.bool_))
    unknown = bool((rows.n_options[rows.unparsed] < 2).any())
    point = Point(None, NO_OPTIONS) if unknown else r2(counted.y, counted.score)
    found.add("r2", point, r2s(sums(counted.y, counted.score, drawn.codes), drawn.times))
    of_parsed = r2s(sums(rows.y, rows.score, drawn.codes), drawn.times)
    found.add("r2_parsed", r2(rows.y, rows.score), of_parsed, parsed=True)
    _share_unparsed(found)
    _within(found, _no_ranks(rows, None))
    _normalised(found, counted)
    return found


def _within(found: Figures, undefined_as: Point | None) -> None:
    """Figures within questions, of rows with a score."""
    rows, drawn = found.rows, found.drawn
    s = sums(rows.y, rows.score, drawn.codes)
    point = undefined_as or within_r2(rows.y, rows.score, rows.groups)
    found.add("within_r2", point, within_r2s(s, drawn.times), parsed=True)
    ranks = spearman_by_group(rows.y, rows.score, drawn.codes)
    known = ~np.isnan(ranks)
    found.add(
        "within_spearman",
        undefined_as or within_spearman(rows.y, rows.score, rows.groups),
        ratio_draws(np.where(known, ranks, 0.0), known.astype(np.float64), drawn),
        parsed=True,
    )


def _normalised(found: Figures, rows: Rows) -> None:
    """R² on the scale of each question's own maximum, where every question's number of options is known."""
    drawn = found.drawn
    if (rows.n_options > 1).all() and len(rows.y):
        top = np.log(rows.n_options)
        scaled = sums(rows.y / top, rows.score / top, drawn.codes)
        found.add("r2_normalised", r2(rows.y / top, rows.score / top), r2s(scaled, drawn.times))
        # The flag's bound is in nats squared.
        found.flags.pop("r2_normalised", None)


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
