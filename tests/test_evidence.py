"""The verdict rule, its p-value and Holm's correction."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.evidence import (
    Evidence,
    bootstrap_p,
    judged,
    no_evidence,
    paired_evidence,
    survives_its_controls,
    unpaired_evidence,
)
from lmassay.measures.intervals import Resampling


def row(*, p=0.001, low=0.1, high=0.3, n_clusters=20, signal="s", control="c", metric="rate"):
    margin = no_evidence(signal, control, metric, "").margin
    return Evidence(signal, control, metric, 0.7, 0.5, 0.2, low, high, p, None, 40, n_clusters, margin)


def verdict(**changes):
    (only,) = judged([row(**changes)])
    return only.verdict


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "survives"),
        ({"p": 0.05}, "undecided"),
        ({"low": 0.0}, "undecided"),
        ({"p": 0.4, "low": -0.2, "high": 0.049}, "fails"),
        ({"p": 0.4, "low": -0.2, "high": 0.05}, "undecided"),
        ({"p": 0.9, "low": -0.3, "high": 0.3}, "undecided"),
        ({"p": 0.001, "low": -0.3, "high": -0.1}, "fails"),
        ({"n_clusters": 9}, "undecided (few_clusters)"),
        ({"n_clusters": 9, "p": 0.4, "low": -0.2, "high": 0.0}, "undecided (few_clusters)"),
        # A difference that is there and too small to matter survives: it is above 0, and significant.
        ({"low": 0.01, "high": 0.04}, "survives"),
        ({"metric": "r2", "p": 0.4, "low": -0.2, "high": 0.03}, "undecided"),
        ({"metric": "r2", "p": 0.4, "low": -0.2, "high": 0.019}, "fails"),
    ],
)
def test_verdict(changes, expected):
    assert verdict(**changes) == expected


@given(st.lists(st.floats(0.0005, 1), min_size=1, max_size=6))
def test_holm_is_the_step_down_by_hand(ps):
    found = [r.p_holm for r in judged([row(p=p, control=str(i)) for i, p in enumerate(ps)])]
    for i, p in enumerate(ps):
        # max over all p no larger than mine of (number not smaller than it) * it
        stages = [(len(ps) - rank) * q for rank, q in enumerate(sorted(ps)) if q <= p]
        assert found[i] == pytest.approx(min(1.0, max(stages)))


def test_holm_is_over_the_rows_of_one_signal():
    rows = judged([row(p=0.02, control="a"), row(p=0.03, control="b"), row(p=0.04, signal="other")])
    assert [r.p_holm for r in rows] == pytest.approx([0.04, 0.04, 0.04])


def test_a_control_that_was_not_measured_does_not_count_for_holm_and_stays_undecided():
    rows = judged([row(p=0.03), no_evidence("s", "prompt_swap", "rate", "phase not run")])
    assert rows[0].p_holm == 0.03
    assert rows[1].verdict == "undecided (phase not run)"
    assert rows[1].p_holm is None


def test_the_headline_needs_every_controls_row():
    good = judged([row(), row(control="d")])
    assert survives_its_controls(good)
    assert not survives_its_controls([*good, replace(good[0], verdict="undecided")])
    assert not survives_its_controls([*good, no_evidence("s", "e", "rate", "phase not run")])
    assert survives_its_controls([]) is None
    assert survives_its_controls([no_evidence("s", "e", "rate", "phase not run")]) is None


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60))
def test_p_is_the_formula(draws):
    below = sum(d <= 0 for d in draws)
    above = sum(d >= 0 for d in draws)
    assert bootstrap_p(draws) == min(1.0, 2 * min(1 + below, 1 + above) / (len(draws) + 1))


def test_a_draw_that_is_zero_but_for_rounding_counts_on_both_sides():
    assert bootstrap_p([1e-17, 1.0, 1.0]) == bootstrap_p([-1e-17, 1.0, 1.0]) == bootstrap_p([0.0, 1.0, 1.0])
    assert verdict(low=1e-17) == "undecided"


def _paired(first, second, n_clusters=20):
    clusters = [f"t{i % n_clusters}" for i in range(len(first))]
    return paired_evidence("s", "c", "rate", first, second, Resampling(clusters, np.random.default_rng(0)))


def test_pairing_takes_out_what_units_share():
    hardness = np.random.default_rng(1).normal(0, 10, size=200)
    found = _paired(hardness + 0.1, hardness)
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))
    (found,) = judged([found])
    assert found.verdict == "survives"
    assert found.p == pytest.approx(2 / 2001)


def test_swapping_signal_and_control_turns_the_difference_round():
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=100), rng.normal(size=100)
    one, other = _paired(first, second), _paired(second, first)
    assert (one.difference, one.low, one.high) == pytest.approx((-other.difference, -other.high, -other.low))
    assert one.p == other.p


def test_no_difference_is_no_evidence_and_fails_by_the_margin():
    same = np.random.default_rng(3).normal(size=100)
    (found,) = judged([_paired(same, same)])
    assert (found.p, found.verdict) == (1.0, "fails")


@pytest.mark.parametrize("n_clusters", [1, 2, 5])
def test_few_clusters_decide_nothing(n_clusters):
    (found,) = judged([_paired(np.ones(40), np.zeros(40), n_clusters)])
    assert found.verdict == "undecided (few_clusters)"
    assert (found.low is None) == (n_clusters < 3)


def test_no_data_is_named():
    assert _paired([], []).verdict == "undecided (no data)"


def test_without_a_difference_a_twentieth_of_rows_is_called_significant():
    rng = np.random.default_rng(4)
    clusters = [f"t{i % 30}" for i in range(120)]
    below = 0
    for _ in range(400):
        resampling = Resampling(clusters, rng, draws=400)
        below += paired_evidence("s", "c", "rate", rng.normal(size=120), rng.normal(size=120), resampling).p < 0.05
    assert 0.02 <= below / 400 <= 0.09


# ---- two sides that were not measured on the same units


def _sides(n=60, n_clusters=15, seed=5):
    """Signal and control with gaps, and each unit's cluster; only the first three clusters are whole."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(0.4, 1, n), rng.normal(0, 1, n)
    at = np.arange(n) % n_clusters
    first[(rng.random(n) < 0.4) & (at > 2)] = np.nan
    second[(rng.random(n) < 0.6) & (at > 2)] = np.nan
    return first, second, [f"t{i:02d}" for i in at]


