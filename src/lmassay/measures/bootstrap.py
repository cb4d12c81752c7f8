"""Bootstrap by question: whole clusters drawn anew, all figures of a split from the same draws.

Draws are named by data and seed, never by the method, so two methods on one split are compared draw by draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmassay.measures.classification import Ranked, aurocs, best_thresholds, oracle_g_mean2s, within_pairs
from lmassay.measures.intervals import DRAWS, FEW, FEWEST, NO_INTERVAL, percentile_interval

Floats = NDArray[np.float64]
Counts = NDArray[np.uint16]

#: Draws done at once: their row weights stay in the processor's cache.
_CHUNK = 50
#: A draw of one class is drawn anew; data that need more rounds than this have no usable draws.
_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class ClusterDraws:
    """How often each cluster stands in each draw.

    Attributes
    ----------
    codes : (n,) int64
        Cluster of each row.
    times : (n_draws, n_clusters) uint16
        No rows under three clusters.
    n_redrawn : int
        Draws that held one class only and were drawn again.
    """

    codes: NDArray[np.int64]
    times: Counts
    n_redrawn: int

    @property
    def n_clusters(self) -> int:
        """Clusters in all."""
        return int(self.times.shape[1])


def interval_of(values: Floats, n_clusters: int) -> tuple[float | None, float | None, str]:
    """(n_draws,) values of a figure over `n_clusters` clusters -> its 95 % interval and status.

    Draws in which it is undefined are left out.
    """
    if n_clusters < FEWEST:
        return None, None, NO_INTERVAL
    known = values[~np.isnan(values)]
    if not len(known):
        return None, None, "undefined: no usable draw"
    return *percentile_interval(known), "few_clusters" if n_clusters < FEW else "ok"


def cluster_draws(
    groups: ArrayLike, rng: np.random.Generator, *, y: ArrayLike | None = None, draws: int = DRAWS
) -> ClusterDraws:
    """Draw whole clusters with replacement; with labels 0/1, draws of one class are drawn again and counted.

    Parameters
    ----------
    groups : (n,)
        Cluster of each row.
    y : (n,) int, optional
        Labels; without them every draw is kept.
    """
    names, codes = np.unique(np.asarray(groups), return_inverse=True)
    k = len(names)
    codes = codes.astype(np.int64)
    if k < FEWEST:
        return ClusterDraws(codes, np.zeros((0, k), np.uint16), 0)
    share = np.full(k, 1 / k)
    times = rng.multinomial(k, share, size=draws).astype(np.uint16)
    redrawn = 0
    if y is not None:
        labels = np.asarray(y, np.int64)
        held = [np.bincount(codes[labels == c], minlength=k) > 0 for c in (0, 1)]
        if all(h.any() for h in held):
            for _ in range(_ROUNDS):
                both = (times[:, held[0]] > 0).any(1) & (times[:, held[1]] > 0).any(1)
                lacking = np.flatnonzero(~both)
                if not len(lacking):
                    break
                redrawn += len(lacking)
                times[lacking] = rng.multinomial(k, share, size=len(lacking))
    return ClusterDraws(codes, times, redrawn)


def ranked_draws(y: ArrayLike, score: ArrayLike, draws: ClusterDraws) -> Iterator[tuple[slice, Ranked]]:
    """Counts by distinct score for every draw, some draws at a time."""
    labels, scores = np.asarray(y, np.int64), np.asarray(score, np.float64)
    kept = np.flatnonzero(~np.isnan(scores))
    order = kept[np.argsort(scores[kept], kind="stable")]
    values, ends = np.unique(scores[order], return_index=True)
    ends = np.append(ends[1:], len(order)) - 1
    by_class = [np.flatnonzero(labels[order] == c) for c in (1, 0)]
    clusters = [draws.codes[order[rows]] for rows in by_class]
    # How many rows of a class stand at or before each distinct score's last row.
    until = [np.searchsorted(rows, ends, side="right") for rows in by_class]
    for start in range(0, len(draws.times), _CHUNK):
        times = draws.times[start : start + _CHUNK].astype(np.int32)
        counts = [_cumulated(times, *pair) for pair in zip(clusters, until, strict=True)]
        yield slice(start, start + len(times)), Ranked(values, *counts)


def _cumulated(times: NDArray[np.int32], cluster: NDArray[np.int64], until: NDArray[np.int64]) -> NDArray[Any]:
    """(draws, n_values) rows of one class at or below each distinct score."""
    sums = np.zeros((len(times), len(cluster) + 1), np.int64)
    np.cumsum(times[:, cluster], axis=1, out=sums[:, 1:])
    return sums[:, until]


def rank_draws(y: ArrayLike, score: ArrayLike, draws: ClusterDraws) -> tuple[Floats, Floats]:
    """(n_draws,) AUROC and (n_draws,) oracle g-mean²: what needs no threshold. NaN where undefined in a draw."""
    found = [np.full(len(draws.times), np.nan) for _ in range(2)]
    for part, r in ranked_draws(y, score, draws):
        found[0][part], found[1][part] = aurocs(r), oracle_g_mean2s(r)
    return found[0], found[1]


def rates_draws(
    y: ArrayLike, score: ArrayLike, threshold: float | Floats, draws: ClusterDraws
) -> tuple[Floats, Floats]:
    """(n_draws,) TPR and TNR. A cluster's counts are taken once per distinct threshold.

    Parameters
    ----------
    threshold : float or (n_draws,) float64
        One for all (``given_threshold``), or each draw's own (``retuned``).
    """
    thresholds = np.broadcast_to(np.asarray(threshold, np.float64), (len(draws.times),))
    labels, scores = np.asarray(y, np.int64), np.asarray(score, np.float64)
    k = draws.n_clusters
    distinct, which = np.unique(thresholds[~np.isnan(thresholds)], return_inverse=True)
    found = [np.full(len(thresholds), np.nan) for _ in range(2)]
    known = np.flatnonzero(~np.isnan(thresholds))
    if not len(distinct):
        return found[0], found[1]
    for out, c in zip(found, (1, 0), strict=True):
        mine = (labels == c) & ~np.isnan(scores)
        # Above how many of the distinct thresholds a row lies: rows by cluster and that number, summed from the end.
        above = np.searchsorted(distinct, scores[mine], side="left")
        cells = np.bincount(draws.codes[mine] * (len(distinct) + 1) + above, minlength=k * (len(distinct) + 1))
        over = cells.reshape(k, -1)[:, ::-1].cumsum(1)[:, ::-1][:, 1:]
        total = np.bincount(draws.codes[mine], minlength=k)
        times = draws.times[known].astype(np.float64)
        hits = (times * over.T[which]).sum(1)
        whole = times @ total
        right = hits if c == 1 else whole - hits
        out[known] = np.where(whole > 0, right / np.maximum(whole, 1), np.nan)
    return found[0], found[1]


def threshold_draws(y: ArrayLike, score: ArrayLike, draws: ClusterDraws) -> Floats:
    """(n_draws,) the threshold each draw of the validation questions would have chosen; NaN where it has none."""
    found = np.full(len(draws.times), np.nan)
    for part, r in ranked_draws(y, score, draws):
        found[part] = best_thresholds(r)
    return found


def ratio_draws(part: Floats, whole: Floats, draws: ClusterDraws) -> Floats:
    """(n_clusters,) sums -> (n_draws,) ratios of their resampled totals; NaN where the whole is 0."""
    times = draws.times.astype(np.float64)
    top, bottom = times @ part, times @ whole
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), np.nan)


def within_auroc_draws(y: ArrayLike, score: ArrayLike, draws: ClusterDraws) -> Floats:
    """(n_draws,) AUROC over pairs of one question."""
    pairs = within_pairs(y, score, draws.codes)
    return ratio_draws(pairs[:, 0], pairs[:, 1], draws)


def bincounts(values: Floats, draws: ClusterDraws) -> Floats:
    """(n,) values -> (n_clusters,) sums, NaN counting nothing."""
    return np.bincount(draws.codes, np.nan_to_num(values), draws.n_clusters).astype(np.float64)
