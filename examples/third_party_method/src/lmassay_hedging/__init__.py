"""How often a chain of thought hedges, with the direction learnt from the training rows."""

import re

import numpy as np

from lmassay.methods.method import Method, check_training

HEDGES = re.compile(r"\b(?:wait|hmm|maybe|perhaps|actually|not sure|alternatively)\b", re.IGNORECASE)


class Hedging(Method):
    """Hedges per hundred words."""

    id = "hedging"
    title = "hedges per hundred words"
    needs = (("cot",), ("message",))

    def fit(self, X, y, groups, validation, seed):
        """Fit a line through rate and label: its slope says which way hedging points."""
        check_training(y, self.kind)
        rate = _rates(X)
        spread = rate.var()
        self._slope = float(((rate - rate.mean()) * (y - y.mean())).mean() / spread) if spread else 0.0
        self._level = float(y.mean() - self._slope * rate.mean())
        self.choices = {"slope": self._slope}

    def score(self, X):
        """Predicted label."""
        return self._level + self._slope * _rates(X)


def _rates(examples):
    found = []
    for example in examples:
        text = example.text("cot") or example.text("message")
        found.append(100 * len(HEDGES.findall(text)) / max(1, len(text.split())))
    return np.array(found, np.float64)
