"""The conformance suite passes our own methods and catches each kind of fault."""

from __future__ import annotations

import numpy as np
import pytest

from lmassay.errors import LmassayError
from lmassay.methods.method import Method, check_training
from lmassay.methods.registry import BUILT_IN
from lmassay.testing import check_method


@pytest.mark.parametrize("name", BUILT_IN)
def test_our_own_methods_hold_to_the_contract(name):
    assert len(check_method(name)) >= 12


class Good(Method):
    """Counts a letter."""

    id = "good"

    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)

    def score(self, X):
        return np.array([x.text("cot").count("w") for x in X], np.float64)


class WrongLength(Good):
    def score(self, X):
        return np.zeros(len(X) + 1)


class Infinite(Good):
    def score(self, X):
        return np.full(len(X), np.inf)


class SilentlyAbstains(Good):
    def score(self, X):
        return np.full(len(X), np.nan)


class TakesAnything(Good):
    def fit(self, X, y, groups, validation, seed):
        pass


class Batched(Good):
    """Subtracts the batch's mean, as a batch norm left in training mode does."""

    def score(self, X):
        found = super().score(X)
        return found - found.mean() if len(found) else found


class Padded(Good):
    """Divides by the longest text of the batch: padding that counts."""

    def score(self, X):
        return super().score(X) / max((len(x.text("cot")) for x in X), default=1)


class Remembers(Good):
    seen = 0

    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)
        self.seen += 1

    def score(self, X):
        return super().score(X) + self.seen


class WritesIntoLabels(Good):
    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)
        y[:] = 0


class PeeksAtValidation(Good):
    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)
        self.sign = 1 if validation.y[0] > 0.5 else -1

    def score(self, X):
        return self.sign * super().score(X)


class CannotBeKept(Good):
    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)
        self.open = lambda: None


class BreaksOnEmptyText(Good):
    def score(self, X):
        return np.array([float(ord(x.text("cot")[0])) for x in X])


class BadName(Good):
    id = "Bad Name"


def test_a_sound_method_passes():
    assert len(check_method(Good)) == 24


@pytest.mark.parametrize(
    ("cls", "check"),
    [
        (WrongLength, "scores_are_numbers"),
        (Infinite, "scores_are_numbers"),
        (SilentlyAbstains, "scores_are_numbers"),
        (TakesAnything, "one_class_is_refused"),
        (TakesAnything, "no_training_rows_are_refused"),
        (TakesAnything, "labels_that_are_no_numbers_are_refused"),
        (Batched, "rows_do_not_influence_each_other"),
        (Padded, "rows_do_not_influence_each_other"),
        (Remembers, "fitting_again_forgets"),
        (WritesIntoLabels, "inputs_stay_as_they_were"),
        (PeeksAtValidation, "validation_is_for_choosing_only"),
        (CannotBeKept, "kept_and_loaded_scores_the_same"),
        (BreaksOnEmptyText, "odd_texts_are_scored"),
        (BadName, "attributes"),
    ],
)
def test_a_fault_is_caught_by_name(cls, check):
    with pytest.raises(AssertionError, match=check):
        check_method(cls)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(LmassayError, match=r"did you mean tfidf"):
        check_method("tfid")
