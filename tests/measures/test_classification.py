"""Class scores against scikit-learn and plain loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from lmassay.measures.classification import (
    auroc,
    chance_mc,
    choose_threshold,
    effect_ratio,
    g_mean2_mc,
    oracle_g_mean2,
    rates,
    within_auroc,
)

# Few distinct values, so that ties are common.
rows = st.lists(
    st.tuples(st.integers(0, 1), st.integers(-4, 4).map(lambda v: v / 4), st.integers(0, 3)), min_size=1, max_size=30
)


def _split(data):
    y, score, groups = (np.array(c) for c in zip(*data, strict=True))
    return y, score, groups


def _loop_threshold(y, score):
    """Every midpoint tried, in float64 and one at a time."""
    values = sorted({float(s) for s in score if not math.isnan(s)})
    best = None
    for low, high in itertools.pairwise(values):
        t = (low + high) / 2
        hits = sum(1 for a, s in zip(y, score, strict=True) if a == 1 and s > t)
        right = sum(1 for a, s in zip(y, score, strict=True) if a == 0 and s <= t)
        key = (hits * right, high - low, -low)
        if best is None or key > best[0]:
            best = key, t
    return best[1] if best else None


@settings(deadline=None)
@given(rows)
def test_auroc_equals_scikit_learn(data):
    y, score, _ = _split(data)
    found = auroc(y, score)
    if len(set(y)) < 2:
        assert found.value is None
        assert found.status == "undefined: one class"
    else:
        assert found.value == pytest.approx(roc_auc_score(y, score), abs=1e-12)


@settings(deadline=None)
@given(rows)
def test_turning_scores_around_turns_auroc_around(data):
    y, score, _ = _split(data)
    assume(len(set(y)) == 2)
    assert auroc(y, -score).value == pytest.approx(1 - auroc(y, score).value, abs=1e-12)
    assert auroc(1 - y, score).value == pytest.approx(1 - auroc(y, score).value, abs=1e-12)


@settings(deadline=None)
@given(rows, st.randoms())
def test_order_and_doubling_of_rows_change_nothing(data, random):
    y, score, groups = _split(data)
    order = list(range(len(y)))
    random.shuffle(order)
    for again in (order, [*order, *order]):
        assert auroc(y[again], score[again]) == auroc(y, score)
        assert choose_threshold(y[again], score[again]) == choose_threshold(y, score)
        assert oracle_g_mean2(y[again], score[again]) == oracle_g_mean2(y, score)
    assert within_auroc(y[order], score[order], groups[order]) == pytest.approx(within_auroc(y, score, groups))


@settings(deadline=None)
@given(rows)
def test_the_threshold_is_the_one_a_loop_over_all_midpoints_finds(data):
    y, score, _ = _split(data)
    found = choose_threshold(y, score)
    if len(set(y)) < 2:
        assert found.status == "undefined: one class"
    elif len(set(score)) < 2:
        assert found.status == "undefined: no_threshold"
    else:
        assert found.value == _loop_threshold(y, score)


@settings(deadline=None)
@given(rows)
def test_g_mean2_never_passes_the_oracle_nor_the_oracle_auroc(data):
    y, score, _ = _split(data)
    assume(len(set(y)) == 2)
    best = oracle_g_mean2(y, score).value
    for t in (-0.6, 0.0, 0.3):
        assert rates(y, score, t)["g_mean2"].value <= best + 1e-12
    assert best <= auroc(y, score).value + 1e-12


@settings(deadline=None)
@given(rows)
def test_abstained_rows_count_nowhere(data):
    y, score, groups = _split(data)
    more_y, more = np.append(y, [0, 1]), np.append(score, [np.nan, np.nan])
    assert auroc(more_y, more) == auroc(y, score)
    assert choose_threshold(more_y, more) == choose_threshold(y, score)
    assert rates(more_y, more, 0.1) == rates(y, score, 0.1)
    assert within_auroc(more_y, more, np.append(groups, [0, 0])) == within_auroc(y, score, groups)


@settings(deadline=None)
@given(rows)
def test_within_auroc_counts_pairs_of_one_question_only(data):
    y, score, groups = _split(data)
    ordered = pairs = 0.0
    for i in range(len(y)):
        for j in range(len(y)):
            if y[i] == 1 and y[j] == 0 and groups[i] == groups[j]:
                pairs += 1
                ordered += 1.0 if score[i] > score[j] else 0.5 if score[i] == score[j] else 0.0
    found = within_auroc(y, score, groups)
    if pairs:
        assert found.value == pytest.approx(ordered / pairs, abs=1e-12)
    else:
        assert found.status == "undefined: no question has both classes"


def test_of_equal_thresholds_the_widest_gap_and_then_the_lower_one():
    y = [0, 1, 0, 1]
    # Splitting after the first or after the third row gives 1/2 each.
    assert choose_threshold(y, [0.0, 1.0, 2.0, 5.0]).value == 3.5
    assert choose_threshold(y, [0.0, 3.0, 4.0, 5.0]).value == 1.5
    assert choose_threshold(y, [0.0, 1.0, 2.0, 3.0]).value == 0.5


def test_a_score_at_the_threshold_is_not_above_it():
    found = rates([0, 1], [0.5, 0.5], 0.5)
    assert (found["tpr"].value, found["tnr"].value) == (0.0, 1.0)


def test_neighbouring_floats_still_have_a_threshold_between_them():
    low = 0.1
    high = math.nextafter(low, 1)
    t = choose_threshold([0, 1], [low, high]).value
    assert rates([0, 1], [low, high], t)["g_mean2"].value == 1.0


def test_one_class_is_undefined_and_never_zero():
    """I-78."""
    assert auroc([1, 1], [0.2, 0.3]).value is None
    assert rates([1, 1], [0.2, 0.3], 0.25)["g_mean2"].status == "undefined: one class"
    assert auroc([], []).status == "undefined: no data"
    assert auroc([0, 1], [np.nan, np.nan]).status == "undefined: no data"


def test_g_mean2_is_the_product_of_rates_and_a_class_never_predicted_is_flagged():
    """I-79."""
    found = rates([0, 0, 1, 0, 1, 1], [0, 0, 0, 0, 0, 1], 0.5)["g_mean2"]
    assert found.value == pytest.approx(1 / 3)
    assert found.flags == ()
    always = rates([0, 0, 1, 0, 1, 1], [1] * 6, 0.5)["g_mean2"]
    assert always.value == 0.0
    assert always.flags == ("never predicts class 0",)


def test_constant_scores_have_no_threshold():
    assert choose_threshold([0, 1, 1], [0.4, 0.4, 0.4]).status == "undefined: no_threshold"
    assert rates([0, 1], [0.4, 0.4], None)["g_mean2"].status == "undefined: no_threshold"


def test_the_effect_ratio_is_the_mean_over_positive_records():
    assert effect_ratio([0.8, 0.5], [0.2, 0.4]).value == pytest.approx((0.75 + 0.2) / 2)
    assert effect_ratio([0.5], [0.6]).status == "undefined: no effect (R <= 0)"
    assert effect_ratio([np.nan], [0.6]).status == "undefined: no positives"


@pytest.mark.parametrize("ratio", [0.05, 0.3, 0.5, 0.51, 0.62, 0.9, 1.0])
def test_chance_mc_is_the_best_that_guessing_reaches(ratio):
    grid = np.linspace(0, 1, 200_001)
    assert chance_mc(ratio) == pytest.approx(float((np.minimum(1, grid / ratio) * (1 - grid)).max()), abs=1e-6)
    assert max(g_mean2_mc(t, 1 - t, ratio) for t in grid[::100]) <= chance_mc(ratio) + 1e-12


def test_without_spontaneous_agreement_chance_is_a_quarter():
    assert chance_mc(1.0) == 0.25
    assert g_mean2_mc(0.9, 0.5, 0.6) == 0.5
