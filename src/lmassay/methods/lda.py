"""Linear discriminant analysis as a probe: the mean difference with the states' covariance taken out."""

from __future__ import annotations

import numpy as np

from lmassay.methods.method import BINARY, Floats, Groups, Labels
from lmassay.methods.pooled import Direction, PooledProbe
from lmassay.methods.registry import method


@method
class Lda(PooledProbe):
    """Scikit-learn's, covariance shrunk after Ledoit and Wolf, both classes equally likely."""

    id = "lda"
    title = "linear discriminant analysis"
    kinds = (BINARY,)

    def direction(self, features: Floats, y: Labels, groups: Groups) -> Direction:
        """See `PooledProbe.direction`."""
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=[0.5, 0.5])
        model.fit(features, y.astype(np.int64))
        return Direction(np.asarray(model.coef_[0], np.float64), float(model.intercept_[0]), {})
