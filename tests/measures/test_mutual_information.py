"""Mutual information against scikit-learn, against formulas, and against a plain shuffle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from lmassay.measures.intervals import Resampling
from lmassay.measures.mutual_information import (
    codes,
    contingency,
    interval,
    miller_madow,
    permutation_null,
    permutation_p,
    plug_in,
    quartile_bins,
)

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=60)


def _entropy(labels):
    n = len(labels)
    return -sum(c / n * math.log(c / n) for c in (labels.count(x) for x in set(labels)))


@given(pairs)
def test_plug_in_equals_scikit_learn(rows):
    first, second = (codes(column) for column in zip(*rows, strict=True))
    assert float(plug_in(contingency(first, second))) == pytest.approx(mutual_info_score(first, second), abs=1e-12)


@given(pairs)
def test_miller_madow_adds_occupied_cells_less_one_over_2n_to_each_entropy(rows):
    first, second = (list(column) for column in zip(*rows, strict=True))
    n = len(rows)
    corrected = [_entropy(x) + (len(set(x)) - 1) / (2 * n) for x in (first, second, rows)]
    table = contingency(codes(first), codes(second))
    assert miller_madow(table) == pytest.approx(corrected[0] + corrected[1] - corrected[2], abs=1e-12)


@given(pairs, st.randoms())
def test_order_of_rows_and_names_of_values_change_nothing(rows, random):
    first, second = zip(*rows, strict=True)
    table = contingency(codes(first), codes(second))
    shuffled = random.sample(rows, len(rows))
    renamed = contingency(codes([str(9 - a) for a, _ in shuffled]), codes([b for _, b in shuffled]))
    assert float(plug_in(renamed)) == pytest.approx(float(plug_in(table)), abs=1e-12)
    assert miller_madow(renamed) == pytest.approx(miller_madow(table), abs=1e-12)


@pytest.mark.parametrize(("n_bins", "expected"), [(4, 0.010), (20, 0.071)])
def test_the_null_of_150_rows_is_what_a_plain_shuffle_gives(n_bins, expected):
    """The more bins, the higher the plug-in of a feature that says nothing."""
    rng = np.random.default_rng(0)
    feature = np.arange(150) % n_bins
    target = np.arange(150) < 50
    plain = [mutual_info_score(feature, rng.permutation(target)) for _ in range(800)]
    null = permutation_null(contingency(feature, target.astype(np.int64)), rng, draws=20_000)
    assert np.mean(plain) == pytest.approx(expected, abs=2.5e-3)
    assert null.mean() == pytest.approx(np.mean(plain), abs=1.5e-3)
    assert np.quantile(null, 0.95) == pytest.approx(np.quantile(plain, 0.95), abs=4e-3)


def test_the_correction_takes_the_null_to_zero():
    rng = np.random.default_rng(1)
    feature, target = np.arange(150) % 4, np.arange(150) < 60
    corrected = [miller_madow(contingency(feature, rng.permutation(target).astype(np.int64))) for _ in range(2000)]
    assert np.mean(corrected) == pytest.approx(0, abs=1e-3)


def test_p_counts_the_draws_that_reach_the_observed():
    null = np.array([0.0, 0.1, 0.2, 0.3])
    assert permutation_p(0.2, null) == 3 / 5
    assert permutation_p(0.2 + 1e-15, null) == 3 / 5
    assert permutation_p(0.4, null) == 1 / 5


def test_a_target_that_is_the_feature_has_the_smallest_p_and_its_whole_entropy():
    feature = np.arange(60) % 2
    table = contingency(feature, feature)
    assert float(plug_in(table)) == pytest.approx(math.log(2))
    assert permutation_p(float(plug_in(table)), permutation_null(table, np.random.default_rng(0), draws=999)) == 1e-3


@settings(max_examples=50)
@given(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=200, unique=True))
def test_bins_of_distinct_numbers_hold_a_quarter_each(values):
    bins = quartile_bins(values)
    assert set(bins) == {0, 1, 2, 3}
    assert np.ptp(np.bincount(bins)) <= 2
    order = np.argsort(values)
    assert (np.diff(bins[order]) >= 0).all()


def test_an_edge_belongs_to_the_lower_bin():
    assert quartile_bins([0, 1, 2, 3, 4, 5, 6, 7, 8]).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]


def test_equal_edges_are_merged():
    """Three quarters zeros: one edge is left."""
    values = [0] * 75 + list(range(1, 26))
    assert quartile_bins(values).tolist() == [0] * 75 + [1] * 25


def test_a_yes_or_no_feature_keeps_both_values_however_rare_one_is():
    assert quartile_bins([0] * 99 + [1]).tolist() == [0] * 99 + [1]
    assert quartile_bins([0] + [1] * 99).tolist() == [0] + [1] * 99


def test_an_interval_is_the_spread_over_resampled_clusters():
    """Against clusters resampled one by one, each drawn table given to scikit-learn."""
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(20), 6)
    first = rng.integers(0, 3, 120)
    second = ((first == 2) ^ (rng.random(120) < 0.2)).astype(np.int64)
    low, high = interval(first, second, 0.3, Resampling(clusters.astype(str), np.random.default_rng(0)))
    rows = [np.flatnonzero(clusters == c) for c in range(20)]
    drawn = []
    for _ in range(1500):
        taken = np.concatenate([rows[c] for c in rng.integers(0, 20, 20)])
        drawn.append(mutual_info_score(first[taken], second[taken]))
    spread = np.quantile(drawn, [0.025, 0.975]) - np.mean(drawn)
    assert (low - 0.3, high - 0.3) == pytest.approx(tuple(spread), abs=0.012)