def _unpaired(first, second, clusters, *, seed=0, draws=2000):
    return unpaired_evidence(
        "s", "c", "rate", first, second, Resampling(clusters, np.random.default_rng(seed), draws=draws)
    )


def _mean_there(values):
    there = [v for v in values if not math.isnan(v)]
    return sum(there) / len(there) if there else None


def _plain_draws(first, second, clusters, *, draws, seed):
    """Difference of means in resamples of whole clusters, one after another; None where a side has no unit."""
    names = sorted(set(clusters))
    members = {name: [i for i, c in enumerate(clusters) if c == name] for name in names}
    found = []
    rng = np.random.default_rng(seed)
    for times in rng.multinomial(len(names), [1 / len(names)] * len(names), size=draws).tolist():
        units = [i for name, n in zip(names, times, strict=True) for i in members[name] * n]
        one, other = (_mean_there([side[i] for i in units]) for side in (first, second))
        found.append(None if one is None or other is None else one - other)
    return found


def test_unpaired_evidence_is_a_plain_loop_over_resampled_clusters():
    first, second, clusters = _sides()
    found = _unpaired(first, second, clusters, draws=300)
    draws = _plain_draws(first, second, clusters, draws=300, seed=0)
    assert found.signal_value == pytest.approx(_mean_there(first))
    assert found.control_value == pytest.approx(_mean_there(second))
    assert found.difference == pytest.approx(_mean_there(first) - _mean_there(second))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])))
    assert found.p == pytest.approx(bootstrap_p(draws))
    assert found.n == sum(not (math.isnan(a) and math.isnan(b)) for a, b in zip(first, second, strict=True))
    there = [len({c for c, v in zip(clusters, side, strict=True) if not math.isnan(v)}) for side in (first, second)]
    assert found.n_clusters == min(there) >= 10


def test_resamples_in_which_one_side_has_no_unit_are_left_out():
    n, seed = 60, 37  # one draw of two thousand has none of the ten clusters that have a control
    first, second = np.linspace(0, 1, n), np.full(n, np.nan)
    second[:10] = np.linspace(0, 0.5, 10)
    clusters = [f"t{i:03d}" for i in range(n)]
    draws = _plain_draws(first, second, clusters, draws=2000, seed=seed)
    left = [d for d in draws if d is not None]
    assert len(left) == len(draws) - 1
    found = _unpaired(first, second, clusters, seed=seed)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(left, [0.025, 0.975])))
    assert found.p == pytest.approx(bootstrap_p(left))


@pytest.mark.parametrize("side", [0, 1])
def test_a_side_without_any_unit_is_no_data(side):
    sides = [np.ones(30), np.zeros(30)]
    sides[side][:] = np.nan
    found = _unpaired(*sides, [f"t{i}" for i in range(30)])
    assert (found.difference, found.verdict) == (None, "undecided (no data)")


def test_the_side_with_fewer_clusters_decides_whether_there_is_an_interval():
    first = np.ones(30)
    second = np.array([0.0] * 9 + [np.nan] * 21)
    (found,) = judged([_unpaired(first, second, [f"t{i:02d}" for i in range(30)])])
    assert (found.difference, found.low, found.high, found.p) == (1.0, None, None, None)
    assert (found.n_clusters, found.verdict) == (9, "undecided (few_clusters)")


def test_units_measured_on_both_sides_give_the_paired_difference():
    rng = np.random.default_rng(6)
    first, second = rng.normal(size=80), rng.normal(size=80)
    clusters = [f"t{i % 20:02d}" for i in range(80)]
    paired = paired_evidence("s", "c", "rate", first, second, Resampling(clusters, np.random.default_rng(0)))
    unpaired = _unpaired(first, second, clusters)
    for name in ("difference", "low", "high", "p"):
        assert getattr(unpaired, name) == pytest.approx(getattr(paired, name), abs=1e-12)
