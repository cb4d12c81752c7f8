"""Every test of the audit: each feature against the labels of each split, and against the splits themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay import seeds
from lmassay.cot.audit.features import Feature
from lmassay.cot.audit.figures import Pairs, Side, Strength, between, strength, together, within
from lmassay.cot.audit.findings import Figure
from lmassay.cot.audit.inputs import TRAIN, Audited
from lmassay.cot.audit.shifts import compared, spread
from lmassay.measures.bootstrap import ClusterDraws, cluster_draws, interval_of, rates_draws
from lmassay.measures.classification import choose_threshold, rates

if TYPE_CHECKING:
    from lmassay.cot.audit.figures import Corrected

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EVALUATION = "evaluation"
ALL, WITHIN, SHIFT = "all", "within", "train against split"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Tested:
    """A figure that is tested, with what its finding will say.

    Attributes
    ----------
    feature : Feature
    split, scope : str
    pairs : Pairs
    strength : Strength or None
    g_mean2 : tuple of (value, low, high)
    """

    feature: Feature
    split: str
    scope: str
    pairs: Pairs
    strength: Strength | None
    g_mean2: tuple[float | None, float | None, float | None] = (None, None, None)

    def figure(self, corrected: tuple[Corrected, Corrected] | None) -> Figure:
        """With the corrections: of strength at most .55, and of strength at most --max-auroc."""
        low, high, status = self.pairs.bounds()
        return Figure(
            self.feature.name,
            self.feature.seen,
            self.feature.family,
            self.split,
            self.scope,
            self.pairs.value,
            low,
            high,
            corrected[1].low if corrected else None,
            corrected[0].p if corrected else None,
            *self.g_mean2,
            self.pairs.n,
            self.pairs.k,
            status if self.pairs.pairs else "undefined: one class",
        )


class Draws:
    """The questions of each split, numbered, and how often each stands in every draw."""

    def __init__(self, data: Audited, seed: int, draws: int) -> None:
        self.data = data
        self.of: dict[str, ClusterDraws] = {}
        self.times: dict[str, Floats] = {}
        for split in data.splits:
            rows, rng = data.rows(split), seeds.generator(seed, split, "audit")
            labelled = ~np.isnan(data.y[rows])
            made = cluster_draws(data.groups[rows], rng, draws=draws)
            if len(np.unique(data.y[rows][labelled])) == 2 and labelled.all():
                made = cluster_draws(data.groups[rows], rng, y=data.y[rows], draws=draws)
            self.of[split], self.times[split] = made, made.times.astype(np.float64)

    def side(self, split: str, rows: Ints, score: Floats) -> Side:
        """Rows of a split (positions in it) as a `Side`."""
        return Side(score, self.of[split].codes[rows], self.of[split].n_clusters)


def label_tests(data: Audited, features: Sequence[Feature], draws: Draws, progress: Progress) -> list[Tested]:
    """Each feature against the labels: every split, and the evaluation splits together; all pairs, and within."""
    found = []
    for done, feature in enumerate(features):
        threshold, flip = _chosen(data, feature)
        parts: dict[str, list[Pairs]] = {ALL: [], WITHIN: []}
        for split in data.splits:
            made = _in_split(data, feature, split, draws)
            if made is None:
                continue
            g_mean2 = _g_mean2(data, feature, split, draws, threshold, flip)
            found.append(_test(feature, split, ALL, made[0], g_mean2))
            if split in data.evaluation:
                parts[ALL].append(made[0])
            if made[1] is not None:
                found.append(_test(feature, split, WITHIN, made[1]))
                if split in data.evaluation:
                    parts[WITHIN].append(made[1])
        found += [_test(feature, EVALUATION, scope, together(p)) for scope, p in parts.items() if len(p) > 1]
        progress(done + 1, len(features))
    return found


def _test(
    feature: Feature,
    split: str,
    scope: str,
    pairs: Pairs,
    g_mean2: tuple[float | None, float | None, float | None] = (None, None, None),
) -> Tested:
    return Tested(feature, split, scope, pairs, strength(pairs, one_sided=feature.one_sided), g_mean2)


def _in_split(data: Audited, feature: Feature, split: str, draws: Draws) -> tuple[Pairs, Pairs | None] | None:
    """All pairs, and those within a question where a question has different values; None where nothing varies."""
    rows = data.rows(split)
    y, values = data.y[rows], feature.values[rows]
    at = [np.flatnonzero((y == c) & ~np.isnan(values)) for c in (1, 0)]
    if not all(len(a) for a in at) or len(np.unique(values[np.concatenate(at)])) < 2:
        return None
    positive, negative = (draws.side(split, a, values[a]) for a in at)
    times = draws.times[split]
    pairs, inside = between(positive, negative, (times, times)), within(positive, negative, times)
    # A feature that is the same for all of a question has ties only, and ties cannot be out of order.
    return pairs, inside if inside.pairs and _varies(draws.of[split].codes, values) else None


def _varies(codes: Ints, values: Floats) -> bool:
    known = ~np.isnan(values)
    pairs = np.unique(np.stack([codes[known].astype(np.float64), values[known]]), axis=1).shape[1]
    return bool(pairs > len(np.unique(codes[known])))


def _chosen(data: Audited, feature: Feature) -> tuple[float | None, bool]:
    """The threshold of the training rows, and whether lower values are positive there."""
    if TRAIN not in data.splits:
        return None, False
    rows = data.rows(TRAIN)
    y, values = data.y[rows], feature.values[rows]
    known = ~np.isnan(y) & ~np.isnan(values)
    y, values = y[known], values[known]
    best: tuple[float, float | None, bool] = (-1.0, None, False)
    for flip in (False, True) if not feature.one_sided else (False,):
        score = -values if flip else values
        threshold = choose_threshold(y, score).value if len(y) else None
        if threshold is not None:
            reached = rates(y, score, threshold)["g_mean2"].value
            if reached is not None and reached > best[0]:
                best = (reached, threshold, flip)
    return best[1], best[2]


def _g_mean2(
    data: Audited, feature: Feature, split: str, draws: Draws, threshold: float | None, flip: bool
) -> tuple[float | None, float | None, float | None]:
    if threshold is None:
        return None, None, None
    rows = data.rows(split)
    y, values = data.y[rows], feature.values[rows]
    known = np.flatnonzero(~np.isnan(y) & ~np.isnan(values))
    score = -values[known] if flip else values[known]
    value = rates(y[known], score, threshold)["g_mean2"].value
    of = draws.of[split]
    tpr, tnr = rates_draws(y[known], score, threshold, ClusterDraws(of.codes[known], of.times, of.n_redrawn))
    low, high, _ = interval_of(tpr * tnr, of.n_clusters)
    return value, low, high


def shift_tests(data: Audited, features: Sequence[Feature], draws: Draws) -> list[Tested]:
    """How well a feature of form tells the rows of an evaluation split from the training rows."""
    found = []
    for split in data.evaluation:
        for feature in compared(features, data, split):
            wide = [spread(feature, data)] if feature.family == "size" else []
            for one in (feature, *wide):
                pairs = _against_train(data, one, split, draws)
                if pairs is not None:
                    found.append(Tested(one, split, SHIFT, pairs, strength(pairs, one_sided=False)))
    return found


def _against_train(data: Audited, feature: Feature, split: str, draws: Draws) -> Pairs | None:
    sides = []
    for name in (split, TRAIN):
        values = feature.values[data.rows(name)]
        known = np.flatnonzero(~np.isnan(values))
        sides.append(draws.side(name, known, values[known]))
    if any(name not in draws.times or not len(draws.times[name]) for name in (split, TRAIN)):
        return None
    if not all(len(s.score) for s in sides) or len(np.unique(np.concatenate([s.score for s in sides]))) < 2:
        return None
    return between(sides[0], sides[1], (draws.times[split], draws.times[TRAIN]))


def balance_strengths(data: Audited, draws: Draws) -> dict[str, tuple[Strength, float, float | None, float | None]]:
    """Of each split with both classes: how far the share of positives is from one half; share, and its interval."""
    found = {}
    for split in data.splits:
        y = data.y[data.rows(split)]
        known = np.flatnonzero(~np.isnan(y))
        if not len(known):
            continue
        of = draws.of[split]
        sums = [np.bincount(of.codes[known], w, minlength=of.n_clusters) for w in (y[known], np.ones(len(known)))]
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = (draws.times[split] @ sums[0]) / (draws.times[split] @ sums[1])
        share = float(y[known].mean())
        low, high, _ = interval_of(shares, of.n_clusters)
        known_draws = shares[~np.isnan(shares)]
        error = float(known_draws.std(ddof=1)) if len(known_draws) > 1 else 0.0
        k = int((sums[1] > 0).sum())
        found[split] = (Strength(max(share, 1 - share), error, k, 2), share, low, high)
    return found
