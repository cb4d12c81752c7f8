"""PSI against a plain loop, and its expectation when there is no skill."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import task

from lmassay.xray.psi import psi_by_role, psi_of
from lmassay.xray.relabel import Labels, pools_of
from lmassay.xray.trajectories import wins_of

shares = st.lists(st.integers(0, 14), min_size=2, max_size=5)


@given(shares, st.data())
def test_psi_bar_is_the_mean_over_all_pairs_of_control_draws(counts, data):
    lengths = data.draw(st.lists(st.integers(1, 3), min_size=len(counts), max_size=len(counts)))
    share, n_tokens = np.array(counts) / 14, np.array(lengths)
    pools = pools_of(n_tokens)
    found = psi_by_role(share, pools)
    for role in range(len(counts)):
        wrong = [i for i in range(len(counts)) if i != role]
        nearest = min(abs(lengths[i] - lengths[role]) for i in wrong)
        matched = [i for i in wrong if abs(lengths[i] - lengths[role]) == nearest]
        draws = [share[role] - max(share[r], share[m]) for r, m in itertools.product(wrong, matched)]
        assert found[role] == pytest.approx(sum(draws) / len(draws), abs=1e-12)
        assert np.flatnonzero(pools.matched[role]).tolist() == matched
        assert np.flatnonzero(pools.random[role]).tolist() == wrong
        assert pools.matched[role].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("rows", "stability", "psi"),
    [
        ([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], 1, 2 / 4 - 1 / 4),
        ([[1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]], -1, 2 / 4 - 2 / 4),
        ([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], 0, 0.0),
    ],
)
def test_psi_and_its_stability_term(rows, stability, psi):
    wins = wins_of(task(rows), repeats_final=False)
    found = psi_of(wins, Labels(0, 1, 2, 0), span=2)
    assert (found.stability, found.psi) == (stability, pytest.approx(psi))
    assert found.extended == pytest.approx(psi + 0.3 * stability)


@pytest.mark.parametrize(("kind", "expected"), [("independent", -0.05), ("one winner throughout", -0.165)])
def test_expected_psi_without_skill_is_below_zero(kind, expected):
    """Four options, 14 depths; figures of the specification."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(4000):
        winners = rng.integers(4, size=14) if kind == "independent" else np.full(14, rng.integers(4))
        share = np.bincount(winners, minlength=4) / 14
        values.append(psi_by_role(share, pools_of(np.ones(4, int)))[0])
    assert np.mean(values) == pytest.approx(expected, abs=0.015)
