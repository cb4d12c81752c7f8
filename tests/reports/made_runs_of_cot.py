"""Evaluations of methods whose scores are known, on made data: no reader, nothing slow."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np

from lmassay.cot.evaluate import evaluate
from lmassay.methods.method import Method, check_training

sys.path.append(str(Path(__file__).parents[1] / "cot"))
from made_cot import made_data

__all__ = ["Certain", "Constant", "Counts", "evaluated", "made_data"]


class Counts(Method):
    """How often a word stands there, and a little of the length."""

    id = "counts"

    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)

    def score(self, X):
        return np.array([x.text("cot").count("wait") + len(x.text("cot")) / 1e4 for x in X], float)


class Certain(Counts):
    """The same between 0 and 1: a probability that is wrong in size."""

    id = "certain"

    def score(self, X):
        found = super().score(X)
        return 1 / (1 + np.exp(-6 * (found - 0.4)))


class Constant(Counts):
    """The same of everything."""

    id = "constant"

    def score(self, X):
        return np.zeros(len(X))


@cache
def evaluated(method=Counts, kind="binary", *, out=None, **made):
    """A method on made data, in memory or in a folder; the same one once."""
    data = made_data(kind, **{"n": 80, **made})
    return evaluate(data, method, out=out)
