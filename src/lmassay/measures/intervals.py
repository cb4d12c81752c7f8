"""95 % intervals for clustered data: bootstrap over clusters, t-interval where they are few, a named status else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAWS = 2000
LEVEL = 0.95
#: Under this many clusters a bootstrap over them is not to be trusted.
FEW = 10
#: Under this many there is no interval at all.
FEWEST = 3

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval and what it rests on.

    Attributes
    ----------
    value, low, high : float or None
        None where undefined, and then `status` says why.
    n : int
        Units (tasks, groups) the value is taken over.
    n_clusters : int
        Clusters the interval is taken over.
    status : str
        ``ok``, ``few_clusters``, or ``undefined: <reason>``.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    title: str
    n_clusters: int = 0
    status: str = "ok"

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


def undefined(title: str, reason: str, n: int = 0) -> Estimate:
    """A figure that cannot be had, with the reason."""
    return Estimate(None, None, None, n, title, 0, f"undefined: {reason}")


def exact(title: str, value: float, n: int) -> Estimate:
    """A figure without sampling error of its own (a count, a p-value)."""
    return Estimate(value, None, None, n, title)


def cluster_draws(
    values: ArrayLike,
    clusters: Sequence[str],
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
    sets: Sequence[str] | None = None,
) -> Floats:
    """Bootstrap draws of the mean, resampling whole clusters and, within them, whole sets.

    Parameters
    ----------
    values : (n,) float
    clusters : (n,) str
        For instance templates.
    sets : (n,) str, optional
        Smaller groups inside the clusters that are resampled in turn; without them a drawn cluster is kept whole.

    Returns
    -------
    (draws,) float64
    """  # fmt: skip
    return _draws(np.asarray(values, np.float64), clusters, sets, rng, draws)


def _draws(
    values: Floats, clusters: Sequence[str], sets: Sequence[str] | None, rng: np.random.Generator, draws: int
) -> Floats:
    names, cluster_of = np.unique(np.asarray(clusters), return_inverse=True)
    inner = np.asarray(clusters if sets is None else sets)
    n_clusters = len(names)
    times = rng.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), size=draws)
    total = np.zeros(draws)
    size = np.zeros(draws)
    for cluster in range(n_clusters):
        inside = cluster_of == cluster
        groups, group_of = np.unique(inner[inside], return_inverse=True)
        sums = np.bincount(group_of, values[inside])
        sizes = np.bincount(group_of)
        # A cluster drawn m times contributes m times its number of groups, each drawn anew.
        picked = rng.multinomial(times[:, cluster] * len(groups), np.full(len(groups), 1 / len(groups)))
        total += picked @ sums
        size += picked @ sizes
    return np.asarray(total / size)


def mean_estimate(
    values: ArrayLike,
    clusters: Sequence[str],
    *,
    title: str,
    rng: np.random.Generator,
    draws: int = DRAWS,
    sets: Sequence[str] | None = None,
) -> Estimate:
    """Mean of `values` with a 95 % interval over clusters.

    Percentile bootstrap from ten clusters on; a t-interval on cluster means from three; none below.
    """
    array = np.asarray(values, np.float64)
    if not len(array):
        return undefined(title, "no data")
    n_clusters = len(set(clusters))
    value = float(array.mean())
    if n_clusters < FEWEST:
        return Estimate(
            value, None, None, len(array), title, n_clusters, f"undefined: interval needs {FEWEST} clusters"
        )
    if n_clusters < FEW:
        low, high = t_interval(array, clusters)
        return Estimate(value, low, high, len(array), title, n_clusters, "few_clusters")
    low, high = percentile_interval(cluster_draws(array, clusters, rng, draws=draws, sets=sets))
    return Estimate(value, low, high, len(array), title, n_clusters)


def percentile_interval(draws: Floats) -> tuple[float, float]:
    """The central 95 % of bootstrap draws."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def t_interval(values: Floats, clusters: Sequence[str]) -> tuple[float, float]:
    """Student's t on the clusters' means, around their mean."""
    from scipy import stats

    names, cluster_of = np.unique(np.asarray(clusters), return_inverse=True)
    means = np.bincount(cluster_of, values) / np.bincount(cluster_of)
    half = stats.t.ppf((1 + LEVEL) / 2, len(names) - 1) * means.std(ddof=1) / np.sqrt(len(names))
    return float(means.mean() - half), float(means.mean() + half)
