"""How many clusters, and how many units in each, an effect of a given size needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

ALPHA, POWER = 0.05, 0.8
#: More clusters than this are not looked for.
MOST = 100_000


@dataclass(frozen=True, slots=True)
class Components:
    """Variance of one figure between and within clusters.

    Attributes
    ----------
    between, within : float
        Method-of-moments estimates; a negative one for `between` is taken as 0.
    n_clusters, n : int
        What they were estimated from.
    """

    between: float
    within: float
    n_clusters: int
    n: int

    def standard_error(self, clusters: int, each: int) -> float:
        """Of the mean over `clusters` clusters with `each` units."""
        return float(np.sqrt(self.between / clusters + self.within / (clusters * each)))


def variance_components(values: ArrayLike, clusters: Sequence[str]) -> Components | None:
    """One-way random effects for clusters of any sizes (Searle, Casella and McCulloch, *Variance Components*, 1992).

    None with under two clusters, or where no cluster has two units: then the two variances cannot be told apart.
    """
    x = np.asarray(values, np.float64)
    names, of = np.unique(np.asarray(clusters, np.str_), return_inverse=True)
    k, n = len(names), len(x)
    if k < 2 or n == k:
        return None
    sizes = np.bincount(of)
    means = np.bincount(of, x) / sizes
    within = float(((x - means[of]) ** 2).sum() / (n - k))
    among = float((sizes * (means - x.mean()) ** 2).sum() / (k - 1))
    typical = (n - (sizes**2).sum() / n) / (k - 1)
    return Components(max(0.0, (among - within) / float(typical)), within, k, n)


def power_of(components: Components, effect: float, clusters: int, each: int, *, alpha: float = ALPHA) -> float:
    """Chance that a two-sided t-test on cluster means finds a true mean of `effect` (noncentral t)."""
    from scipy.special import nctdtr, stdtrit

    if clusters < 2:
        return 0.0
    error = components.standard_error(clusters, each)
    if error == 0:
        return 1.0 if effect else alpha
    freedom = clusters - 1
    critical = float(stdtrit(freedom, 1 - alpha / 2))
    shift = abs(effect) / error
    # Tails come out as NaN only where they are nothing.
    below, far = np.nan_to_num(nctdtr(freedom, shift, critical)), np.nan_to_num(nctdtr(freedom, shift, -critical))
    return float(1 - below + far)


def clusters_needed(
    components: Components, effect: float, each: int, *, power: float = POWER, alpha: float = ALPHA
) -> int | None:
    """Fewest clusters of `each` units that reach the power; None where 100,000 do not."""
    if power_of(components, effect, MOST, each, alpha=alpha) < power:
        return None
    low, high = 2, MOST
    while low < high:
        middle = (low + high) // 2
        if power_of(components, effect, middle, each, alpha=alpha) >= power:
            high = middle
        else:
            low = middle + 1
    return low
