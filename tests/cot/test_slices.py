"""Fewer scored rows: balanced, spread over questions, nested, said, and only ever compared with the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_cot import made_data

from lmassay.cot.cap import capped
from lmassay.cot.evaluate import evaluate
from lmassay.cot.leaderboard import leaderboard
from lmassay.cot.slices import sliced
from lmassay.errors import LmassayError

SCORED = ("validation", "test", "ood_test")


@pytest.fixture(scope="module")
def data():
    return made_data()


def keys(data, split):
    return set(data[split].examples.keys.tolist())


def test_a_slice_is_balanced_spread_over_questions_and_part_of_a_larger_one(data):
    small, large = sliced(data, 10), sliced(data, 30)
    for name in SCORED:
        few = small[name]
        assert (few.y == 1).sum() == 5
        assert len(np.unique(few.groups)) >= 5
        assert keys(small, name) <= keys(large, name) <= keys(data, name)
    assert small["train"] is data["train"]
    assert len({small.fingerprint, large.fingerprint, data.fingerprint, sliced(data, 10, seed=1).fingerprint}) == 4


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 130), st.integers(1, 130), st.integers(0, 3))
def test_the_smaller_of_two_slices_is_within_the_larger(one, other, seed):
    data = made_data()
    small, large = (sliced(data, limit, seed) for limit in sorted((one, other)))
    for name in SCORED:
        assert keys(small, name) <= keys(large, name)
        assert len(small[name]) == min(one, other, 120)


def test_a_question_is_returned_to_only_when_every_question_of_the_class_has_a_row(data):
    few = sliced(data, 16)["test"]
    for label in (0, 1):
        n = len(np.unique(data["test"].groups[data["test"].y == label]))
        counts = np.unique(few.groups[few.y == label], return_counts=True)[1]
        assert counts.max() == 1 or len(counts) == n


def test_a_slice_of_more_than_there_is_has_every_usable_row():
    data = made_data(n=20)
    data["test"].status[:3] = "unlabelled"
    data["test"].y[:3] = np.nan
    assert len(sliced(data, 1000)["test"]) == 17
    assert len(sliced(data, 1000)["validation"]) == 20


def test_what_was_left_out_is_counted_by_split(data):
    few = sliced(data, 20)
    n = {name: (len(np.unique(few[name].groups)), len(np.unique(data[name].groups))) for name in SCORED}
    counted = "; ".join(f"{name} 20 of 120 rows, {n[name][0]} of {n[name][1]} questions" for name in SCORED)
    said = "at most 20 rows of validation and of each test split (test_cap=20, seed 0): "
    assert few.notes[-1] == said + counted


@pytest.mark.parametrize("limit", [0, -1])
def test_a_slice_of_nothing_is_refused(data, limit):
    with pytest.raises(LmassayError, match=f"a limit of {limit} rows"):
        sliced(data, limit)


def test_data_is_sliced_once(data):
    with pytest.raises(LmassayError, match="capped before"):
        sliced(sliced(data, 20), 10)


def test_both_caps_in_either_order_leave_the_same_rows_under_one_name(data):
    one, other = capped(sliced(data, 20), 60), sliced(capped(data, 60), 20)
    for name in ("train", *SCORED):
        assert one[name].examples.keys.tolist() == other[name].examples.keys.tolist()
    assert one.uncapped == other.uncapped == sliced(data, 20).fingerprint
    assert one.whole == other.whole == data.fingerprint


def test_a_run_on_a_slice_says_so_and_scores_those_rows_alone(data):
    ran = evaluate(data, "tfidf", test_cap=40)
    assert ran.document["identity"]["settings"] == {"seed": 0, "test_cap": 40}
    assert ran.document["identity"]["task"]["sha256"] == sliced(data, 40).fingerprint
    assert any("test_cap=40" in notice for notice in ran.document["notices"])
    whole = evaluate(data, "tfidf").predictions.filter(split="test", method_id="tfidf")
    mine = ran.predictions.filter(split="test", method_id="tfidf")
    assert mine.height == 40
    # The method is the same, and so is its score of each row.
    both = mine.join(whole, on="example_id", suffix="_whole")
    assert both["score"].to_numpy() == pytest.approx(both["score_whole"].to_numpy(), abs=1e-12)


def test_a_slice_stands_beside_runs_on_the_same_rows_only(data):
    few, fewer = evaluate(data, "tfidf", test_cap=40), evaluate(data, "tfidf", train_cap=60, test_cap=40)
    rows = {row.label: row.kind for row in leaderboard([few, fewer]).rows}
    assert {label for label, kind in rows.items() if kind == "method"} == {
        "tfidf (test_cap=40)",
        "tfidf (train_cap=60, test_cap=40)",
    }
    assert "length (train_cap=60, test_cap=40)" in rows
    for other in (evaluate(data, "length"), evaluate(data, "length", test_cap=30)):
        with pytest.raises(LmassayError, match="differ in data"):
            leaderboard([few, other])
