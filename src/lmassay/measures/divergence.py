"""Entropy and Kullback–Leibler divergence of discrete distributions, in nats."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

#: What a probability of 0 is raised to in the published answer KLs.
FLOOR = 1e-10


def entropies(p: ArrayLike) -> Floats:
    """(..., k) probabilities -> (...,) Shannon entropy; a probability of 0 adds nothing. Nothing is normalised."""
    chance = np.asarray(p, np.float64)
    return np.asarray(-(chance * np.log(np.where(chance > 0, chance, 1.0))).sum(-1))


def kls(p: ArrayLike, q: ArrayLike, *, floor: float | None = None) -> Floats:
    """(..., k) and (..., k) probabilities -> (...,) KL(p || q); where p is 0 nothing is added.

    Neither side is normalised, so that figures of truncated distributions can be reproduced.

    Parameters
    ----------
    floor : float, optional
        What q is raised to where it is lower; p is left as it is. Without it a q of 0 under a p above 0 gives infinity.
    """
    first, second = np.broadcast_arrays(np.asarray(p, np.float64), np.asarray(q, np.float64))
    if floor is not None:
        second = np.maximum(second, floor)
    there = first > 0
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(there, first, 1.0)) - np.log(np.where(there, second, 1.0))
    # An infinite difference of logarithms is only ever met with p above 0, so no 0 x infinity arises.
    return np.asarray(np.where(there, first * logs, 0.0).sum(-1))


def floored_mass(p: ArrayLike, q: ArrayLike, *, floor: float = FLOOR) -> Floats:
    """(...,) how much of p lies where q is under the floor: how far the floor decides the KL."""
    first, second = np.asarray(p, np.float64), np.asarray(q, np.float64)
    return np.asarray(np.where(second < floor, first, 0.0).sum(-1))
