"""Controls that read nothing: chance, length, where the text stops, and whether the answer is the one suggested."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from lmassay.examples import VisibleExample
from lmassay.methods.heads import LinearHead, standardised
from lmassay.methods.method import BINARY, Examples, Floats, Groups, Labels, Method, Validation, check_training
from lmassay.methods.registry import method
from lmassay.methods.surface import agrees, length, position, stacked
from lmassay.seeds import derive


@method
class Random(Method):
    """A number by hash of the seed and the example's opaque key; in regression a training target so drawn."""

    id = "random"
    title = "chance"

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`."""
        check_training(y, self.kind)
        self._seed = seed
        self._targets = np.sort(y)

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        drawn = np.array([derive(self._seed, str(x.key), "method:random") / 2**63 for x in X], np.float64)
        if self.kind == BINARY:
            return drawn
        return self._targets[np.minimum((drawn * len(self._targets)).astype(np.int64), len(self._targets) - 1)]


class _Counted(Method):
    """A linear head on a few standardised counts: training rows decide only which way each one points."""

    features: ClassVar[tuple[Callable[[VisibleExample], list[float]], ...]]

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`."""
        check_training(y, self.kind)
        found = stacked(X, *self.features)
        self._mean, self._scale = found.mean(0), found.std(0)
        self._head = LinearHead(self.kind, strengths=(1.0,))
        self._head.fit(standardised(found, self._mean, self._scale), y, groups)
        self.choices = self._head.choices

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        if not len(X):
            return np.zeros(0)
        return self._head.score(standardised(stacked(X, *self.features), self._mean, self._scale))


@method
class Length(_Counted):
    """Log words of the chain of thought."""

    id = "length"
    title = "log words"
    needs = (("cot",), ("message",))
    features = (length,)


@method
class Position(_Counted):
    """Sentences, turns, and whether the text ends in punctuation."""

    id = "position"
    title = "sentences, turns, final punctuation"
    needs = (("cot",), ("message",))
    features = (position,)


@method
class Agreement(Method):
    """Whether the answer is the one that was suggested; nothing is learnt."""

    id = "agreement"
    title = "the answer is the suggested one"
    general = False
    kinds = (BINARY,)
    needs = (("answer", "suggestion"),)
    abstains = "answer or suggestion is not shown"

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`."""
        check_training(y, self.kind)

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        return np.array([agrees(x) for x in X], np.float64)
