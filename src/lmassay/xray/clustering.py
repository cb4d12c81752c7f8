"""Cosines of residuals: pairs of wordings, pairs of tasks within and between families, and their controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.xray.scored import Floats, Ints

#: A vector shorter than this share of the typical residual is rounding, and has no direction.
NO_DIRECTION = 1e-5


def directions(states: Floats, centre: Floats | None = None) -> Floats:
    """(n, d_model) unit vectors of the states, or of what is left without `centre` (d_model,).

    NaN where nothing is left: a state equal to the centre up to rounding has no direction.
    """
    size = float(np.sqrt((states**2).sum(1).mean()))
    left = states if centre is None else states - centre
    length = np.sqrt((left**2).sum(1, keepdims=True))
    return np.asarray(np.divide(left, length, out=np.full_like(left, np.nan), where=length > NO_DIRECTION * size))


def cosines_of(states: Floats) -> Floats:
    """(n, n) cosines of the states as they are."""
    units = directions(states)
    return np.asarray(units @ units.T)


def centred_cosines(states: Floats) -> Floats:
    """(n, n) cosines of each two states, both less the mean of all the *other* states.

    Two states less a mean that they are part of lean away from each other, by 1 / (n - 1) on average, and two that are
    not do not: what is compared must be centred alike. NaN on the diagonal, under three states, and for a pair of
    which one is that mean up to rounding.
    """
    n = len(states)
    if n < 3:
        return np.full((n, n), np.nan)
    size = float((states**2).sum(1).mean())
    left = states - states.mean(0)
    gram = left @ left.T
    square = np.diagonal(gram)
    # The mean of the others is the mean of all, less (left_i + left_j) / (n - 2).
    b = 1 / (n - 2)
    a = 1 + b
    dots = a * b * (square[:, None] + square[None, :]) + (a**2 + b**2) * gram
    lengths = np.sqrt(np.maximum(a**2 * square[:, None] + b**2 * square[None, :] + 2 * a * b * gram, 0))
    known = lengths > NO_DIRECTION * size**0.5
    known &= known.T
    np.fill_diagonal(known, False)
    return np.asarray(np.divide(dots, lengths * lengths.T, out=np.full((n, n), np.nan), where=known))


def mean_pair(cosines: Floats) -> float:
    """Mean over the pairs of distinct members of an (n, n) matrix of cosines; NaN where no pair has one."""
    pairs = cosines[np.triu_indices(len(cosines), 1)]
    pairs = pairs[np.isfinite(pairs)]
    return float(pairs.mean()) if len(pairs) else float("nan")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Cosines of each task with the others of its family and with those of other families.

    Attributes
    ----------
    within, between : (n,) float64
        Means; NaN without any such task.
    n_within, n_between : (n,) int64
        Tasks the means are over; a pair without a cosine is in no mean.
    """

    within: Floats
    between: Floats
    n_within: Ints
    n_between: Ints


def neighbours(cosines: Floats, families: Sequence[Ints]) -> list[Neighbours]:
    """Means by task of an (n, n) matrix of cosines, for each of several divisions (n,) of the tasks, codes from 0."""
    known = np.isfinite(cosines)
    np.fill_diagonal(known, False)
    values, usable = np.where(known, cosines, 0.0), known.astype(np.float64)
    tasks = np.arange(len(cosines))
    found = []
    for family in families:
        member = np.eye(int(family.max()) + 1)[family]
        sums, counts = values @ member, usable @ member
        within, n_within = sums[tasks, family], counts[tasks, family]
        between, n_between = sums.sum(1) - within, counts.sum(1) - n_within
        found.append(
            Neighbours(
                within=_ratio(within, n_within),
                between=_ratio(between, n_between),
                n_within=n_within.astype(np.int64),
                n_between=n_between.astype(np.int64),
            )
        )
    return found


def _ratio(sums: Floats, counts: Floats) -> Floats:
    return np.asarray(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))


def spread_over_tasks(means: Floats, counts: Ints) -> Floats | None:
    """(n,) values whose mean is the mean over all pairs, and whose spread over tasks is that mean's own.

    Each pair is counted at both its tasks, so that a task moves the mean twice as far as its own mean says: the first
    term of Hoeffding's decomposition (Ann. Math. Stat. 19, 1948). Means of tasks taken as they are would give an
    interval half as wide as it should be. None without any pair.
    """
    total = counts.sum()
    if not total:
        return None
    sums = np.where(counts > 0, np.nan_to_num(means) * counts, 0.0)
    mean = sums.sum() / total
    return np.asarray(mean + 2 * (sums - mean * counts) / (total / len(counts)))


def gap_over_tasks(found: Neighbours) -> Floats | None:
    """(n,) values whose mean is mean within-family minus mean between-family cosine; None where one is undefined."""
    within = spread_over_tasks(found.within, found.n_within)
    between = spread_over_tasks(found.between, found.n_between)
    return None if within is None or between is None else within - between


def ratio_over_tasks(found: Neighbours) -> Floats | None:
    """(n,) values whose mean is mean within-family over mean between-family cosine, linearised.

    None where one is undefined or the mean between families is not positive: a ratio to nothing says nothing.
    """
    within = spread_over_tasks(found.within, found.n_within)
    between = spread_over_tasks(found.between, found.n_between)
    if within is None or between is None or between.mean() <= 0:
        return None
    w, b = within.mean(), between.mean()
    return np.asarray(w / b + (within - w) / b - (between - b) * w / b**2)


def shuffled_families(
    family: Ints, templates: Sequence[str], rng: np.random.Generator, draws: int
) -> list[NDArray[np.int64]]:
    """`draws` relabellings (n,): the families change hands between templates, tasks of one template stay together."""
    units = [f"{f}\x1f{t}" for f, t in zip(family.tolist(), templates, strict=True)]
    _, first, unit_of = np.unique(units, return_index=True, return_inverse=True)
    return [np.asarray(rng.permutation(family[first])[unit_of]) for _ in range(draws)]


def shuffled_gap(cosines: Floats, relabelled: Sequence[Ints]) -> Floats | None:
    """(n,) the mean over relabellings of `gap_over_tasks`; None where none of them has one."""
    gaps = [gap for found in neighbours(cosines, relabelled) if (gap := gap_over_tasks(found)) is not None]
    return np.mean(gaps, axis=0) if gaps else None
