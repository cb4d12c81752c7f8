"""Charts of the cot suite are drawn without a browser, with every row and no undefined one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from lmassay.cot.compression import cells_of
from lmassay.cot.compression_scores import compression_report
from lmassay.cot.entropy import entropy_report
from lmassay.cot.evaluate import evaluate
from lmassay.cot.finished import read_run
from lmassay.cot.leaderboard import leaderboard
from lmassay.errors import LmassayError
from lmassay.reports.cot_charts import compression_figure, entropy_chart, evaluation_chart, leaderboard_chart
from lmassay.reports.figure_file import save_chart

sys.path.append(str(Path(__file__).parents[1] / "cot"))
from made_cot import made_data
from test_compression import made_records


def drawn(chart, path):
    save_chart(chart, path)
    return path.read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "one"
    evaluate(made_data(n=40), "length", out=path)
    return path


def test_an_evaluation_and_a_leaderboard_are_drawn_with_every_defined_figure(folder, tmp_path):
    run = read_run(folder)
    for chart, figure in (
        (evaluation_chart(run, "auroc"), "auroc"),
        (leaderboard_chart(leaderboard([run])), "g_mean2"),
    ):
        svg = drawn(chart, tmp_path / "a.svg")
        known = run.scores.filter(pl.col("figure") == figure, pl.col("value").is_not_null())["method"].unique()
        assert {"length", "random", "shortcuts"} <= set(known)
        for method in run.scores["method"].unique():
            assert (f">{method}<" in svg) == (method in set(known))
    assert "ood_test" in drawn(evaluation_chart(run), tmp_path / "a.svg")


def test_a_finished_run_is_the_evaluation_it_was(folder):
    again = read_run(folder)
    first = evaluate(made_data(n=40), "length")
    assert again.document == first.document
    assert again.scores.equals(first.scores)


def test_tasks_8_and_9_are_drawn(tmp_path):
    made = made_data("regression", n=60)
    for split in made.splits.values():
        object.__setattr__(
            split,
            "hidden",
            split.hidden.with_columns(
                sentence_idx=pl.Series(np.arange(60)), source_rollout_idx=pl.Series(np.arange(60) % 2)
            ),
        )
    svg = drawn(entropy_chart(entropy_report(made)), tmp_path / "e.svg")
    assert "entropy of the answer, nats" in svg
    svg = drawn(compression_figure(compression_report(cells_of(made_records()))), tmp_path / "c.svg")
    for word in ("monitor", "last_m", "deletion", "(.2,.3]", "share of kept sentences"):
        assert word in svg
    assert "baseline" not in svg


def test_a_png_is_one_and_another_kind_is_refused(tmp_path):
    chart = compression_figure(compression_report(cells_of(made_records())))
    save_chart(chart, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(LmassayError, match=r"c\.pdf"):
        save_chart(chart, tmp_path / "c.pdf")


def test_without_places_there_is_no_figure_of_entropies():
    with pytest.raises(LmassayError, match="does not say where"):
        entropy_chart(entropy_report(made_data("regression", n=40)))
