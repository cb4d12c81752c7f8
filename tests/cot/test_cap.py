"""Fewer training rows: whole questions, balanced, nested, and nothing else changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_cot import made_data

from lmassay.cot.cap import capped
from lmassay.errors import LmassayError


def keys(data, split="train"):
    return data[split].examples.keys.tolist()


@pytest.fixture(scope="module")
def data():
    return made_data(n=400, n_questions=60)


def with_train(data, *, y=None, groups=None, status=None):
    train = data["train"]
    changed = {k: v for k, v in {"y": y, "groups": groups, "status": status}.items() if v is not None}
    return replace(data, splits={**data.splits, "train": replace(train, **changed)})


@settings(deadline=None, max_examples=40)
@given(st.integers(20, 420), st.integers(20, 420), st.integers(0, 5))
def test_a_smaller_cap_s_rows_are_among_those_of_a_larger_one(one, other, seed):
    small, large = sorted((one, other))
    data = made_data(n=400, n_questions=60)
    few, many = capped(data, small, seed)["train"], capped(data, large, seed)["train"]
    assert len(few) <= small
    assert len(many) <= large
    assert set(few.examples.keys.tolist()) <= set(many.examples.keys.tolist())


def test_questions_stay_whole_and_rows_in_their_order(data):
    kept = capped(data, 150)["train"]
    whole = data["train"]
    inside = np.isin(whole.groups, np.unique(kept.groups))
    assert kept.examples.keys.tolist() == whole.examples.keys[inside].tolist()
    assert kept.hidden["example_id"].to_list() == whole.hidden["example_id"].filter(inside).to_list()
    assert [x.text("cot") for x in kept.examples] == [
        x.text("cot") for x, i in zip(whole.examples, inside, strict=True) if i
    ]
    assert (kept.y == whole.y[inside]).all()


def test_the_next_question_would_not_have_fitted(data):
    kept = capped(data, 150)["train"]
    sizes = np.unique(data["train"].groups, return_counts=True)[1]
    assert 150 - sizes.max() < len(kept) <= 150


def test_classes_are_balanced_to_within_a_question_where_most_questions_are_positive(data):
    """40 questions of positives, 20 of negatives: taken as they come, two thirds would be positive."""
    groups = data["train"].groups
    y = (groups % 3 != 0).astype(np.float64)
    skewed = with_train(data, y=y)
    kept = capped(skewed, 200)["train"]
    ahead = abs(int((2 * kept.y - 1).sum()))
    assert ahead <= np.unique(groups, return_counts=True)[1].max()
    assert abs(y.mean() - 0.5) > 0.1


def test_where_one_class_runs_out_the_other_goes_on(data):
    few = (np.isin(data["train"].groups, np.unique(data["train"].groups)[:3])).astype(np.float64)
    kept = capped(with_train(data, y=few), 300)["train"]
    assert len(kept) > 250
    assert kept.y.sum() == few.sum()


def test_only_the_training_rows_change_and_it_is_said(data):
    found = capped(data, 100)
    for name in ("validation", "test", "ood_test"):
        assert found[name] is data[name]
    assert found.fingerprint not in (data.fingerprint, capped(data, 101).fingerprint, capped(data, 100, 1).fingerprint)
    assert (found.train_cap, found.uncapped) == (100, data.fingerprint)
    n, questions = len(found["train"]), len(np.unique(found["train"].groups))
    assert found.notes[-1] == f"trained on {n} of 400 rows, {questions} of 60 questions (train_cap=100, seed 0)"


def test_a_cap_that_lets_all_through_changes_no_row(data):
    found = capped(data, 400)
    assert found["train"] is data["train"]
    assert (found.fingerprint, found.notes, found.train_cap) == (data.fingerprint, data.notes, 400)


def test_another_seed_takes_other_questions(data):
    assert set(keys(capped(data, 100))) != set(keys(capped(data, 100, 1)))
    assert keys(capped(data, 100)) == keys(capped(data, 100))


def test_rows_without_a_label_count_and_stand_for_no_class(data):
    train = data["train"]
    status = train.status.astype("<U32").copy()
    status[::2] = "empty_cot"
    y = train.y.copy()
    y[::2] = np.nan
    kept = capped(with_train(data, y=y, status=status), 120)["train"]
    assert 0 < len(kept) <= 120
    assert np.isnan(kept.y).sum() == (~kept.usable).sum() > 0


def test_regression_rows_are_taken_as_the_hash_has_them():
    data = made_data("regression", n=200, n_questions=40)
    assert 80 < len(capped(data, 100)["train"]) <= 100


@pytest.mark.parametrize(
    ("cap", "said"),
    [(0, "a cap of 0 training rows"), (-3, "a cap of -3"), (1, "the first question alone has more than 1 rows")],
)
def test_a_cap_that_keeps_nothing_is_refused(data, cap, said):
    with pytest.raises(LmassayError, match=said):
        capped(data, cap)


def test_data_is_capped_once(data):
    with pytest.raises(LmassayError, match="capped before"):
        capped(capped(data, 100), 50)


def test_data_without_training_rows_is_refused(data):
    alone = replace(data, splits={"test": data["test"]})
    with pytest.raises(LmassayError, match="no training rows"):
        capped(alone, 10)
