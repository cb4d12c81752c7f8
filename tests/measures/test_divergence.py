"""Entropy and KL against plain loops and scipy, and what zeros mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

from lmassay.measures.divergence import FLOOR, entropies, floored_mass, kls

spread = st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(lambda v: sum(v) > 0.01)


def _loop_kl(p, q, floor=None):
    total = 0.0
    for a, b in zip(p, q, strict=True):
        b = b if floor is None else max(b, floor)
        if a > 0:
            if b == 0:
                return math.inf
            total += a * (math.log(a) - math.log(b))
    return total


def _normal(values):
    return np.array(values) / sum(values)


@settings(deadline=None)
@given(spread, spread)
def test_entropy_and_kl_are_those_of_a_loop_and_of_scipy(a, b):
    p, q = _normal(a), _normal(b)
    assert entropies(p) == pytest.approx(-sum(v * math.log(v) for v in p if v > 0), abs=1e-12)
    assert entropies(p) == pytest.approx(entropy(p), abs=1e-9)
    assert kls(p, q) == pytest.approx(_loop_kl(p, q), abs=1e-12)
    assert kls(p, q, floor=FLOOR) == pytest.approx(_loop_kl(p, q, FLOOR), abs=1e-12)
    if (q > 0).all():
        assert kls(p, q) == pytest.approx(entropy(p, q), abs=1e-9)


@settings(deadline=None)
@given(spread, spread, st.permutations(range(5)))
def test_the_order_of_options_changes_nothing_and_a_distribution_is_no_distance_from_itself(a, b, order):
    p, q = _normal(a), _normal(b)
    assert kls(p[list(order)], q[list(order)], floor=FLOOR) == pytest.approx(float(kls(p, q, floor=FLOOR)), abs=1e-12)
    assert kls(p, p) == 0
    assert float(kls(p, q)) >= -1e-12


def test_a_zero_is_nothing_on_the_left_and_infinite_or_the_floor_on_the_right():
    """I-81."""
    assert kls([0.0, 1.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert kls([0.0, 1.0], [0.0, 1.0]) == 0
    assert kls([0.5, 0.5], [0.0, 1.0]) == math.inf
    assert kls([0.5, 0.5], [0.0, 1.0], floor=FLOOR) == pytest.approx(
        0.5 * math.log(0.5 / FLOOR) + 0.5 * math.log(0.5), abs=1e-12
    )
    assert floored_mass([0.25, 0.75], [0.0, 1.0]) == 0.25
    assert entropies([1.0, 0.0]) == 0


def test_p_is_never_floored_and_nothing_is_normalised():
    p, q = [1e-12, 0.5], [0.25, 0.5]
    assert kls(p, q, floor=FLOOR) == pytest.approx(1e-12 * math.log(1e-12 / 0.25), abs=1e-15)


def test_rows_are_apart():
    p = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    q = np.array([[0.1, 0.8, 0.1], [0.2, 0.3, 0.5]])
    assert kls(p, q).tolist() == [float(kls(p[0], q[0])), 0.0]
    assert entropies(p).shape == (2,)
