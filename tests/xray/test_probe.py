"""Probes against a plain scikit-learn pipeline, and splits that leak nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lmassay.xray.probe import (
    TFIDF_C,
    TFIDF_TOKEN,
    held_out,
    logistic,
    majority,
    nested,
    predicted,
    shuffled_labels,
    single_split,
    split_by_template,
    standardised,
    tfidf,
)

N = 40
Y = np.arange(N) % 20 // 10
TEMPLATES = [f"t{i % 20}" for i in range(N)]


def _states(seed, d=12, strength=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, d)) * np.linspace(0.1, 30, d) + strength * np.outer(Y, rng.normal(size=d))


def _plain(c=1.0):
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, tol=1e-8, max_iter=10000))


def _words():
    rng = np.random.default_rng(0)
    words = ["x", "y", "7", "plus", "implies", "not", "="]
    return [" ".join(rng.choice(words[y : y + 6], 6)) for y in Y]


@pytest.mark.parametrize("d", [5, 12, 200])
def test_a_fit_is_scikit_learns(d):
    states = _states(1, d)
    train = np.arange(N) % 3 > 0
    x, held = standardised(states)(train, ~train)
    labels = np.stack([Y, *np.random.default_rng(2).integers(0, 2, (3, N))])
    weights, intercepts = logistic(x, labels[:, train], 1.0)
    for row, y in enumerate(labels):
        plain = _plain().fit(states[train], y[train])
        np.testing.assert_allclose(
            held @ weights[:, row] + intercepts[row], plain.decision_function(states[~train]), atol=0.02
        )


def test_labels_fitted_together_are_fitted_each_on_its_own():
    x = np.random.default_rng(0).normal(size=(30, 50))
    labels = np.random.default_rng(1).integers(0, 2, (4, 30))
    together = logistic(x, labels)[0]
    for row in range(4):
        np.testing.assert_allclose(together[:, row], logistic(x, labels[[row]])[0][:, 0], atol=2e-3)


def test_a_training_fold_of_one_class_predicts_it():
    states = _states(3)
    train = np.arange(N) < 30
    ones = np.ones((1, N), np.int64)
    assert (predicted(standardised(states), ones, train, ~train) == 1).all()
    assert (predicted(standardised(states), 0 * ones, train, ~train) == 0).all()


def test_a_dimension_that_does_not_vary_in_training_says_nothing():
    states = _states(4)
    states[:, 3] = 0.1
    train = np.arange(N) % 4 > 0
    moved = states.copy()
    moved[~train, 3] = 1e6
    here, there = (predicted(standardised(s), Y[None], train, ~train) for s in (states, moved))
    assert (here == there).all()


@pytest.mark.parametrize("kind", ["states", "words"])
def test_held_out_rows_move_no_fitted_parameter(kind):
    """I-69: a scaler or vocabulary fitted before the split."""
    train = np.arange(N) % 4 > 0
    if kind == "states":
        here = _states(5)
        there = here.copy()
        there[~train] = 1e6
        make = standardised
    else:
        here = _words()
        there = [w if t else "quite other words" for w, t in zip(here, train, strict=True)]
        make = tfidf
    fits = [logistic(make(rows)(train, ~train)[0], Y[None, train]) for rows in (here, there)]
    assert (fits[0][0] == fits[1][0]).all()
    assert fits[0][1] == fits[1][1]


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 99),
    st.lists(st.integers(1, 5), min_size=3, max_size=9),
    st.lists(st.integers(1, 5), min_size=3, max_size=9),
)
def test_templates_stay_whole_and_both_classes_are_in_every_fold(seed, zeros, ones):
    sizes = [*zeros, *ones]
    templates = [f"t{k}" for k, size in enumerate(sizes) for _ in range(size)]
    y = np.array([int(k >= len(zeros)) for k, size in enumerate(sizes) for _ in range(size)])
    fold = split_by_template(y, templates, seed)
    assert set(fold) == set(range(min(5, len(zeros), len(ones))))
    for t in set(templates):
        assert len({f for f, name in zip(fold, templates, strict=True) if name == t}) == 1
    for f in set(fold):
        assert set(y[fold == f]) == {0, 1}


def test_the_seed_deals_other_folds():
    assert any((split_by_template(Y, TEMPLATES, 0) != split_by_template(Y, TEMPLATES, s)).any() for s in range(1, 5))


@pytest.mark.parametrize(
    ("y", "templates", "reason"),
    [
        ([0, 0, 0], ["a", "b", "c"], "one class"),
        ([0, 0, 0, 1, 1, 1], ["a", "b", "c", "d", "d", "e"], "a class has under 3 templates"),
        ([0, 1, 1, 1], ["a", "a", "a", "a"], "a class has under 3 templates"),
    ],
)
def test_a_split_that_cannot_be_had_says_why(y, templates, reason):
    assert split_by_template(np.array(y), templates, 0) == reason


def test_shuffled_labels_keep_templates_whole_and_as_many_of_each_class():
    drawn = shuffled_labels(Y, TEMPLATES, np.random.default_rng(0), 30)
    for labels in drawn:
        by_template = {t: {int(v) for v, name in zip(labels, TEMPLATES, strict=True) if name == t} for t in TEMPLATES}
        assert all(len(v) == 1 for v in by_template.values())
        assert sum(next(iter(v)) for v in by_template.values()) == 10
    assert len({tuple(row) for row in drawn.tolist()}) > 20


def test_cross_validation_is_the_plain_pipelines():
    states = _states(6, strength=0.6)
    fold = split_by_template(Y, TEMPLATES, 0)
    found = held_out(standardised(states), Y[None], fold)
    for f in range(5):
        rest = fold != f
        plain = _plain().fit(states[rest], Y[rest])
        assert (found.right[0, ~rest] == (plain.predict(states[~rest]) == Y[~rest])).all()
        hits = 0
        for g in range(5):
            if g != f:
                seen = rest & (fold != g)
                hits += (_plain().fit(states[seen], Y[seen]).predict(states[fold == g]) == Y[fold == g]).sum()
        assert found.inner[0, f] == pytest.approx(hits / rest.sum())


def test_the_choice_for_a_fold_is_the_one_a_plain_nested_loop_makes():
    fold = split_by_template(Y, TEMPLATES, 1)
    depths = [_states(s, strength=strength) for s, strength in ((7, 0.0), (8, 0.5), (9, 0.7), (10, 0.1))]
    right, choice = nested([held_out(standardised(s), Y[None], fold) for s in depths], fold)
    for f in range(5):
        accuracy = []
        for states in depths:
            hits = [
                _plain().fit(states[seen], Y[seen]).predict(states[fold == g]) == Y[fold == g]
                for g in range(5)
                if g != f and (seen := (fold != f) & (fold != g)).any()
            ]
            accuracy.append(np.concatenate(hits).mean())
        best = int(np.argmax(accuracy))
        rest = fold != f
        plain = _plain().fit(depths[best][rest], Y[rest]).predict(depths[best][~rest]) == Y[~rest]
        assert set(choice[0, ~rest]) == {best}
        assert (right[0, ~rest] == plain).all()


def test_the_choice_for_a_fold_does_not_see_that_fold():
    fold = split_by_template(Y, TEMPLATES, 2)
    depths = [_states(s, strength=0.5) for s in range(4)]
    turned = Y.copy()
    turned[fold == 0] = 1 - turned[fold == 0]
    choices = [
        nested([held_out(standardised(s), y[None], fold) for s in depths], fold)[1][0, fold == 0] for y in (Y, turned)
    ]
    assert (choices[0] == choices[1]).all()


def test_tfidf_is_the_plain_pipelines_with_its_strength_chosen_inside():
    prompts = np.array(_words(), dtype=object)
    fold = split_by_template(Y, TEMPLATES, 3)
    right, choice = nested([held_out(tfidf(prompts), Y[None], fold, c) for c in TFIDF_C], fold)
    for f in range(5):
        rest = fold != f
        c = TFIDF_C[choice[0, ~rest][0]]
        plain = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), token_pattern=TFIDF_TOKEN),
            LogisticRegression(C=c, tol=1e-8, max_iter=10000),
        ).fit(prompts[rest], Y[rest])
        assert (right[0, ~rest] == (plain.predict(prompts[~rest]) == Y[~rest])).all()


def test_single_letters_digits_and_signs_are_words():
    train = np.array([True, True, False])
    x, held = tfidf(["x = 7", "y = 7", "x + 8"])(train, ~train)
    assert x.shape == (2, 7)
    assert (held > 0).sum() == 1


def test_the_larger_class_is_that_of_the_training_folds():
    y, fold = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 0, 1, 1, 1])
    # Outside fold 0 ones are the more, outside fold 1 zeros are.
    assert majority(y, fold).tolist() == [False, False, True, True, False, False, False]


def test_the_single_split_is_thirty_in_a_hundred_of_each_class_and_needs_two_of_each():
    test = single_split(Y, 0)
    assert [int(test[c == Y].sum()) for c in (0, 1)] == [6, 6]
    assert single_split(np.array([0, 0, 0, 1]), 0) is None


def test_shuffled_labels_are_not_predicted_on_templates_held_out():
    states = np.repeat(np.random.default_rng(0).normal(size=(20, 30)), 2, 0)[
        np.argsort(np.arange(N) % 2, kind="stable")
    ]
    fold = split_by_template(Y, TEMPLATES, 0)
    drawn = shuffled_labels(Y, TEMPLATES, np.random.default_rng(1), 30)
    assert held_out(standardised(states), drawn, fold).right.mean() < 0.55
    # With a template's tasks on both sides of the split any labels are read off.
    mixed = np.arange(N) // 20
    train = mixed == 0
    assert (predicted(standardised(states), drawn, train, ~train) == drawn[:, ~train]).mean() == 1
