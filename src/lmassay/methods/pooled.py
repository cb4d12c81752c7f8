"""Probes on one pooled state an example: the block and the pooling chosen on validation rows, a linear direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.measures.classification import auroc
from lmassay.methods.activations import Activations, asked_of, given, keys_of
from lmassay.methods.contributions import Contributions
from lmassay.methods.heads import standardised
from lmassay.methods.method import BINARY, Examples, Floats, Groups, Labels, Validation
from lmassay.methods.probe import Probe, check_finite, not_fitted, one_example, training_rows

_ROUNDING = 1e-7


@dataclass(frozen=True)
class Direction:
    """A linear head on standardised states.

    Attributes
    ----------
    weights : (width,) float64
    intercept : float
    choices : dict
        What was chosen on the way, such as C; JSON-ready.
    by_folds : float or None
        A figure of it on held-out folds of the training rows, higher is better; None where there is none.
    """

    weights: Floats
    intercept: float
    choices: dict[str, Any]
    by_folds: float | None = None


class PooledProbe(Probe):
    """Base of probes that standardise one pooled state and take a direction.

    Parameters
    ----------
    kind : {"binary", "regression"}
    blocks, poolings : sequence, optional
        Those to choose from. Default: all that the activations have.
    """

    chooses_on_validation = True

    def __init__(
        self, kind: str = BINARY, blocks: tuple[int, ...] | None = None, poolings: tuple[str, ...] | None = None
    ) -> None:
        super().__init__(kind)
        self.blocks = _tupled(blocks)
        self.poolings = _tupled(poolings)

    def direction(self, features: Floats, y: Labels, groups: Groups) -> Direction:
        """(n, width) standardised training states, labels and questions -> a direction."""
        raise NotImplementedError

    def chooses(self) -> bool:
        """See `Method.chooses`: one block and one pooling leave no choice, and the threshold gets all the rows."""
        return len(self._places()) > 1

    def _places(self) -> list[tuple[int, str]]:
        store = given(self)
        blocks = asked_of(store.blocks, self.blocks, "block", store)
        poolings = asked_of(store.poolings, self.poolings, "pooling", store)
        return [(b, p) for b in blocks for p in poolings]

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`. Every block and pooling is read once; of equals the first is taken; nothing is random."""
        store, places = given(self), self._places()
        keys, y, groups, left_out = training_rows(self, store, X, y, groups)
        held = keys_of(validation.X)
        tried = []
        for block, pooling in places:
            states = store.pooled(np.concatenate([keys, held]), block, pooling)
            check_finite(states[: len(keys)], keys, f"block {block}")
            tried.append(self._cell(states, y, groups, validation.y, (block, pooling)))
        on, best = _best(tried)
        self._block, self._pooling = best.place
        self._mean, self._scale = best.mean, best.scale
        self._head = best.head
        self.choices = {
            "reader": store.model,
            "block": self._block,
            "pooling": self._pooling,
            "chosen_on": on,
            **best.head.choices,
            "n_train": len(y),
            "n_train_without_activations": left_out,
            "grid": {f"{c.place[0]}.{c.place[1]}": c.summary for c in tried},
        }

    def _cell(self, states: NDArray[np.float32], y: Labels, groups: Groups, held_y: Labels, place: Any) -> _Cell:
        train = states[: len(y)].astype(np.float64)
        mean, scale = train.mean(0), train.std(0)
        # A component that is the same in every row differs from its mean by rounding only.
        scale[scale <= _ROUNDING * np.abs(mean)] = 0.0
        head = self.direction(standardised(train, mean, scale), y, groups)
        score = standardised(states[len(y) :].astype(np.float64), mean, scale) @ head.weights + head.intercept
        return _Cell(place, mean, scale, head, _figure(self.kind, held_y, score))

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        if not hasattr(self, "_head"):
            raise not_fitted(self)
        if not len(X):
            return np.zeros(0)
        states = given(self).pooled(keys_of(X), self._block, self._pooling).astype(np.float64)
        found = self._projected(states) + self._head.intercept
        found[~np.isfinite(states).all(1)] = np.nan
        return found

    def _projected(self, states: Floats) -> Floats:
        # A product a row: a matrix product adds up in another order for another number of rows.
        rows = standardised(states, self._mean, self._scale)
        found: Floats = np.einsum("ij,j->i", np.where(np.isfinite(rows), rows, 0.0), self._head.weights)
        return found

    def contributions(self, example: VisibleExample) -> Contributions:
        """See `Contributing`: shares of the score for mean and max pooling, projections for the last token's state."""
        if not hasattr(self, "_head"):
            raise not_fitted(self)
        store = given(self)
        one_example(self, store, example)
        score = float(self.score([example])[0])
        states = self._token_states(store, example.key)
        rows = standardised(states, self._mean, self._scale)
        if self._pooling == "mean":
            what, values = "share of the score", rows @ self._head.weights / len(rows)
        elif self._pooling == "max":
            # Each component's share goes to the token that has its maximum, the first of equals.
            what, values = "share of the score: of the components whose maximum the token has", np.zeros(len(rows))
            top = rows.argmax(0)
            np.add.at(values, top, self._head.weights * rows[top, np.arange(rows.shape[1])])
        else:
            what = "projection on the probe's direction; the score is that of the last token"
            return Contributions(rows @ self._head.weights, score, None, what)
        return Contributions(values, score, self._head.intercept, what)

    def _token_states(self, store: Activations, key: int) -> Floats:
        if self._block not in store.token_blocks:
            kept = ", ".join(map(str, store.token_blocks)) or "none"
            raise LmassayError(
                "bad-request",
                f"single tokens' states of block {self._block} were not kept (kept: {kept})",
                f"extract with --token-blocks {self._block} to see what each token contributed",
            )
        return store.states(key, self._block).astype(np.float64)

    def learnt(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Probe.learnt`."""
        if not hasattr(self, "_head"):
            raise not_fitted(self)
        values = {
            "block": self._block,
            "pooling": self._pooling,
            "intercept": self._head.intercept,
            "head": self._head.choices,
        }
        return values, {"mean": self._mean, "scale": self._scale, "weights": self._head.weights}

    def take_up(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """See `Probe.take_up`."""
        self._block, self._pooling = int(values["block"]), str(values["pooling"])
        self._mean, self._scale = arrays["mean"], arrays["scale"]
        self._head = Direction(arrays["weights"], float(values["intercept"]), values["head"])


@dataclass(frozen=True)
class _Cell:
    """A block and a pooling, fitted."""

    place: tuple[int, str]
    mean: Floats
    scale: Floats
    head: Direction
    on_validation: float | None

    @property
    def summary(self) -> dict[str, Any]:
        found = {"validation": self.on_validation, "folds": self.head.by_folds}
        return {name: round(value, 6) for name, value in found.items() if value is not None}


def _figure(kind: str, y: Labels, score: Floats) -> float | None:
    """AUROC, or the negative mean squared error, of the rows that have a score; None where undefined."""
    rows = np.isfinite(score) & np.isfinite(y)
    if not rows.any():
        return None
    if kind == BINARY:
        return auroc(y[rows], score[rows]).value
    return -float(((y[rows] - score[rows]) ** 2).mean())


def _best(tried: Sequence[_Cell]) -> tuple[str, _Cell]:
    """What the choice was made on, and the first of the best cells."""
    on_validation = [(c.on_validation, c) for c in tried if c.on_validation is not None]
    if len(tried) == 1:
        return "nothing: there is no other", tried[0]
    if on_validation:
        return "validation", max(on_validation, key=lambda pair: pair[0])[1]
    by_folds = [(c.head.by_folds, c) for c in tried if c.head.by_folds is not None]
    if by_folds:
        return "folds of the training rows (validation has no figure)", max(by_folds, key=lambda pair: pair[0])[1]
    return "nothing: no figure is defined, so the first is taken", tried[0]


def _tupled(value: Any) -> Any:
    return value if value is None else tuple(value) if isinstance(value, tuple | list) else (value,)
