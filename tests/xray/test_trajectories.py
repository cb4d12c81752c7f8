"""Wins and what becomes of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made import task

from lmassay.xray.trajectories import leads, trajectory_class, wins_of


@given(arrays(np.float64, st.tuples(st.integers(2, 5), st.integers(2, 6)), elements=st.floats(-9, 9, width=16)))
def test_lead_is_the_distance_to_the_best_other_option(score):
    found = leads(score)
    for option in range(score.shape[0]):
        for depth in range(score.shape[1]):
            others = [score[o, depth] for o in range(score.shape[0]) if o != option]
            assert found[option, depth] == score[option, depth] - max(others)


def _wins(score, **kw):
    return wins_of(task(score), repeats_final=True, **kw)


def test_tie_is_no_win():
    assert not _wins([[1.0, 1.0, 2.0], [1.0, 1.0, 1.0]]).at[:, 0].any()


@pytest.mark.parametrize(("lead", "won"), [(1e-4 - 1e-9, False), (1.1e-4, True), (0.0, False)])
def test_a_win_needs_more_than_the_numeric_agreement(lead, won):
    assert _wins([[lead, 0.0, 0.0], [0.0, 0.0, 0.0]]).at[0, 0] == won


def test_small_leads_are_counted_as_near_ties():
    assert _wins([[5e-4, 1.0, 2e-3], [0.0, 0.0, 0.0]]).near_ties == 1


def test_final_is_no_internal_win_and_the_last_block_no_strict_one():
    wins = _wins([[0, 0, 1, 1], [1, 1, 0, 0]])
    assert wins.internal.tolist() == [True, True]
    assert wins.internal_strict.tolist() == [False, True]
    assert wins.counts.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0, 0, 0, 0], "never_known"),
        ([0, 1, 0, 0], "known_then_lost"),
        ([1, 0, 1, 1], "known_and_kept"),
        ([0, 0, 0, 1], "only_final"),
    ],
)
def test_trajectory_class(row, expected):
    wins = wins_of(task([row, [1 - w for w in row]]), repeats_final=False)
    assert trajectory_class(wins, 0) == expected


@pytest.mark.parametrize(
    ("row", "stable"),
    [([1, 1, 0, 0, 0], True), ([1, 0, 1, 0, 0], False), ([0, 0, 1, 1, 0], False), ([0, 0, 1, 0, 1], True)],
)
def test_a_stable_span_counts_distinct_depths_only(row, stable):
    """The last block repeats final, so it neither makes a span nor breaks one."""
    assert _wins([row, [0] * 5]).stable(2)[0] == stable


def test_final_accuracy_goes_by_the_normalised_score_and_raw_stands_beside():
    one = task([[0.0, 0.0], [1.0, 1.0]])
    normalised = type(one)(
        **{f: getattr(one, f) for f in one.__slots__ if f != "neutral"}, neutral=np.array([[0, 0], [2, 2.0]])
    )
    wins = wins_of(normalised, repeats_final=False)
    assert wins.final.tolist() == [True, False]
    assert wins.raw_final.tolist() == [False, True]
