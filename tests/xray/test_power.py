"""The battery a question needs, from a run's own variances."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from lmassay.errors import LmassayError
from lmassay.measures.power import clusters_needed, variance_components
from lmassay.storage.runs import read_scores
from lmassay.xray.power import EACH, EFFECTS, power_table
from outside_runs import outside_run, outside_table


@pytest.fixture
def run(tmp_path):
    """Twelve tasks of four templates, without swapped prompts."""
    table = outside_table().filter(pl.col("variant") != "prompt_swap")
    number = pl.col("template").str.extract(r"template (\d+)").cast(pl.Int32)
    shared = pl.when(number.is_null()).then("template").otherwise(pl.format("template {}", number // 3))
    return outside_run(tmp_path / "run", table=table.with_columns(template=shared))


def by_name(table):
    return {row["difference"]: row for row in table["rows"]}


def test_variances_are_those_of_the_run_s_own_tasks(run):
    tasks = read_scores(run)["tasks"]
    expected = variance_components([t["psi_excess"] for t in tasks], [t["template"] for t in tasks])
    found = by_name(power_table(run))["psi_excess"]
    assert found["status"] == "ok"
    np.testing.assert_allclose((found["between"], found["within"]), (expected.between, expected.within), atol=1e-12)


def test_every_effect_and_size_is_answered_and_never_with_under_ten_templates(run):
    answered = [row for row in power_table(run)["rows"] if row["status"] == "ok"]
    assert [row["difference"] for row in answered][:2] == ["real_win - random_label", "real_win - matched_token"]
    for row in answered:
        assert [(c["effect"], c["tasks_per_template"]) for c in row["needed"]] == [
            (e, m) for e in EFFECTS for m in EACH
        ]
        assert all(c["templates"] is None or c["templates"] >= 10 for c in row["needed"])


def test_a_control_that_was_not_run_is_undefined(run):
    swap = by_name(power_table(run))["real_win - prompt_swap"]
    assert (swap["n"], swap["needed"]) == (0, [])
    assert swap["status"] == "undefined: the pilot has under two templates with this figure"


def test_a_pilot_with_one_task_a_template_cannot_tell_its_variances_apart(tmp_path):
    found = by_name(power_table(outside_run(tmp_path / "run")))["psi_excess"]
    assert found["status"].startswith("undefined: no template of the pilot has two tasks")


@pytest.mark.parametrize("wrong", [{"effects": [0]}, {"effects": [1.5]}, {"power": 1}, {"each": [0]}, {"effects": []}])
def test_an_effect_or_a_size_that_is_none_is_refused(run, wrong):
    with pytest.raises(LmassayError, match="bad-request"):
        power_table(run, **wrong)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(LmassayError, match="bad-run-folder"):
        power_table(tmp_path)


def test_needed_templates_are_what_the_measure_says():
    components = variance_components([0, 1, 1, 0, 1, 1], ["a", "a", "b", "b", "c", "c"])
    assert clusters_needed(components, 0.2, 4) > 10
