"""The linear probe: logistic or ridge regression on one pooled state of a reader model."""

from __future__ import annotations

from lmassay.methods.heads import LinearHead
from lmassay.methods.method import BINARY, Floats, Groups, Labels
from lmassay.methods.pooled import Direction, PooledProbe
from lmassay.methods.registry import method

#: Of logistic regression's C. A state has hundreds of components, so the useful ones are smaller than for words.
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
#: Of ridge regression's alpha.
ALPHAS = (1.0, 10.0, 1e2, 1e3, 1e4, 1e5)


@method
class Linear(PooledProbe):
    """Standardised on the training rows; C (alpha) by folds grouped by question; classes weighted alike."""

    id = "linear"
    title = "linear probe"

    def direction(self, features: Floats, y: Labels, groups: Groups) -> Direction:
        """See `PooledProbe.direction`."""
        head = LinearHead(self.kind, STRENGTHS if self.kind == BINARY else ALPHAS)
        head.fit(features, y, groups)
        choices = dict(head.choices)
        figures = choices.pop("fold_auroc" if self.kind == BINARY else "fold_negative_mse", {})
        return Direction(head.weights, head.intercept, choices, max(figures.values(), default=None))
