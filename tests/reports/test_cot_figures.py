"""What a cot run's figures are drawn from, against scikit-learn and plain loops."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs_of_cot import Certain, Constant, Counts, evaluated, made_data
from sklearn.calibration import calibration_curve
from sklearn.metrics import auc, roc_curve

from lmassay.cot.evaluate import evaluate
from lmassay.reports import cot_method_charts as charts
from lmassay.reports.cot_figures import (
    BEST,
    CHOSEN,
    CURVE,
    CURVE_POINTS,
    CotRun,
    calibration_error,
    gives_probabilities,
    prediction_rows,
    question_rows,
    reliability_rows,
    roc_rows,
    strongest_control,
    thinned,
    transfer_rows,
    wrong_rows,
)
from lmassay.reports.figure_file import save_chart


@pytest.fixture(scope="module")
def found():
    return evaluated(Counts)


@pytest.fixture(scope="module")
def sure():
    return evaluated(Certain)


@pytest.fixture(scope="module")
def regression():
    return evaluated(Counts, "regression", ood=("ood_1", "ood_2"))


def rows(run, method, split):
    return run.predictions.filter(method_id=method, split=split)


def test_a_roc_curve_is_scikit_learns(found):
    drawn = roc_rows(found, ["counts", "length"])
    for method in ("counts", "length"):
        for split in ("test", "ood_test"):
            table = rows(found, method, split)
            fpr, tpr, _ = roc_curve(table["y_true"], table["score"], drop_intermediate=False)
            mine = drawn.filter(method=method, split=split, at=CURVE)
            assert mine["fpr"].to_list() == pytest.approx(fpr.tolist())
            assert mine["tpr"].to_list() == pytest.approx(tpr.tolist())
            scores = found.scored.scores if method == "counts" else found.scored.controls[method]
            assert auc(mine["fpr"], mine["tpr"]) == pytest.approx(scores[f"{split}.auroc"].value)


def test_the_marked_points_are_those_of_the_two_thresholds(found):
    drawn = roc_rows(found, ["counts"])
    threshold = found.document["thresholds"]["counts"]["value"]
    for split in ("test", "ood_test"):
        table = rows(found, "counts", split).select("y_true", "score").rows()
        chosen = drawn.filter(split=split, at=CHOSEN).row(0, named=True)
        positive, negative = [s for y, s in table if y == 1], [s for y, s in table if y == 0]
        assert chosen["tpr"] == pytest.approx(sum(s > threshold for s in positive) / len(positive))
        assert chosen["fpr"] == pytest.approx(sum(s > threshold for s in negative) / len(negative))
        best = drawn.filter(split=split, at=BEST).row(0, named=True)
        oracle = found.document["scores"][f"{split}.oracle_g_mean2"]["value"]
        assert best["tpr"] * (1 - best["fpr"]) == pytest.approx(oracle)


def test_a_long_curve_is_thinned_and_keeps_its_ends_and_its_area():
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 2, 5000), rng.normal(size=5000)
    score += y
    fpr, tpr, _ = roc_curve(y, score, drop_intermediate=False)
    kept = thinned(fpr, tpr, CURVE_POINTS)
    assert len(kept) <= CURVE_POINTS
    assert (kept[0], kept[-1]) == (0, len(fpr) - 1)
    assert auc(fpr[kept], tpr[kept]) == pytest.approx(auc(fpr, tpr), abs=0.005)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=300), st.integers(2, 40))
def test_no_stretch_of_a_thinned_curve_is_long(steps, most):
    x, y = np.cumsum([0, *steps]).astype(float), np.cumsum([0, *(1 - s for s in steps)]).astype(float)
    kept = thinned(x, y, most)
    assert kept == sorted(set(kept))
    assert {0, len(steps)} <= set(kept)
    assert max(np.diff(kept)) <= len(steps) / (most - 1) + 1


def test_what_a_transfer_loses_is_best_minus_chosen(found):
    table = transfer_rows(found)
    assert table.height == 2 * (1 + len(found.scored.controls))
    for row in table.drop_nulls(["value", "best"]).to_dicts():
        scores = found.document["scores"] if row["method"] == "counts" else found.document["controls"][row["method"]]
        expected = scores[f"{row['split']}.oracle_g_mean2"]["value"] - scores[f"{row['split']}.g_mean2"]["value"]
        assert row["lost"] == pytest.approx(expected)
        assert row["lost"] >= -1e-12


def test_a_question_has_its_share_of_right_decisions(found):
    table = question_rows(found, "counts")
    for row in table.to_dicts():
        mine = rows(found, "counts", row["split"]).filter(group=row["question"]).select("y_true", "decision").rows()
        assert row["n"] == len(mine)
        assert row["n_positive"] == sum(y for y, _ in mine)
        assert row["right"] == pytest.approx(sum(y == d for y, d in mine) / len(mine))
    assert table["n"].sum() == 160


def test_a_question_of_a_regression_has_its_mean_error(regression):
    for row in question_rows(regression, "counts").to_dicts():
        mine = rows(regression, "counts", row["split"]).filter(group=row["question"]).select("y_true", "score").rows()
        assert row["error"] == pytest.approx(sum(abs(y - s) for y, s in mine) / len(mine))


def test_reliability_is_scikit_learns_with_an_interval_around_it(sure):
    table = reliability_rows(sure, "certain")
    for split in ("test", "ood_test"):
        truth = rows(sure, "certain", split)
        share, score = calibration_curve(truth["y_true"], truth["score"], n_bins=10)
        mine = table.filter(split=split)
        assert mine["share"].to_list() == pytest.approx(share.tolist())
        assert mine["score"].to_list() == pytest.approx(score.tolist())
        known = mine.drop_nulls("low")
        assert known.height
        assert ((known["low"] <= known["share"]) & (known["share"] <= known["high"])).all()
        assert mine["n"].sum() == 80
        by_hand = sum(abs(a - b) * n for a, b, n in mine.select("score", "share", "n").rows()) / 80
        assert calibration_error(mine) == pytest.approx(by_hand)


def test_only_numbers_between_0_and_1_are_read_as_probabilities(found, sure, regression):
    assert gives_probabilities(sure, "certain")
    assert not gives_probabilities(evaluated(Constant), "constant")
    assert not gives_probabilities(sure, "length")
    assert not gives_probabilities(regression, "counts")
    with pytest.raises(ValueError, match="no probabilities"):
        charts.reliability_chart(found, "length")


def test_few_rows_of_a_regression_are_all_drawn_and_many_as_counts(regression):
    few = prediction_rows(regression, "counts")
    assert few["n"].to_list() == [1] * 240
    big = evaluate(made_data("regression", n=1200, ood=()), "length")
    many = prediction_rows(big, "length")
    assert many.height < 900
    assert many["n"].sum() == 1200
    table = rows(big, "length", "test")
    for drawn, column in (("target", "y_true"), ("predicted", "score")):
        assert (many[drawn] * many["n"]).sum() / 1200 == pytest.approx(table[column].mean())


def test_the_worst_rows_are_the_farthest_on_the_wrong_side(found):
    table = wrong_rows(found, "counts", 5)
    threshold = found.document["thresholds"]["counts"]["value"]
    for split in ("test", "ood_test"):
        held = rows(found, "counts", split).select("example_id", "y_true", "score").rows()
        wrong = [(abs(s - threshold), i) for i, y, s in held if (s > threshold) != (y == 1)]
        expected = [i for _, i in sorted(wrong, key=lambda pair: (-pair[0], pair[1]))[:5]]
        assert table.filter(split=split)["example_id"].to_list() == expected


def test_the_strongest_control_is_that_of_the_first_test_split(found):
    values = {name: e["test.auroc"].value for name, e in found.scored.controls.items()}
    known = {name: value for name, value in values.items() if value is not None}
    assert strongest_control(found, "auroc") == max(known, key=known.get)


@pytest.mark.parametrize("method", [Counts, Certain, Constant])
def test_every_figure_is_drawn_or_has_no_rows_to_draw(method, tmp_path):
    found = evaluated(method)
    for chart in (
        charts.distribution_chart(found, "g_mean2", "auroc"),
        charts.roc_chart(found),
        charts.transfer_chart(found),
        charts.question_chart(found),
    ):
        save_chart(chart, tmp_path / "a.svg")
        assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_figures_of_regression_and_of_probabilities_are_drawn(sure, regression, tmp_path):
    for chart, word in ((charts.reliability_chart(sure), "share of positives"),
                        (charts.prediction_chart(regression), "predicted, nats"),
                        (charts.question_chart(regression), "mean size of the error")):  # fmt: skip
        save_chart(chart, tmp_path / "a.svg")
        assert word in (tmp_path / "a.svg").read_text()


def test_a_threshold_that_is_not_there_leaves_nothing_decided():
    found = evaluated(Constant)
    assert not question_rows(found, "constant").height
    assert roc_rows(found, ["constant"]).filter(at=CHOSEN).height == 0
    assert roc_rows(found, ["constant"]).filter(at=CURVE).select("fpr", "tpr").rows() == [(0, 0), (1, 1)] * 2


def test_a_split_of_one_class_has_no_curve(found):
    one = found.predictions.with_columns(
        y_true=pl.when(pl.col("split") == "test").then(1.0).otherwise(pl.col("y_true"))
    )
    drawn = roc_rows(CotRun({}, found.document, one), ["counts"])
    assert drawn["split"].unique().to_list() == ["ood_test"]
