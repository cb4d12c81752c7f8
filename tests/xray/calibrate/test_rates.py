"""Rates with exact limits, and what of the goal they meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from lmassay.xray.calibrate.rates import FIGURES, Rate, clopper_pearson, goal, rate


@pytest.mark.parametrize(("k", "n"), [(0, 20), (1, 20), (10, 20), (20, 20), (17, 424), (97, 102)])
def test_limits_equal_those_of_scipy(k, n):
    exact = binomtest(k, n).proportion_ci(0.95, method="exact")
    assert clopper_pearson(k, n) == pytest.approx((exact.low, exact.high), abs=1e-12)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_at_its_limits_a_count_is_just_as_unlikely_as_the_level_says(kn):
    k, n = kn
    low, high = clopper_pearson(k, n)
    assert low <= k / n <= high
    if k:
        assert binom.sf(k - 1, n, low) == pytest.approx(0.025, rel=1e-6)
    if k < n:
        assert binom.cdf(k, n, high) == pytest.approx(0.025, rel=1e-6)


def test_no_model_is_no_rate():
    assert rate([]) == Rate(0, 0, None, None, None)


def _all(flagged, n):
    return dict.fromkeys(FIGURES, rate([True] * flagged + [False] * (n - flagged)))


@pytest.mark.parametrize(
    ("positives", "negatives", "verdicts"),
    [
        ((95, 100), (5, 100), ("met", "met")),
        ((94, 100), (0, 100), ("missed", "met")),
        ((100, 100), (6, 100), ("met", "above, within limits")),
        ((100, 100), (30, 400), ("met", "missed")),
    ],
)
def test_the_goal(positives, negatives, verdicts):
    found = goal(_all(*positives), _all(*negatives))
    assert [part["verdict"] for part in found.values()] == [*verdicts] * 2


def test_a_goal_without_models_is_not_stated():
    assert goal(_all(0, 0), _all(0, 0)) == {}
