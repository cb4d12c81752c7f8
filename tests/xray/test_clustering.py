"""Cosines within and between groups, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.measures.intervals import Resampling
from lmassay.xray.clustering import (
    centred_cosines,
    cosines_of,
    directions,
    gap_over_tasks,
    mean_pair,
    neighbours,
    ratio_over_tasks,
    shuffled_families,
    shuffled_gap,
    spread_over_tasks,
)

FAMILY = np.array([0, 0, 0, 1, 1, 2, 2, 2])
seeds = settings(deadline=None, max_examples=25)


def _states(seed, n=8, d=5, shift=2.0):
    return np.random.default_rng(seed).normal(size=(n, d)) + shift


def _cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def _mean(rows):
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _minus(row, mean):
    return [x - m for x, m in zip(row, mean, strict=True)]


def _pair(rows, i, j, centre):
    if not centre:
        return _cosine(rows[i], rows[j])
    mean = _mean([row for k, row in enumerate(rows) if k not in (i, j)])
    return _cosine(_minus(rows[i], mean), _minus(rows[j], mean))


def _pairs(rows, keep, centre):
    found = [_pair(rows, i, j, centre) for i in range(len(rows)) for j in range(i) if keep(i, j)]
    return sum(found) / len(found)


def _cosines(states, centre=False):
    return centred_cosines(states) if centre else cosines_of(states)


def _found(states, family=FAMILY, centre=False):
    return neighbours(_cosines(states, centre), [family])[0]


@seeds
@given(st.integers(0, 999), st.booleans())
def test_mean_cosine_over_the_pairs_of_a_group(seed, centre):
    states = _states(seed)
    expected = _pairs(states.tolist(), lambda i, j: True, centre)
    assert mean_pair(_cosines(states, centre)) == pytest.approx(expected, abs=1e-12)


def test_wordings_are_centred_by_a_given_mean():
    states = _states(0)
    mean = _mean(states[3:].tolist())
    units = directions(states[:3], states[3:].mean(0))
    expected = [
        _cosine(_minus(states[i].tolist(), mean), _minus(states[j].tolist(), mean)) for i in range(3) for j in range(i)
    ]
    assert mean_pair(units @ units.T) == pytest.approx(sum(expected) / 3, abs=1e-12)


def test_centred_cosines_of_independent_states_lean_as_those_of_states_outside_the_mean():
    rng = np.random.default_rng(0)
    n, inside, outside, naive = 12, [], [], []
    for _ in range(400):
        states = rng.normal(size=(n + 2, 40)) + 3
        inside.append(mean_pair(centred_cosines(states[:n])))
        others = directions(states[n:], states[:n].mean(0))
        outside.append(float(others[0] @ others[1]))
        units = directions(states[:n], states[:n].mean(0))
        naive.append(mean_pair(units @ units.T))
    assert np.mean(inside) == pytest.approx(np.mean(outside), abs=0.03)
    assert np.mean(naive) == pytest.approx(-1 / (n - 1), abs=0.01)
    assert np.mean(inside) > 0.05


@seeds
@given(st.integers(0, 999), st.booleans())
def test_mean_cosines_within_and_between_families(seed, centre):
    states = _states(seed)
    rows = states.tolist()
    found = _found(states, centre=centre)
    within = _pairs(rows, lambda i, j: FAMILY[i] == FAMILY[j], centre)
    between = _pairs(rows, lambda i, j: FAMILY[i] != FAMILY[j], centre)
    assert spread_over_tasks(found.within, found.n_within).mean() == pytest.approx(within, abs=1e-12)
    assert spread_over_tasks(found.between, found.n_between).mean() == pytest.approx(between, abs=1e-12)
    assert gap_over_tasks(found).mean() == pytest.approx(within - between, abs=1e-12)
    for i in range(8):
        own = [_pair(rows, i, j, centre) for j in range(8) if j != i and FAMILY[j] == FAMILY[i]]
        assert found.within[i] == pytest.approx(sum(own) / len(own), abs=1e-12)
        assert found.n_within[i] == len(own)
        assert found.n_within[i] + found.n_between[i] == 7


@seeds
@given(st.integers(0, 999))
def test_the_ratio_is_that_of_the_two_means(seed):
    found = _found(_states(seed))
    within, between = (
        spread_over_tasks(m, n).mean() for m, n in ((found.within, found.n_within), (found.between, found.n_between))
    )
    assert ratio_over_tasks(found).mean() == pytest.approx(within / between)


def test_a_ratio_to_a_mean_that_is_not_positive_is_undefined():
    states = np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]])
    assert ratio_over_tasks(_found(states, np.array([0, 0, 1, 1]))) is None


@seeds
@given(st.integers(0, 999), st.permutations(range(8)), st.floats(0.01, 100))
def test_order_and_length_of_the_states_change_nothing(seed, order, factor):
    states = _states(seed)
    scales = np.linspace(1, factor, 8)[:, None]
    here, there = _found(states), _found((states * scales)[order], FAMILY[order])
    np.testing.assert_allclose(here.within[order], there.within, atol=1e-12)
    np.testing.assert_allclose(here.between[order], there.between, atol=1e-12)


def test_a_state_equal_to_the_mean_of_the_others_has_no_direction_and_is_in_no_mean():
    states = _states(1, 5, 3)
    units = directions(np.vstack([states, states.mean(0)]), states.mean(0))
    assert np.isfinite(units[:5]).all()
    assert np.isnan(units[5]).all()
    cosines = units @ units.T
    found = neighbours(cosines, [np.array([0, 0, 0, 1, 1, 1])])[0]
    assert np.isnan(found.within[5])
    assert found.n_within.tolist() == [2, 2, 2, 1, 1, 0]
    assert np.isfinite(gap_over_tasks(found)).all()
    assert mean_pair(cosines) == pytest.approx(mean_pair(cosines[:5, :5]))


def test_identical_states_have_no_direction_without_their_mean():
    states = np.tile(np.random.default_rng(0).normal(size=7), (6, 1))
    # Rounding of single precision, as another batch gives it.
    noisy = states * (1 + 1e-7 * np.random.default_rng(1).normal(size=states.shape))
    assert np.isnan(directions(noisy, noisy.mean(0))).all()
    assert np.isnan(centred_cosines(noisy)).all()
    assert np.isnan(centred_cosines(_states(0, 2))).all()


def test_a_family_of_one_has_no_pair():
    found = _found(_states(2, 3), np.array([0, 0, 1]))
    assert np.isnan(found.within[2])
    assert found.n_within.tolist() == [1, 1, 0]
    alone = _found(_states(2, 3), np.array([0, 1, 2]))
    assert gap_over_tasks(alone) is None
    assert gap_over_tasks(_found(_states(2, 3), np.array([0, 0, 0]))) is None


def test_one_state_is_no_pair():
    assert np.isnan(mean_pair(np.ones((1, 1))))


def test_the_spread_over_tasks_is_that_of_resampled_pairs():
    """Tasks drawn anew together with all their pairs, by a plain loop: the interval is as wide, not half as wide."""
    rng = np.random.default_rng(3)
    n = 40
    units = directions(rng.normal(size=(n, 6)) + rng.normal(size=6))
    cosines = units @ units.T
    found = neighbours(cosines, [np.zeros(n, np.int64)])[0]
    resampling = Resampling([str(i) for i in range(n)], np.random.default_rng(4))
    spread = resampling.means(spread_over_tasks(found.within, found.n_within)).std()
    drawn = []
    for _ in range(2000):
        times = rng.multinomial(n, np.full(n, 1 / n))
        weights = np.outer(times, times) * ~np.eye(n, dtype=bool)
        drawn.append((weights * cosines).sum() / weights.sum())
    assert spread == pytest.approx(np.std(drawn), rel=0.1)
    assert resampling.means(found.within).std() == pytest.approx(np.std(drawn) / 2, rel=0.1)


def test_shuffled_families_keep_templates_whole_and_families_as_many_templates():
    family = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    templates = ["a", "a", "b", "c", "c", "d", "e", "a"]
    for drawn in shuffled_families(family, templates, np.random.default_rng(0), 20):
        units = {}
        for f, t, label in zip(family, templates, drawn, strict=True):
            units.setdefault((f, t), set()).add(label)
        assert all(len(labels) == 1 for labels in units.values())
        assert sorted(next(iter(labels)) for labels in units.values()) == [0, 0, 1, 1, 1, 1]


def test_the_shuffled_gap_is_the_mean_over_relabellings():
    states = _states(5)
    drawn = shuffled_families(FAMILY, [str(i) for i in range(8)], np.random.default_rng(0), 7)
    rows = states.tolist()
    gaps = [
        _pairs(rows, lambda i, j, f=f: f[i] == f[j], True) - _pairs(rows, lambda i, j, f=f: f[i] != f[j], True)
        for f in drawn
    ]
    assert shuffled_gap(centred_cosines(states), drawn).mean() == pytest.approx(sum(gaps) / 7, abs=1e-12)
