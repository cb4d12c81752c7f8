"""Mutual information of two discrete variables: plug-in, corrected for its bias, and under a permutation null."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmassay.measures.intervals import Resampling, percentile_interval

#: Bins of a numeric feature.
BINS = 4
NULL_DRAWS = 10_000

Codes = NDArray[np.int64]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def codes(values: ArrayLike) -> Codes:
    """(n,) values of any kind -> (n,) their numbers from 0, in sorted order."""
    return np.unique(np.asarray(values), return_inverse=True)[1].astype(np.int64)


def quartile_bins(values: ArrayLike) -> Codes:
    """(n,) numbers -> (n,) bins between quartiles, upper edge included, equal edges merged.

    A feature of at most four values keeps each as a bin of its own: quartile edges would put the rarer half of a
    yes-or-no feature in with the other, and all that it says would be lost.
    """
    array = np.asarray(values, np.float64)
    if len(np.unique(array)) <= BINS:
        return codes(array)
    edges = np.unique(np.quantile(array, np.arange(1, BINS) / BINS))
    return codes(np.searchsorted(edges, array, side="left"))


def contingency(first: Codes, second: Codes) -> Counts:
    """(n,) and (n,) codes -> (n_first, n_second) how often each pair occurs."""
    n = int(second.max()) + 1
    return np.bincount(first * n + second, minlength=(int(first.max()) + 1) * n).reshape(-1, n)


def plug_in(table: ArrayLike) -> Floats:
    """Mutual information of each (..., n_first, n_second) table of counts or shares, in nats.

    Biased upwards, by about (n_first - 1)(n_second - 1)/2n: features with more bins rank higher.
    """
    joint = np.asarray(table, np.float64)
    joint = joint / joint.sum((-2, -1), keepdims=True)
    apart = joint.sum(-1, keepdims=True) * joint.sum(-2, keepdims=True)
    # A cell that never occurs adds nothing; elsewhere both margins are above zero.
    ratio = np.divide(joint, apart, out=np.ones_like(joint), where=joint > 0)
    return np.asarray((joint * np.log(ratio)).sum((-2, -1)))


def miller_madow(table: Counts) -> float:
    """The plug-in with each entropy's bias taken off, in nats; may be below zero.

    Each entropy gains (occupied cells - 1)/2n (Miller, 1955).
    """
    occupied = int((table.sum(1) > 0).sum()) + int((table.sum(0) > 0).sum()) - int((table > 0).sum())
    return float(plug_in(table)) + (occupied - 1) / (2 * int(table.sum()))


def permutation_null(table: Counts, rng: np.random.Generator, *, draws: int = NULL_DRAWS) -> Floats:
    """(draws,) plug-in values when a yes-or-no target is dealt anew over the rows.

    Parameters
    ----------
    table : (n_first, 2) int
        Only its margins matter: dealt anew, the bins' shares of the target are multivariate hypergeometric.
    """
    sizes = table.sum(1)
    yes = rng.multivariate_hypergeometric(sizes, int(table[:, 1].sum()), size=draws)
    return plug_in(np.stack([sizes - yes, yes], axis=-1))


def permutation_p(observed: float, null: Floats) -> float:
    """One-sided (1 + #{null >= observed})/(draws + 1)."""
    return (1 + int((null >= observed - 1e-12).sum())) / (len(null) + 1)


def interval(first: Codes, second: Codes, centre: float, resampling: Resampling) -> tuple[float, float]:
    """95 % bounds around `centre`, by the spread of the plug-in over resampled clusters.

    A resample's own mean is left out: resampled rows repeat, which adds the plug-in's bias once more.

    Parameters
    ----------
    first, second : (n,) int
        Rows in the order of the resampling's, which has at least three clusters.
    """
    cells: list[Any] = [
        [resampling.means((first == i) & (second == j)) for j in range(int(second.max()) + 1)]
        for i in range(int(first.max()) + 1)
    ]
    drawn = plug_in(np.moveaxis(np.array(cells), -1, 0))
    low, high = percentile_interval(drawn - drawn.mean())
    return centre + low, centre + high
