"""The difference of the two classes' mean states as a probe: a cheap control that fits no more than two means."""

from __future__ import annotations

from lmassay.methods.method import BINARY, Floats, Groups, Labels
from lmassay.methods.pooled import Direction, PooledProbe
from lmassay.methods.registry import method


@method
class MeanDifference(PooledProbe):
    """The projection on the line between the classes' means, 0 half-way."""

    id = "mean_difference"
    title = "difference of class means"
    kinds = (BINARY,)

    def direction(self, features: Floats, y: Labels, groups: Groups) -> Direction:
        """See `PooledProbe.direction`."""
        positive, negative = features[y == 1].mean(0), features[y != 1].mean(0)
        weights = positive - negative
        return Direction(weights, -float(weights @ (positive + negative)) / 2, {})
