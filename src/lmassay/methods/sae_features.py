"""Features of a sparse autoencoder, pooled over an example's tokens and kept as sparse rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmassay.methods.activations import Activations
from lmassay.methods.method import BINARY
from lmassay.methods.probe import check_finite
from lmassay.models.saes.autoencoder import SparseAutoencoder

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]

MAX, MEAN = "max", "mean"
POOLINGS = (MAX, MEAN)


def finite_states(store: Activations, key: int, block: int) -> NDArray[np.float32]:
    """(n_tokens, width) states of an example; no rows where it has none, or one of them is no number."""
    states = np.asarray(store.states(key, block), np.float32)
    return states if np.isfinite(states).all() else states[:0]


def pooled_rows(
    sae: SparseAutoencoder,
    store: Activations,
    keys: NDArray[np.int64],
    block: int,
    poolings: Sequence[str],
    keep: int,
    *,
    finite: bool = False,
) -> tuple[dict[str, csr_array[Any]], NDArray[np.bool_]]:
    """Pool each example's features; every example is read once and encoded alone.

    Parameters
    ----------
    keep : int
        Largest values kept of an example and pooling; the smaller ones count as 0.
    finite : bool
        Whether states that are no numbers are an error; else their example counts as one without states.

    Returns
    -------
    rows : dict of str to (n, n_features) csr_array of float32
        By pooling.
    there : (n,) bool
        Whether an example has states; the rows of the others are empty.

    Raises
    ------
    LmassayError
        ``bad-request``, see `finite`.
    """
    from scipy.sparse import csr_array

    parts: dict[str, list[tuple[NDArray[np.float32], NDArray[np.int32]]]] = {pooling: [] for pooling in poolings}
    there = np.zeros(len(keys), np.bool_)
    none = np.zeros(0, np.float32), np.zeros(0, np.int32)
    for at, key in enumerate(keys.tolist()):
        states = finite_states(store, key, block)
        there[at] = len(states) > 0
        if finite and not there[at]:
            check_finite(store.states(key, block)[None], keys[at : at + 1], f"block {block}")
        pooled = pooled_features(sae, states) if there[at] else {}
        for pooling, held in parts.items():
            held.append(largest(pooled[pooling], keep) if there[at] else none)
    rows = {}
    for pooling, held in parts.items():
        ends = np.cumsum([0, *(len(values) for values, _ in held)])
        values = np.concatenate([v for v, _ in held]) if held else none[0]
        columns = np.concatenate([c for _, c in held]) if held else none[1]
        rows[pooling] = csr_array((values, columns, ends), shape=(len(keys), sae.n_features))
    return rows, there


def pooled_features(sae: SparseAutoencoder, states: NDArray[np.float32]) -> dict[str, Tensor]:
    """(n_tokens, width) states, at least one -> (n_features,) largest and mean value of each feature."""
    most = torch.zeros(sae.n_features)
    total = torch.zeros(sae.n_features, dtype=torch.float64)
    for _, features in sae.encoded(states):
        torch.maximum(most, features.amax(0), out=most)
        total += features.sum(0, dtype=torch.float64)
    return {MAX: most, MEAN: (total / len(states)).float()}


def largest(pooled: Tensor, keep: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The `keep` largest values above 0 of (n_features,), with their places, in the order of the places."""
    there = pooled.nonzero()[:, 0]
    if len(there) > keep:
        there = pooled.topk(keep).indices.sort().values
    return pooled[there].numpy().astype(np.float32), there.numpy().astype(np.int32)


def class_difference(rows: csr_array[Any], y: Floats, kind: str) -> Floats:
    """(n_features,) mean of each feature in the positives less that in the negatives; regression: its covariance.

    Parameters
    ----------
    rows : (n, n_features) csr_array
    """
    if kind == BINARY:
        weight = np.where(y == 1, 1 / max(1, int((y == 1).sum())), -1 / max(1, int((y != 1).sum())))
    else:
        weight = (y - y.mean()) / len(y)
    return np.asarray(rows.T @ weight, np.float64)


def ranked_features(difference: Floats) -> NDArray[np.int64]:
    """Features by size of their difference, largest first, of equals the lower number; those without any left out."""
    order = np.argsort(-np.abs(difference), kind="stable")
    found: NDArray[np.int64] = order[difference[order] != 0]
    return found


def dense(rows: csr_array[Any], features: NDArray[np.int64]) -> Floats:
    """(n, k) the columns of some features."""
    return np.asarray(rows[:, features].todense(), np.float64).reshape(rows.shape[0], len(features))
