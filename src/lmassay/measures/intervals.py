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
NO_INTERVAL = f"no interval: needs {FEWEST} clusters"
_CHUNK = 250

Floats = NDArray[np.float64]
#: Least and greatest value a figure can have.
Range = tuple[float, float]
SHARE: Range = (0.0, 1.0)
#: Of the difference of two shares.
CHANGE: Range = (-1.0, 1.0)
#: Of the difference of two changes, or of two cosines.
CHANGES: Range = (-2.0, 2.0)


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


class Resampling:
    """Bootstrap resamples of whole clusters and, within them, of whole sets; drawn once, applied to any figure.

    Parameters
    ----------
    clusters : (n,) str
        For instance templates.
    sets : (n,) str, optional
        Smaller groups inside the clusters that are resampled in turn; without them a drawn cluster is kept whole.
    """

    def __init__(
        self,
        clusters: Sequence[str],
        rng: np.random.Generator,
        *,
        sets: Sequence[str] | None = None,
        draws: int = DRAWS,
    ) -> None:
        names, self._cluster_of = np.unique(np.asarray(clusters, np.str_), return_inverse=True)
        n = self.n_clusters = len(names)
        self._group_of = self._cluster_of if sets is None else _pair_codes(self._cluster_of, sets)
        self._sizes = np.bincount(self._group_of)
        if n < FEWEST:
            self._times = np.zeros((0, len(self._sizes)), np.uint16)
            return
        times = rng.multinomial(n, np.full(n, 1 / n), size=draws)
        if sets is not None:
            owner = np.zeros(len(self._sizes), np.int64)
            owner[self._group_of] = self._cluster_of
            # A cluster drawn m times contributes m times its number of sets, each drawn anew.
            inside = [rng.multinomial(times[:, c] * g, np.full(g, 1 / g)) for c, g in enumerate(np.bincount(owner))]
            times = np.concatenate(inside, axis=1)
        # Counts average one, and there are draws x groups of them.
        self._times = times.astype(np.uint16)

    def means(self, values: ArrayLike) -> Floats:
        """(n,) values -> (draws,) resampled means; no draws under three clusters."""
        sums = np.bincount(self._group_of, np.asarray(values, np.float64))
        found = np.empty(len(self._times))
        for start in range(0, len(found), _CHUNK):
            times = self._times[start : start + _CHUNK].astype(np.float64)
            found[start : start + _CHUNK] = (times @ sums) / (times @ self._sizes)
        return found

    def n_clusters_of(self, there: ArrayLike) -> int:
        """Clusters with at least one of the (n,) units that are `there`."""
        return len(np.unique(self._cluster_of[np.asarray(there, np.bool_)]))

    def cluster_means(self, values: ArrayLike) -> Floats:
        """(n,) values -> (n_clusters,) means, clusters in the order of their names."""
        sums = np.bincount(self._cluster_of, np.asarray(values, np.float64))
        return np.asarray(sums / np.bincount(self._cluster_of))


def _pair_codes(cluster_of: NDArray[np.intp], sets: Sequence[str]) -> NDArray[np.intp]:
    """Number the (cluster, set) pairs cluster by cluster: two clusters may use one set name."""
    names, set_of = np.unique(np.asarray(sets, np.str_), return_inverse=True)
    return np.asarray(np.unique(cluster_of * len(names) + set_of, return_inverse=True)[1])


def mean_estimate(values: ArrayLike, resampling: Resampling, *, title: str, within: Range | None = None) -> Estimate:
    """Mean of (n,) `values` with a 95 % interval over clusters.

    Percentile bootstrap from ten clusters on; a t-interval on cluster means from three, cut at the ends of the range
    that `within` states; none below.
    """
    array = np.asarray(values, np.float64)
    if not len(array):
        return undefined(title, "no data")
    low, high, status = interval(array, resampling, within)
    return Estimate(float(array.mean()), low, high, len(array), title, resampling.n_clusters, status)


def interval(
    values: Floats, resampling: Resampling, within: Range | None = None
) -> tuple[float | None, float | None, str]:
    """Bounds of the mean and their status, by the number of clusters."""
    if resampling.n_clusters < FEWEST:
        return None, None, NO_INTERVAL
    if resampling.n_clusters < FEW:
        return *t_interval([resampling.cluster_means(values)], [1.0], within), "few_clusters"
    return *percentile_interval(resampling.means(values)), "ok"


def percentile_interval(draws: Floats) -> tuple[float, float]:
    """The central 95 % of bootstrap draws."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def t_interval(strata: Sequence[Floats], weights: Sequence[float], within: Range | None = None) -> tuple[float, float]:
    """Student's t for a weighted sum of the strata's means, cut at the ends of the range it can be in.

    One stratum of weight 1 is the plain t-interval; for several the degrees of freedom are Welch and Satterthwaite's.

    Parameters
    ----------
    strata : sequence of (n_clusters,) float64
        Cluster means, at least two per stratum.
    """
    from scipy.special import stdtrit

    centre = sum(w * float(s.mean()) for w, s in zip(weights, strata, strict=True))
    parts = np.array([w**2 * s.var(ddof=1) / len(s) for w, s in zip(weights, strata, strict=True)])
    variance = float(parts.sum())
    if variance == 0:
        return centre, centre
    freedom = variance**2 / sum(float(p) ** 2 / (len(s) - 1) for p, s in zip(parts, strata, strict=True))
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * variance**0.5
    least, greatest = within or (-np.inf, np.inf)
    return max(centre - half, least), min(centre + half, greatest)
