"""The conformance suite passes our own methods and catches each kind of fault."""

from __future__ import annotations

import numpy as np
import pytest

from lmassay.errors import LmassayError
from lmassay.methods.method import Method, check_training
from lmassay.methods.registry import BUILT_IN, load_method
from lmassay.testing import check_method

#: A small grid and few passes hold to it no less than large ones.
OPTIONS = {
    "linear": {"blocks": (1,), "poolings": ("mean", "last")},
    "attention": {"epochs": 3, "seeds": 2},
    "lda": {"blocks": (0, 1)},
}


# `sae` needs a sparse autoencoder's file: methods/test_sae_method.py.
@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "sae"])
def test_our_own_methods_hold_to_the_contract(name):
    held = check_method(name, options=OPTIONS.get(name))
    assert len(held) >= 12
    probe = load_method(name).sees == "activations"
    assert any(check.startswith("examples_without_activations_abstain") for check in held) == probe


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


class ScoresNothing(Good):
    """A probe that counts tokens, so that an example without any gets a 0."""

    sees = "activations"

    def score(self, X):
        return self.activations.lengths(np.array([x.key for x in X], np.int64)).astype(np.float64)


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
        (ScoresNothing, "examples_without_activations_abstain"),
        (ScoresNothing, "none_with_activations_is_refused"),
    ],
)
def test_a_fault_is_caught_by_name(cls, check):
    with pytest.raises(AssertionError, match=check):
        check_method(cls)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(LmassayError, match=r"did you mean tfidf"):
        check_method("tfid")


class Weighed(Good):
    def __init__(self, kind="binary", weight=0.0):
        super().__init__(kind)
        assert weight == 2.5


def test_options_reach_the_constructor():
    assert len(check_method(Weighed, options={"weight": 2.5})) == 24
    with pytest.raises(AssertionError):
        check_method(Weighed)
