"""Linear heads on some of an autoencoder's pooled features, and what they are compared by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.measures.classification import auroc
from lmassay.methods.heads import LinearHead, standardised
from lmassay.methods.method import BINARY, Floats, Groups, Labels
from lmassay.methods.sae_features import class_difference, dense, ranked_features

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class SaeHead:
    """A head on some features of one autoencoder, pooled in one way.

    Attributes
    ----------
    place : int
        Of the autoencoder among those given.
    features : (k,) int64
    difference, mean, scale : (k,) float64
        Between classes, and of the pooled features of the training rows.
    """

    place: int
    pooling: str
    features: NDArray[np.int64]
    difference: Floats
    mean: Floats
    scale: Floats
    head: LinearHead

    def score(self, values: Floats) -> Floats:
        """(n, k) pooled features -> (n,) scores."""
        return self.head.score(standardised(values, self.mean, self.scale))

    @property
    def slope(self) -> Floats:
        """(k,) change of the score with each pooled feature."""
        return np.where(self.scale > 0, self.head.weights / np.where(self.scale > 0, self.scale, 1.0), 0.0)

    @property
    def order(self) -> NDArray[np.intp]:
        """(k,) features from the largest weight to the smallest."""
        return np.argsort(-np.abs(self.head.weights), kind="stable")


def candidate_heads(
    place: int,
    pooling: str,
    rows: csr_array[Any],
    y: Labels,
    groups: Groups,
    kind: str,
    counts: Sequence[int],
) -> Iterator[SaeHead]:
    """One for each number of features, fitted on (n, n_features) pooled training rows."""
    difference = class_difference(rows, y, kind)
    ranked = ranked_features(difference)
    for count in sorted({min(k, len(ranked)) for k in counts}):
        features = ranked[:count]
        values = dense(rows, features)
        mean, scale = values.mean(0), values.std(0)
        head = LinearHead(kind)
        head.fit(standardised(values, mean, scale), y, groups)
        yield SaeHead(place, pooling, features, difference[features], mean, scale, head)


def figure(kind: str, y: Labels, guess: Floats) -> float | None:
    """AUROC, or the negative mean squared error; None where it is undefined."""
    if kind == BINARY:
        return auroc(y, guess).value
    return -float(((y - guess) ** 2).mean()) if len(y) else None
