"""Linear heads: logistic regression and ridge, their strength chosen by folds that never part a question."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.measures.classification import auroc
from lmassay.methods.method import BINARY, check_training
from lmassay.methods.ngrams import on_all_cores

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
FOLDS = 5
#: Taken where there are too few questions to choose.
DEFAULT = 1.0
_ITERATIONS = 1000


@dataclass
class LinearHead:
    """Logistic regression (classes weighted alike) or ridge regression on given features.

    Logistic regression's C is the one of `STRENGTHS` with the best mean AUROC over five folds grouped by question, of
    equals the smaller; ridge's alpha the one with the least mean squared error, of equals the larger.

    Attributes
    ----------
    kind : {"binary", "regression"}
    strengths : tuple of float
        One alone is taken as it is.
    choices : dict
        ``C`` or ``alpha``, and the mean figure of each over the folds.
    """

    kind: str
    strengths: tuple[float, ...] = STRENGTHS
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    intercept: float = 0.0
    choices: dict[str, Any] = field(default_factory=dict)

    def fit(self, features: Any, y: Floats, groups: NDArray[np.int64]) -> None:
        """(n, d) features, dense or sparse rows; (n,) labels; (n,) questions.

        Raises
        ------
        LmassayError
            ``bad-request`` for no rows or one class.
        """
        check_training(y, self.kind)
        if not features.shape[1]:
            # Texts without a word: what is left is the base rate, the same for every example.
            self.weights = np.zeros(0)
            self.intercept = 0.0 if self.kind == BINARY else float(y.mean())
            self.choices = {}
            return
        figures = self._by_folds(features, y, groups) if len(self.strengths) > 1 else {}
        best = max(figures.values(), default=None)
        # Binary: the smaller C of equals; regression: the larger alpha. Both are the stronger regularisation.
        order = self.strengths if self.kind == BINARY else self.strengths[::-1]
        chosen = next((s for s in order if best is not None and figures.get(s) == best), None)
        if chosen is None:
            chosen = self.strengths[0] if len(self.strengths) == 1 else DEFAULT
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            self.weights, self.intercept = _fitted(self.kind, features, y, chosen)
        self.choices = {"C" if self.kind == BINARY else "alpha": chosen}
        if figures:
            name = "fold_auroc" if self.kind == BINARY else "fold_negative_mse"
            self.choices[name] = {str(s): round(v, 6) for s, v in figures.items()}

    def score(self, features: Any) -> Floats:
        """(n, d) features -> (n,) log-odds of the positive class, or predicted targets."""
        return np.asarray(features @ self.weights, np.float64) + self.intercept

    def _by_folds(self, features: Any, y: Floats, groups: NDArray[np.int64]) -> dict[float, float]:
        from sklearn.model_selection import GroupKFold
        from threadpoolctl import threadpool_limits

        n_folds = min(FOLDS, len(np.unique(groups)))
        if n_folds < 2:
            return {}
        folds = [_Fold(features, *pair) for pair in GroupKFold(n_folds).split(y, groups=groups)]
        # Fold by fold, the slow ones first: two cores end together and hold two copies of the rows at most.
        jobs = [(fold, strength) for fold in folds for strength in sorted(self.strengths, reverse=True)]

        def figure(job: tuple[_Fold, float]) -> float | None:
            fold, strength = job
            try:
                if self.kind == BINARY and len(np.unique(y[fold.train])) < 2:
                    return None
                weights, intercept = _fitted(self.kind, fold.rows(), y[fold.train], strength)
                guess = np.asarray(features[fold.held] @ weights) + intercept
                if self.kind == BINARY:
                    return auroc(y[fold.held], guess).value
                return -float(((y[fold.held] - guess) ** 2).mean())
            finally:
                fold.done(len(self.strengths))

        found: dict[float, list[float]] = {}
        # One fit a core: more threads inside each would only wait for each other.
        with threadpool_limits(1):
            for (_, strength), value in zip(jobs, on_all_cores(figure, jobs), strict=True):
                if value is not None:
                    found.setdefault(strength, []).append(value)
        return {s: float(np.mean(found[s])) for s in self.strengths if s in found}


class _Fold:
    """Training rows of one fold, copied when first needed and dropped after the last use."""

    def __init__(self, features: Any, train: NDArray[np.intp], held: NDArray[np.intp]) -> None:
        self.train, self.held = train, held
        self._features = features
        self._rows: Any = None
        self._uses = 0
        self._lock = threading.Lock()

    def rows(self) -> Any:
        with self._lock:
            if self._rows is None:
                self._rows = self._features[self.train]
            return self._rows

    def done(self, uses: int) -> None:
        with self._lock:
            self._uses += 1
            if self._uses == uses:
                self._rows = None


def _fitted(kind: str, features: Any, y: Floats, strength: float) -> tuple[Floats, float]:
    from sklearn.linear_model import LogisticRegression, Ridge

    if kind == BINARY:
        model = LogisticRegression(C=strength, class_weight="balanced", max_iter=_ITERATIONS)
        model.fit(features, y.astype(np.int64))
        return np.asarray(model.coef_[0], np.float64), float(model.intercept_[0])
    ridge = Ridge(alpha=strength)
    ridge.fit(features, y)
    return np.asarray(ridge.coef_, np.float64), float(ridge.intercept_)


def standardised(features: Floats, mean: Floats, scale: Floats) -> Floats:
    """(n, d) features measured in standard deviations of the training rows; a constant column becomes 0."""
    return (features - mean) / np.where(scale > 0, scale, 1.0)


def sparse_rows(blocks: list[csr_array[Any]]) -> csr_array[Any]:
    """Feature blocks side by side, in rows."""
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack(blocks, format="csr"))
