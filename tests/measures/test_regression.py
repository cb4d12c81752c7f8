"""Regression scores against scikit-learn, scipy and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import r2_score

from lmassay.measures.regression import r2, r2s, spearman_by_group, sums, within_r2, within_r2s, within_spearman

numbers = st.floats(-3, 3, allow_nan=False, width=32)
rows = st.lists(st.tuples(numbers, numbers, st.integers(0, 3)), min_size=2, max_size=25)


def _split(data):
    y, guess, groups = (np.array(c, np.float64) for c in zip(*data, strict=True))
    return y, guess, groups.astype(int)


@settings(deadline=None)
@given(rows)
def test_r2_equals_scikit_learn(data):
    y, guess, _ = _split(data)
    found = r2(y, guess)
    if np.ptp(y) == 0:
        assert found.status == "undefined: constant target"
    elif np.var(y) > 1e-6:
        assert found.value == pytest.approx(r2_score(y, guess), rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(rows)
def test_within_r2_equals_a_loop_over_questions(data):
    y, guess, groups = _split(data)
    residual = total = 0.0
    for g in set(groups):
        mine = groups == g
        a, b = y[mine] - y[mine].mean(), guess[mine] - guess[mine].mean()
        residual += float(((a - b) ** 2).sum())
        total += float((a**2).sum())
    if total > 1e-6:
        assert within_r2(y, guess, groups).value == pytest.approx(1 - residual / total, rel=1e-9, abs=1e-9)


def test_knowing_each_question_s_mean_alone_is_worth_nothing_within():
    y = np.array([0.1, 0.3, 1.0, 1.4])
    groups = np.array([0, 0, 1, 1])
    means = np.array([0.2, 0.2, 1.2, 1.2])
    assert r2(y, means).value > 0.9
    assert within_r2(y, means, groups).value == pytest.approx(0.0)


def test_a_target_that_hardly_varies_is_flagged():
    assert r2([0.0, 0.1], [0.0, 0.1]).flags == ("var < .02",)
    assert r2([0.0, 1.0], [0.0, 0.9]).flags == ()


@settings(deadline=None)
@given(rows)
def test_spearman_equals_scipy_question_by_question(data):
    y, guess, groups = _split(data)
    found = spearman_by_group(y, guess, groups)
    for value, g in zip(found, sorted(set(groups)), strict=True):
        mine = groups == g
        if len(set(y[mine])) > 1 and len(set(guess[mine])) > 1:
            assert value == pytest.approx(spearmanr(y[mine], guess[mine]).statistic, abs=1e-9)
        else:
            assert np.isnan(value)


def test_questions_without_an_order_are_named_and_left_out():
    found = within_spearman([1.0, 2.0, 3.0, 3.0], [0.1, 0.2, 0.1, 0.2], [0, 0, 1, 1])
    assert found.value == pytest.approx(1.0)
    assert found.flags == ("no order in 1 of 2 questions",)
    assert within_spearman([1.0, 1.0], [0.1, 0.2], [0, 0]).status == "undefined: no question has an order"


@settings(deadline=None)
@given(rows, st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_weighing_a_question_twice_is_having_its_rows_twice(data, weights):
    y, guess, groups = _split(data)
    names = sorted(set(groups))
    times = weights[: len(names)]
    rows = np.concatenate([np.repeat(np.flatnonzero(groups == g), t) for g, t in zip(names, times, strict=True)])
    if not len(rows) or np.var(y[rows]) < 1e-6:
        return
    s = sums(y, guess, groups)
    assert float(r2s(s, times)) == pytest.approx(r2_score(y[rows], guess[rows]), rel=1e-6, abs=1e-6)
    inside = within_r2(y[rows], guess[rows], groups[rows]).value
    if inside is not None and abs(inside) < 1e6:
        assert float(within_r2s(s, times)) == pytest.approx(inside, rel=1e-6, abs=1e-6)


def test_abstained_rows_and_empty_data():
    assert r2([1.0, 2.0, 9.0], [1.0, 2.0, np.nan]).value == 1.0
    assert r2([], []).status == "undefined: no data"
    assert within_r2([1.0], [np.nan], [0]).status == "undefined: no data"
