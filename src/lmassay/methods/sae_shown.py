"""What a feature of a fitted head is about: the training examples, and their tokens, where it is largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.methods.activations import Activations

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]

#: Training examples kept for each feature.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Where a feature is large.

    Attributes
    ----------
    key : int
        Of a training example.
    token : int
        Its kept token at which the feature is largest.
    token_id : int
        The reader's id of that token.
    value : float
    """

    key: int
    token: int
    token_id: int
    value: float


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of a fitted head.

    Attributes
    ----------
    index : int
        In the autoencoder.
    weight : float
        Change of the score with one standard deviation of the pooled feature.
    difference : float
        Mean in the positives less that in the negatives of the training rows; regression: the covariance.
    occurrences : tuple of Occurrence
        Training examples where the pooled feature is largest, largest first.
    """

    index: int
    weight: float
    difference: float
    occurrences: tuple[Occurrence, ...]


def largest_examples(rows: csr_array[Any], keys: NDArray[np.int64]) -> list[list[int]]:
    """(n, k) pooled features of examples (n,) -> for each feature the keys where it is largest, of equals the lower."""
    columns = rows.tocsc()
    found = []
    for at in range(columns.shape[1]):
        part = slice(columns.indptr[at], columns.indptr[at + 1])
        here = keys[columns.indices[part]]
        order = np.lexsort((here, -columns.data[part]))
        # A key that stands twice among the rows is one example.
        found.append(list(dict.fromkeys(here[order].tolist()))[:SHOWN])
    return found


def occurrence(values: Floats, key: int, store: Activations) -> Occurrence:
    """(n_tokens,) values of a feature at an example's tokens -> the first token where it is largest."""
    token = int(values.argmax())
    return Occurrence(key, token, int(store.token_ids(key)[token]), float(values[token]))
