"""Intervals against a plain loop, scipy, and their own nominal coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lmassay.measures.intervals import SHARE, Resampling, mean_estimate, t_interval, undefined

VALUES = np.random.default_rng(0).normal(size=48)


def _names(n_clusters, n=48):
    return [f"template {i % n_clusters}" for i in range(n)]


def _estimate(values, clusters, *, sets=None, seed=0, draws=2000):
    resampling = Resampling(clusters, np.random.default_rng(seed), sets=sets, draws=draws)
    return mean_estimate(values, resampling, title="t")


def _looped(values, clusters, sets, rng, draws):
    """Resample by writing every drawn unit into a list."""
    means = []
    for _ in range(draws):
        drawn = []
        names = sorted(set(clusters))
        for cluster in rng.choice(names, len(names)):
            if sets is None:
                drawn += [v for v, c in zip(values, clusters, strict=True) if c == cluster]
                continue
            inside = sorted({s for s, c in zip(sets, clusters, strict=True) if c == cluster})
            for chosen in rng.choice(inside, len(inside)):
                mine = zip(values, clusters, sets, strict=True)
                drawn += [v for v, c, s in mine if (c, s) == (cluster, chosen)]
        means.append(np.mean(drawn))
    return np.array(means)


@pytest.mark.parametrize("with_sets", [False, True], ids=["clusters", "sets within clusters"])
def test_draws_spread_like_a_plain_loops(with_sets):
    values = VALUES + np.arange(48) % 12  # clusters differ
    clusters = _names(12)
    # Unequal clusters and sets, so that a mean of means would be found out.
    values, clusters = values[:43], clusters[:43]
    sets = [f"set {i // 24}" for i in range(43)] if with_sets else None
    looped = _looped(values, clusters, sets, np.random.default_rng(1), 1500)
    drawn = Resampling(clusters, np.random.default_rng(2), sets=sets, draws=6000).means(values)
    assert drawn.mean() == pytest.approx(looped.mean(), abs=0.1)
    assert np.std(drawn) == pytest.approx(np.std(looped), rel=0.07)
    np.testing.assert_allclose(np.quantile(drawn, [0.025, 0.975]), np.quantile(looped, [0.025, 0.975]), atol=0.2)


def test_interval_is_scipys_where_every_unit_is_a_cluster():
    found = _estimate(VALUES, [str(i) for i in range(48)], draws=20_000)
    scipys = stats.bootstrap((VALUES,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(3))
    assert (found.low, found.high) == pytest.approx(tuple(scipys.confidence_interval), abs=0.02)
    assert found.status == "ok"


def test_under_ten_clusters_the_interval_is_students_and_flagged():
    found = _estimate(VALUES, _names(8))
    means = [np.mean(VALUES[i::8]) for i in range(8)]
    low, high = stats.t.interval(0.95, 7, loc=np.mean(means), scale=stats.sem(means))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.status, found.n, found.n_clusters) == ("few_clusters", 48, 8)


def test_students_interval_of_a_bounded_figure_stays_within_its_bounds():
    won = np.array([1.0, 1, 1, 0])
    clusters = ["a", "b", "c", "d"]
    free, bounded = (
        mean_estimate(won, Resampling(clusters, np.random.default_rng(0)), title="t", within=within)
        for within in (None, SHARE)
    )
    assert free.low < 0 < 1 < free.high
    assert (bounded.low, bounded.high) == SHARE
    losing = mean_estimate(won / 2, Resampling(clusters, np.random.default_rng(0)), title="t", within=SHARE)
    assert (losing.low, losing.high) == pytest.approx((0, free.high / 2))


def test_under_three_clusters_there_is_no_interval():
    found = _estimate(VALUES, _names(2))
    assert (found.low, found.high, found.status) == (None, None, "no interval: needs 3 clusters")
    assert found.value == pytest.approx(VALUES.mean())


@pytest.mark.parametrize("sets", [None, []])
def test_no_data_is_undefined_and_not_zero(sets):
    found = _estimate([], [], sets=sets)
    assert (found.value, found.status) == (None, "undefined: no data")
    assert undefined("t", "why", 3).to_dict() == {
        "value": None, "low": None, "high": None, "n": 3, "title": "t", "n_clusters": 0, "status": "undefined: why",
    }  # fmt: skip


def test_welchs_interval_is_scipys():
    a, b = np.random.default_rng(4).normal(size=5), np.random.default_rng(5).normal(3, 4, size=8)
    scipys = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert t_interval([a, b], [1.0, -1.0]) == pytest.approx((scipys.low, scipys.high))


def test_equal_cluster_means_have_an_interval_of_one_point():
    assert _estimate(np.ones(8), _names(4, 8)).low == 1.0


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(24)), st.sampled_from([4, 12]))
def test_order_of_units_changes_nothing(order, n_clusters):
    clusters, values = _names(n_clusters, 24), VALUES[:24]
    sets = [f"set {i % 5}" for i in range(24)]
    moved = _estimate(values[order], [clusters[i] for i in order], sets=[sets[i] for i in order], draws=50)
    still = _estimate(values, clusters, sets=sets, draws=50)
    assert (moved.low, moved.high) == pytest.approx((still.low, still.high), abs=1e-12)


def test_a_set_name_used_in_two_clusters_is_two_sets():
    clusters, values = _names(12), np.arange(48.0)
    shared = [f"set {i // 12}" for i in range(48)]
    named = [f"{c} {s}" for c, s in zip(clusters, shared, strict=True)]
    assert _estimate(values, clusters, sets=shared) == _estimate(values, clusters, sets=named)


def test_interval_over_clusters_covers_where_one_over_units_would_not():
    """Forty clusters of four units that share an effect: 95 % nominal, within the percentile bootstrap's own error."""
    rng = np.random.default_rng(6)
    clusters = _names(40, 160)
    covered = {"clusters": 0, "units": 0}
    for _ in range(300):
        values = np.tile(rng.normal(size=40), 4) + 0.3 * rng.normal(size=160)
        for name, groups in (("clusters", clusters), ("units", [str(i) for i in range(160)])):
            found = mean_estimate(values, Resampling(groups, rng, draws=400), title="t")
            assert found.low is not None
            assert found.high is not None
            covered[name] += found.low <= 0 <= found.high
    assert 0.90 <= covered["clusters"] / 300 <= 0.98
    assert covered["units"] / 300 < 0.80
