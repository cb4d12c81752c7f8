"""The audit's AUROCs against scikit-learn, its draws against a plain loop, its correction by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

from lmassay.cot.audit.figures import (
    ALPHA,
    Pairs,
    Side,
    Strength,
    between,
    holm,
    ordered_pairs,
    strength,
    together,
    within,
)


def made(seed, n=60, k=7, n_values=9):
    rng = np.random.default_rng(seed)
    y, score, code = rng.integers(0, 2, n), rng.integers(0, n_values, n).astype(float), rng.integers(0, k, n)
    y[:2] = 0, 1
    times = rng.multinomial(k, np.full(k, 1 / k), size=20).astype(float)
    sides = [Side(score[y == c], code[y == c], k) for c in (1, 0)]
    return y, score, code, times, sides


@pytest.mark.parametrize("n_values", [3, 9, 1000])
def test_the_auroc_is_scikit_learn_s_whatever_the_number_of_values(n_values):
    y, score, _, times, (positive, negative) = made(3, n_values=n_values)
    assert between(positive, negative, (times, times)).value == pytest.approx(roc_auc_score(y, score), abs=1e-12)


@pytest.mark.parametrize("n_values", [3, 9, 1000])
def test_a_draw_is_the_auroc_of_the_rows_it_repeats(n_values):
    y, score, code, times, (positive, negative) = made(4, n_values=n_values)
    draws = between(positive, negative, (times, times)).draws
    for drawn, value in zip(times, draws, strict=True):
        rows = np.concatenate([np.repeat(np.flatnonzero(code == q), int(drawn[q])) for q in range(7)])
        if len(set(y[rows])) == 2:
            assert value == pytest.approx(roc_auc_score(y[rows], score[rows]), abs=1e-12)
        else:
            assert np.isnan(value)


def test_both_ways_to_count_pairs_agree():
    *_, (positive, negative) = made(5, n_values=4)
    few = between(positive, negative, (np.eye(7), np.eye(7)))
    assert few.ordered == pytest.approx(ordered_pairs(positive, negative).sum())
    assert few.ordered_draws == pytest.approx(np.diagonal(ordered_pairs(positive, negative)))


def test_ordered_pairs_are_those_of_a_double_loop_in_any_number_of_pieces(monkeypatch):
    *_, (positive, negative) = made(6, n_values=30)
    expected = np.zeros((7, 7))
    for s, c in zip(positive.score, positive.code, strict=True):
        for r, d in zip(negative.score, negative.code, strict=True):
            expected[c, d] += 1.0 if s > r else 0.5 if s == r else 0.0
    assert ordered_pairs(positive, negative) == pytest.approx(expected)
    monkeypatch.setattr("lmassay.cot.audit.figures._CELLS", 14)
    assert ordered_pairs(positive, negative) == pytest.approx(expected)


def test_within_counts_pairs_of_one_question_only():
    y, score, code, times, (positive, negative) = made(7)
    inside = within(positive, negative, times)
    mixed = [q for q in range(7) if len(set(y[code == q])) == 2]
    pairs = {q: (y[code == q] == 1).sum() * (y[code == q] == 0).sum() for q in mixed}
    expected = sum(roc_auc_score(y[code == q], score[code == q]) * pairs[q] for q in mixed) / sum(pairs.values())
    assert inside.value == pytest.approx(expected)
    assert inside.k == len(mixed)


def test_a_split_of_fewer_draws_lends_as_many_to_the_whole():
    rng = np.random.default_rng(0)
    few, many = (Pairs(3.0, 6.0, rng.random(n), np.full(n, 6.0), 5, 2) for n in (7, 10))
    both = together([few, many])
    assert both.value == 0.5
    assert both.ordered_draws == pytest.approx(few.ordered_draws + many.ordered_draws[:7])
    assert both.draws == pytest.approx(both.ordered_draws / 12)


def test_splits_together_add_up_their_own_pairs():
    one, other = (between(*made(s)[4], (made(s)[3],) * 2) for s in (8, 9))
    both = together([one, other])
    assert both.value == pytest.approx((one.ordered + other.ordered) / (one.pairs + other.pairs))
    assert both.k == one.k + other.k


@given(st.integers(0, 10_000))
def test_turning_the_score_round_turns_the_auroc_and_leaves_the_strength(seed):
    _, _, _, times, (positive, negative) = made(seed, n=30)
    turned = [Side(-s.score, s.code, s.k) for s in (positive, negative)]
    here, there = between(positive, negative, (times, times)), between(*turned, (times, times))
    assert here.value + there.value == pytest.approx(1)
    a, b = strength(here, one_sided=False), strength(there, one_sided=False)
    assert (a.value, a.error, a.k) == pytest.approx((b.value, b.error, b.k))


def test_p_is_student_s_on_the_logit_scale():
    s = Strength(0.8, 0.04, 25, 2)
    logit = np.log(0.8 / 0.2) - np.log(0.55 / 0.45)
    assert s.p(0.55) == pytest.approx(2 * student.sf(logit * 0.8 * 0.2 / 0.04, 24))
    assert Strength(0.8, 0.04, 25, 1).p(0.55) == pytest.approx(s.p(0.55) / 2)
    assert s.p(0.81) == 1


def test_the_bound_is_the_null_that_is_just_rejected():
    for s in (Strength(0.8, 0.04, 25, 2), Strength(0.7, 0.1, 12, 1), Strength(1.0, 0.0, 12, 2)):
        assert s.p(s.low(0.01)) == pytest.approx(0.01)


def test_a_perfect_order_of_few_questions_proves_nothing():
    assert Strength(1.0, 0.0, 4, 2).low(ALPHA / 500) < 0.5
    assert Strength(1.0, 0.0, 40, 2).low(ALPHA / 500) > 0.7
    assert Strength(1.0, 0.0, 2, 2).p(0.55) == 1
    assert Strength(0.9, 0.0, 20, 2).p(0.55) == 1


def test_holm_stops_at_the_first_test_that_fails():
    p = [0.001, 0.04, 0.02, 0.9]
    assert [round(c.p, 10) for c in holm(p, 0.55)] == [0.004, 0.08, 0.06, 0.9]


@given(st.lists(st.floats(0.5, 0.99), min_size=1, max_size=8), st.floats(0.01, 0.2))
def test_a_bound_passes_the_null_if_and_only_if_the_corrected_test_rejects_it(values, error):
    tests = [Strength(v, error, 30, 2) for v in values]
    for corrected in holm(tests, 0.6):
        if abs(corrected.p - ALPHA) > 1e-9:
            assert (corrected.low > 0.6) == (corrected.p < ALPHA)
