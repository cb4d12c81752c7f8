"""Stability over wordings, against a plain loop."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made import task

from lmassay.xray.paraphrase import group_stability


def _wording(won, k=0, *, group="g", flags=()):
    """A wording whose answer wins at these depths (the last is final)."""
    score = np.array([won, [1 - w for w in won]], float)
    return task(score, name=f"{group}/{k}", template=group, variant="paraphrase", flags=flags)


def _measure(*rows):
    (found,) = group_stability([_wording(r, k) for k, r in enumerate(rows)], repeats_final=False)
    return found


@settings(deadline=None)
@given(arrays(np.int64, st.tuples(st.integers(2, 5), st.just(5)), elements=st.integers(0, 1)))
def test_mean_pairwise_jaccard_of_won_internal_depths(rows):
    found = _measure(*rows.tolist())
    total, pairs = 0.0, 0
    for i in range(len(rows)):
        for j in range(i):
            a, b = ({d for d in range(4) if row[d]} for row in (rows[i], rows[j]))
            total += len(a & b) / len(a | b) if a | b else 1.0
            pairs += 1
    assert float(found.jaccard) == pytest.approx(total / pairs)
    assert found.any_win == bool(rows[:, :4].any())
    assert found.win_rate == pytest.approx(np.mean(rows[:, :4].any(1)))
    assert found.final_accuracy == pytest.approx(np.mean(rows[:, 4]))


def test_a_dead_group_has_one_and_says_that_it_never_wins():
    found = _measure([0, 0, 1], [0, 0, 0])
    assert (found.jaccard, found.any_win) == (1, False)


def test_the_mean_is_exact():
    assert _measure([1, 0, 0], [1, 1, 0], [0, 1, 0]).jaccard == Fraction(1, 3)


def test_wordings_that_cannot_be_decided_are_counted_and_a_group_of_them_stays_in_the_table():
    shared = "undecidable: shared first token"
    broken = _wording([0.0, float("nan"), 0.0], 2, group="h")
    groups = group_stability(
        [
            _wording([1, 0, 0], 0), _wording([1, 0, 0], 1), _wording([0, 1, 0], 2, flags=[shared]),
            _wording([1, 0, 0], 0, group="h", flags=[shared]), broken,
        ],
        repeats_final=False,
    )  # fmt: skip
    assert [(g.group, g.jaccard, g.n_wordings, g.n_undecided) for g in groups] == [("g", 1, 2, 1), ("h", None, 0, 2)]
    assert (groups[1].win_rate, groups[1].final_accuracy) == (None, None)


def test_a_single_wording_has_no_overlap():
    assert _measure([1, 0, 0]).jaccard is None
