"""Stability over wordings, against a plain loop."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made import task

from lmassay.evidence import judged
from lmassay.xray.paraphrase import group_stability, stability_evidence


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


# ---- the answer's overlap against the wrong options'


def _asked(winners, *, group="g", n_options=3, order=None):
    """Wordings in which option `winners[k][d]` wins at depth d (the last is final); option 0 is the answer."""
    found = []
    for k, row in enumerate(winners):
        score = np.zeros((n_options, len(row)))
        score[list(row), range(len(row))] = 1
        places = list(order[k] if order else range(n_options))
        found.append(
            task(
                score[places],
                answer=places.index(0),
                name=f"{group}/{k}",
                template=group,
                variant="paraphrase",
                options=[f"option {i}" for i in places],
            )
        )
    return found


def _plain_overlap(winners, option):
    """Mean pairwise Jaccard of the internal depths `option` wins, and whether it wins at all."""
    sets = [{d for d, winner in enumerate(row[:-1]) if winner == option} for row in winners]
    pairs = [len(a & b) / len(a | b) if a | b else 1.0 for a, b in combinations(sets, 2)]
    return sum(pairs) / len(pairs), any(sets)


@settings(deadline=None)
@given(arrays(np.int64, st.tuples(st.integers(2, 4), st.just(5)), elements=st.integers(0, 2)), st.randoms())
def test_wrong_options_are_measured_as_the_answer_is_whatever_their_order(rows, random):
    winners = rows.tolist()
    order = [random.sample(range(3), 3) for _ in winners]
    (found,) = group_stability(_asked(winners, order=order), repeats_final=False)
    wrong = [_plain_overlap(winners, option) for option in (1, 2)]
    counted = [value for value, wins in wrong if wins]
    if counted:
        assert float(found.jaccard_wrong) == pytest.approx(sum(counted) / len(counted))
    else:
        assert found.jaccard_wrong is None


def _evidence(*groups, seed=0):
    tasks = [t for g, winners in enumerate(groups) for t in _asked(winners, group=f"g{g:02d}")]
    (row,) = judged([stability_evidence(group_stability(tasks, repeats_final=False), seed)])
    return row


STEADY, WANDERING = [[0, 1, 2, 0], [0, 2, 1, 0]], [[0, 1, 1, 0], [1, 0, 1, 0]]


def test_an_answer_that_stays_while_the_wrong_options_move_survives():
    row = _evidence(*[STEADY] * 12)
    assert (row.signal, row.control, row.metric) == ("jaccard_strict", "wrong options", "rate")
    assert (row.signal_value, row.control_value, row.n, row.n_clusters) == (1, 0, 12, 12)
    assert row.verdict == "survives"


def test_an_answer_no_steadier_than_a_wrong_option_does_not_survive():
    row = _evidence(*[WANDERING] * 12)
    assert (row.signal_value, row.control_value) == (0, pytest.approx(1 / 3))
    assert row.verdict == "fails"


def test_a_group_whose_answer_never_wins_counts_on_neither_side():
    row = _evidence(*[STEADY] * 11, [[1, 1, 1, 0], [1, 1, 1, 0]])
    assert (row.signal_value, row.control_value, row.n) == (1, 0, 11)


def test_a_group_in_which_no_wrong_option_wins_counts_for_the_answer_alone():
    row = _evidence(*[WANDERING] * 11, [[0, 0, 0, 0]] * 2)
    assert row.signal_value == pytest.approx(1 / 12)
    assert row.control_value == pytest.approx(1 / 3)
    assert (row.n, row.n_clusters) == (12, 11)
    assert row.low is not None


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ([], "phase not run"),
        ([STEADY[:1]], "no group has two wordings that can be decided"),
        ([[[1, 1, 0], [2, 2, 0]]], "no group has a win"),
        ([[[0, 0, 1], [0, 0, 2]]] * 12, "no wrong option wins where the answer does"),
    ],
)
def test_what_cannot_be_compared_is_undecided_by_name(groups, reason):
    row = _evidence(*groups)
    assert (row.difference, row.verdict) == (None, f"undecided ({reason})")


def test_eight_groups_are_too_few_to_decide():
    row = _evidence(*[STEADY] * 8)
    assert row.verdict == "undecided (few_clusters)"
    assert row.low is not None
