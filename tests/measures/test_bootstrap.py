"""Bootstrap draws against the same draws made row by row."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import r2_score, roc_auc_score

from lmassay.measures.bootstrap import (
    bincounts,
    cluster_draws,
    interval_of,
    rank_draws,
    rates_draws,
    ratio_draws,
    threshold_draws,
    within_auroc_draws,
)
from lmassay.measures.classification import auroc, choose_threshold, oracle_g_mean2, rates, within_auroc
from lmassay.measures.regression import r2s, sums


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 14, 160) * 7
    y = rng.integers(0, 2, 160)
    score = np.round(rng.normal(size=160) + 0.5 * y, 1)
    score[rng.random(160) < 0.05] = np.nan
    return y, score, groups


def _rows(draws, b):
    """Rows of draw b, each as often as its cluster was drawn."""
    return np.repeat(np.arange(len(draws.codes)), draws.times[b][draws.codes])


def test_every_figure_of_a_draw_is_that_of_its_rows(data):
    y, score, groups = data
    draws = cluster_draws(groups, np.random.default_rng(0), y=y, draws=120)
    area, best = rank_draws(y, score, draws)
    thresholds = threshold_draws(y, score, draws)
    tpr, tnr = rates_draws(y, score, 0.25, draws)
    own_tpr, own_tnr = rates_draws(y, score, thresholds, draws)
    within = within_auroc_draws(y, score, draws)
    for b in range(120):
        rows = _rows(draws, b)
        known = ~np.isnan(score[rows])
        assert area[b] == pytest.approx(roc_auc_score(y[rows][known], score[rows][known]), abs=1e-12)
        assert area[b] == pytest.approx(auroc(y[rows], score[rows]).value, abs=1e-12)
        assert best[b] == pytest.approx(oracle_g_mean2(y[rows], score[rows]).value, abs=1e-12)
        assert thresholds[b] == choose_threshold(y[rows], score[rows]).value
        at = rates(y[rows], score[rows], 0.25)
        assert (tpr[b], tnr[b]) == pytest.approx((at["tpr"].value, at["tnr"].value), abs=1e-12)
        own = rates(y[rows], score[rows], thresholds[b])
        assert (own_tpr[b], own_tnr[b]) == pytest.approx((own["tpr"].value, own["tnr"].value), abs=1e-12)
        # A question drawn twice is two questions: its rows are not compared with their copies.
        copies = np.concatenate([np.arange(t) for t in draws.times[b][draws.codes]])
        assert within[b] == pytest.approx(
            within_auroc(y[rows], score[rows], draws.codes[rows] * 100 + copies).value, abs=1e-12
        )


def test_r2_of_a_draw_is_that_of_its_rows(data):
    _, score, groups = data
    target = np.random.default_rng(1).normal(size=len(score))
    draws = cluster_draws(groups, np.random.default_rng(0), draws=50)
    found = r2s(sums(target, score, groups), draws.times)
    for b in range(50):
        rows = _rows(draws, b)
        rows = rows[~np.isnan(score[rows])]
        assert found[b] == pytest.approx(r2_score(target[rows], score[rows]), abs=1e-10)


def test_ratios_are_those_of_the_resampled_sums(data):
    y, _, groups = data
    value = np.random.default_rng(2).random(len(y))
    draws = cluster_draws(groups, np.random.default_rng(0), draws=40)
    found = ratio_draws(bincounts(value * y, draws), bincounts(y.astype(float), draws), draws)
    for b in range(40):
        rows = _rows(draws, b)
        assert found[b] == pytest.approx(value[rows][y[rows] == 1].mean(), abs=1e-12)


def test_draws_of_one_class_are_drawn_again_and_counted():
    groups = np.arange(4)
    y = np.array([1, 0, 0, 0])
    draws = cluster_draws(groups, np.random.default_rng(0), y=y, draws=500)
    # Without redrawing (3/4)^4 + (1/4)^4 of the draws would lack a class.
    assert 120 < draws.n_redrawn < 400
    assert (draws.times[:, 0] > 0).all()
    assert (draws.times[:, 1:].sum(1) > 0).all()
    assert (draws.times.sum(1) == 4).all()


def test_one_class_in_all_is_not_redrawn_for_ever():
    draws = cluster_draws(np.arange(5), np.random.default_rng(0), y=np.ones(5), draws=10)
    assert draws.n_redrawn == 0
    assert np.isnan(rank_draws(np.ones(5), np.arange(5.0), draws)[0]).all()
    assert interval_of(np.full(10, np.nan), 5)[2] == "undefined: no usable draw"


def test_few_questions_are_flagged_and_fewer_have_no_interval():
    assert interval_of(np.arange(2000.0), 9)[2] == "few_clusters"
    assert not len(cluster_draws(np.arange(2), np.random.default_rng(0)).times)
    assert interval_of(np.zeros(0), 2) == (None, None, "no interval: needs 3 clusters")


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """300 made data sets of 40 questions that differ among each other; AUROC is known."""
    rng = np.random.default_rng(8)
    held = 0
    for _ in range(300):
        groups = np.repeat(np.arange(40), 6)
        y = np.tile([0, 1], 120)
        score = rng.normal(size=40)[groups] + rng.normal(size=240) + y
        draws = cluster_draws(groups, rng, y=y, draws=400)
        low, high, _ = interval_of(rank_draws(y, score, draws)[0], draws.n_clusters)
        # Two scores of different classes differ by N(1, 4).
        held += low <= 0.6915 <= high
    assert 0.91 <= held / 300 <= 0.98
