"""The leaderboard: cells of the runs, aggregates by hand, order, published rows, and what is refused."""

from __future__ import annotations

import csv
import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_cot import made_data

from lmassay.cli import main
from lmassay.cot.evaluate import evaluate
from lmassay.cot.export import template
from lmassay.cot.external import score_predictions
from lmassay.cot.leaderboard import leaderboard
from lmassay.cot.published_results import read_published
from lmassay.cot.tasks import find_task
from lmassay.errors import LmassayError
from lmassay.methods.method import Method, check_training

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "cot_published_results.csv"
SEVEN = {n: find_task(str(n)) for n in range(1, 8)}


class Waits(Method):
    """Counts one word."""

    id = "waits"
    weight = 1.0

    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)

    def score(self, X):
        return np.array([self.weight * x.text("cot").count("wait") + len(x.text("cot")) / 1e4 for x in X])


class Letters(Waits):
    """Reads next to nothing."""

    id = "letters"
    weight = 0.0


def data_of(number, **more):
    """A made data set under a published task's name."""
    task = find_task(str(number))
    made = made_data(task.kind, n=60, seed=number, **more)
    return replace(made, task=replace(made.task, id=task.id, number=number))


def altered(run, **task):
    """The run, had its data been of another layout, regime, content …"""
    identity = run.document["identity"]
    return replace(run, document=run.document | {"identity": identity | {"task": identity["task"] | task}})


def under(run, number):
    """The run, had its data been another task's; drawn anew, for draws go by the task's name."""
    task = find_task(str(number)).id
    return replace(altered(run, id=task), predictions=run.predictions.with_columns(task=pl.lit(task)))


@pytest.fixture(scope="module")
def runs():
    """One method on all seven tasks, another on three; five are measured, the others are those under another name."""
    made = {
        (m.id, n): evaluate(data_of(n), m) for m, n in ((Waits, 3), (Waits, 4), (Waits, 6), (Letters, 3), (Letters, 6))
    }
    for number, like in ((1, 3), (2, 6), (5, 4), (7, 3)):
        made["waits", number] = under(made["waits", like], number)
    made["letters", 2] = under(made["letters", 6], 2)
    return made


@pytest.fixture(scope="module")
def whole(runs):
    """The runs of the method that has all tasks."""
    return [run for (method, _), run in runs.items() if method == "waits"]


@pytest.fixture(scope="module")
def board(whole):
    return leaderboard(whole)


def cell(board, row, number, figure, part):
    return board.cells.filter(row=row, task=SEVEN[number].id, figure=figure, part=part).row(0, named=True)


def aggregate(board, row, figure, part="ood"):
    return board.aggregates.filter(row=row, figure=figure, part=part).row(0, named=True)


def headline(number):
    return "g_mean2_mc" if number in (4, 5) else "g_mean2"


def values(runs, method, part, figure):
    """Straight from the runs' documents."""
    at = {"id": "test", "ood": "ood_test"}[part]
    return [runs[method, n].document["scores"][f"{at}.{figure(n)}"]["value"] for n in SEVEN]


def published_file(tmp_path, rows):
    path = tmp_path / "published.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "method", "metric", "id", "ood"])
        writer.writerows(rows)
    return path


def test_cells_are_those_of_the_runs_with_the_interval_that_draws_validation_questions_too(runs, board):
    for (method, number), run in runs.items():
        if method != "waits":
            continue
        for part, at in (("id", "test"), ("ood", "ood_test")):
            found = cell(board, method, number, "g_mean2", part)
            expected = run.document["scores"][f"{at}.g_mean2_retuned"]
            assert [found[k] for k in ("value", "low", "high", "n", "n_questions")] == [
                expected[k] for k in ("value", "low", "high", "n", "n_clusters")
            ]
            area = run.document["scores"][f"{at}.auroc"]["value"]
            assert cell(board, method, number, "auroc", part)["value"] == area
    assert cell(board, "shortcuts", 3, "g_mean2", "id")["kind"] == "control"


def test_aggregates_are_plain_means_and_medians(runs, board):
    for part in ("id", "ood"):
        for name, figure in (
            ("mean7_plain", lambda n: "g_mean2"),
            ("mean7_published_convention", headline),
            ("mean7_auroc", lambda n: "auroc"),
        ):
            expected = sum(values(runs, "waits", part, figure)) / 7
            found = aggregate(board, "waits", name, part)
            assert found["value"] == pytest.approx(expected, abs=1e-12)
            assert found["low"] < found["value"] < found["high"]
    median = statistics.median(values(runs, "waits", "ood", headline))
    assert aggregate(board, "waits", "median_ood")["value"] == pytest.approx(median, abs=1e-12)


def test_the_interval_of_a_mean_is_as_narrow_as_seven_independent_tasks_make_it(runs, board):
    cells = [cell(board, "waits", n, "auroc", "id") for n in SEVEN]
    expected = sum((c["high"] - c["low"]) ** 2 for c in cells) ** 0.5 / 7
    found = aggregate(board, "waits", "mean7_auroc", "id")
    assert found["high"] - found["low"] == pytest.approx(expected, rel=0.15)


def test_rows_are_ordered_by_median_ood(board):
    medians = [aggregate(board, row.label, "median_ood")["value"] for row in board.rows]
    known = [m for m in medians if m is not None]
    assert medians == sorted(known, reverse=True) + [None] * (len(medians) - len(known))
    assert board.common == tuple(task.id for task in SEVEN.values())
    # Agreement applies to two tasks only, so it has no place in the order.
    assert aggregate(board, "agreement", "median_ood")["status"] == "undefined: 2 of 7 tasks"


def test_an_undefined_figure_is_named_and_never_zero(runs):
    constant = evaluate(data_of(3), type("Same", (Waits,), {"id": "same", "score": lambda self, X: np.ones(len(X))}))
    board = leaderboard([constant, runs["waits", 3]])
    assert cell(board, "same", 3, "g_mean2", "ood")["status"] == "undefined: no_threshold"
    found = aggregate(board, "same", "median_ood")
    assert (found["value"], found["status"]) == (None, f"undefined: undefined on {SEVEN[3].id}")
    assert board.rows[-1].label == "same"


def test_with_one_task_the_median_is_its_cell_interval_and_all(runs):
    board = leaderboard([runs["waits", 6]])
    one, median = cell(board, "waits", 6, "g_mean2", "ood"), aggregate(board, "waits", "median_ood")
    assert [median[k] for k in ("value", "low", "high", "status")] == [
        one[k] for k in ("value", "low", "high", "status")
    ]
    assert aggregate(board, "waits", "mean7_plain")["status"] == "undefined: 1 of 7 tasks"


def test_the_order_is_over_tasks_that_every_row_has(runs):
    board = leaderboard([runs["waits", 1], runs["waits", 2], runs["waits", 6], runs["letters", 2], runs["letters", 6]])
    assert board.common == (SEVEN[2].id, SEVEN[6].id)
    assert any(f"{SEVEN[1].id}: missing from letters" in notice for notice in board.notices)
    apart = leaderboard([runs["waits", 1], runs["letters", 2]])
    assert apart.common == ()
    assert aggregate(apart, "waits", "median_ood")["status"] == "undefined: no task is common to all rows"


def test_the_order_of_runs_changes_nothing(runs):
    some = [runs[key] for key in (("waits", 2), ("letters", 2), ("waits", 6), ("letters", 6))]
    one, other = leaderboard(some), leaderboard(some[::-1])
    assert one.table.equals(other.table)
    assert one.best.equals(other.best)


def test_regression_stands_in_cells_and_not_in_the_seven(runs):
    made = data_of(8, ood=("ood_test_1", "ood_test_2", "ood_test_3"))
    one = evaluate(made, Waits)
    board = leaderboard([one, runs["waits", 3]])
    found = board.cells.filter(row="waits", task="answer_entropy", figure="r2", part="ood").row(0, named=True)
    assert found["value"] is not None
    assert board.common == (SEVEN[3].id,)
    alone = leaderboard([one])
    assert alone.common == ("answer_entropy",)
    assert aggregate(alone, "waits", "median_ood")["value"] == found["value"]


def test_published_rows_stand_beside_ours_where_the_data_is_the_same(runs, whole, tmp_path):
    rows = [(f"{n}_x", m, "gmean2", round(0.1 * n, 3), v) for n in SEVEN for m, v in (("TF-IDF", 0.2), ("Few-shot LLMs (conf)", 0.4))]  # fmt: skip
    rows += [(f"{n}_x", "Few-shot LLMs", "auroc", 0.6, 0.5) for n in SEVEN]
    path = published_file(tmp_path, rows)
    board = leaderboard(whole, with_published=path)
    for n in SEVEN:
        mine = board.cells.filter(row="TF-IDF (published)", task=SEVEN[n].id)
        # The published figures of tasks 1 and 2 are of the other layout.
        assert mine["figure"].unique().to_list() == ([] if n < 3 else [headline(n)])
    assert aggregate(board, "TF-IDF (published)", "median_ood")["value"] == 0.2
    assert board.common == tuple(SEVEN[n].id for n in range(3, 8))
    assert aggregate(board, "TF-IDF (published)", "mean7_published_convention")["status"] == "undefined: 5 of 7 tasks"
    assert aggregate(board, "TF-IDF (published)", "mean7_plain")["value"] is None
    llm = "Few-shot LLMs (conf) (published)"
    assert board.cells.filter(row=llm, figure="auroc", part="ood")["value"].to_list() == [0.5] * 5
    assert {row.label for row in board.rows if row.llm} == {llm}
    best = board.best.filter(task=SEVEN[6].id, part="ood").row(0, named=True)
    ours = runs["waits", 6].document["scores"]["ood_test.g_mean2"]["value"]
    assert best["non_llm_value"] == max(ours, 0.2)
    assert best["gain_percent"] == pytest.approx(100 * (max(ours, 0.2) - 0.4) / 0.4)


def test_in_the_layout_post_two_regimes_make_one_row_beside_the_published(runs, tmp_path):
    path = published_file(tmp_path, [("1_x", "Linear probes", "gmean2", 0.6, 0.5)])
    one, other = (
        altered(run, layout="post", regime=regime, splits=["test"], ood_splits=ood)
        for run, regime, ood in ((runs["waits", 1], "id", []), (runs["waits", 1], "ood", ["test"]))
    )
    board = leaderboard([one, other], with_published=path)
    for run, part in ((one, "id"), (other, "ood")):
        found = cell(board, "waits", 1, "g_mean2", part)
        assert found["value"] == run.document["scores"]["test.g_mean2"]["value"]
        assert found["regime"] == part
        assert cell(board, "Linear probes (published)", 1, "g_mean2", part)["value"] == {"id": 0.6, "ood": 0.5}[part]
    assert any("one test set" in notice for notice in board.notices)
    with pytest.raises(LmassayError, match="differ in regime: id and ood") as error:
        leaderboard([one, other])
    assert error.value.code == "runs-not-comparable"


@pytest.mark.parametrize(
    ("other", "message", "code"),
    [
        ({"layout": "post"}, "differ in layout: head and post", "runs-not-comparable"),
        ({"sha256": "f" * 64}, "differ in data: .* and ffffffffffffffff", "runs-not-comparable"),
        ({"validation": "held_out"}, "differ in validation: published and held_out", "runs-not-comparable"),
        ({}, "both runs of letters", "bad-request"),
    ],
)
def test_runs_of_other_data_are_refused_by_the_field_that_differs(runs, other, message, code):
    with pytest.raises(LmassayError, match=message) as error:
        leaderboard([runs["letters", 3], altered(runs["letters", 3], **other)])
    assert error.value.code == code


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Both methods on task 3, on disk."""
    root = tmp_path_factory.mktemp("runs")
    for method in (Waits, Letters):
        evaluate(data_of(3), method, out=root / method.id)
    return root


def test_nothing_another_suite_and_an_unfinished_run_are_refused(folders, tmp_path):
    with pytest.raises(LmassayError, match="needs a run"):
        leaderboard([])
    run = Path(shutil.copytree(folders / "letters", tmp_path / "run"))
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"status": "interrupted"}))
    with pytest.raises(LmassayError, match="the run is interrupted"):
        leaderboard([run])
    record["identity"]["suite"] = "xray"
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(LmassayError, match="suite xray"):
        leaderboard([run])


def test_a_run_with_another_runs_scores_or_an_altered_table_is_refused(folders, tmp_path):
    run = Path(shutil.copytree(folders / "letters", tmp_path / "run"))
    (run / "scores.json").write_text((folders / "waits" / "scores.json").read_text())
    with pytest.raises(LmassayError, match=r"scores\.json: it is not what this run wrote"):
        leaderboard([run])
    pl.read_parquet(run / "predictions.parquet").head(9).write_parquet(run / "predictions.parquet")
    with pytest.raises(LmassayError, match=r"predictions\.parquet is not the table"):
        leaderboard([run])


def test_a_control_that_differs_between_seeds_is_told(runs):
    board = leaderboard([runs["waits", 3], evaluate(data_of(3), Letters, seed=5)])
    assert any(notice.startswith(f"random on {SEVEN[3].id} differs") for notice in board.notices)
    assert not any("differs" in notice for notice in leaderboard([runs["waits", 3], runs["letters", 3]]).notices)


def test_predictions_made_elsewhere_say_so_and_may_be_an_llms(runs):
    data = data_of(3)
    table = template(data).with_columns(score=pl.col("key").str.len_chars() + pl.int_range(pl.len()) * 0.1)
    board = leaderboard([runs["waits", 3], score_predictions(data, table, name="oracle", llm=True)])
    row = next(row for row in board.rows if row.label == "oracle (external)")
    assert (row.kind, row.llm) == ("external", True)
    best = board.best.filter(part="id").row(0, named=True)
    assert (best["best_non_llm"], best["best_llm"]) == ("waits", "oracle (external)")
    if best["llm_value"] > 0:
        assert best["low"] <= best["gain_percent"] <= best["high"]


def test_a_gain_over_nothing_is_undefined(runs, tmp_path):
    path = published_file(tmp_path, [("3_x", "Few-shot LLMs (binary)", "gmean2", 0, 0)])
    best = leaderboard([runs["waits", 3]], with_published=path).best
    assert best["status"].to_list() == ["undefined: the best LLM is not above 0"] * 2
    assert best["gain_percent"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "needs rows with the columns"),
        ([("3_x", "TF-IDF", "f1", 0.1, 0.2)], "line 2: no task and metric"),
        ([("12_x", "TF-IDF", "auroc", 0.1, 0.2)], "line 2: no task and metric"),
        ([("3_x", "TF-IDF", "auroc", 0.1, "high")], "'high' is no number"),
        ([("3_x", "TF-IDF", "auroc", 0.1, "nan")], "'nan' is no number"),
        ([("3_x", "TF-IDF", "auroc", 0.1, 0.2)] * 2, "twice"),
    ],
)
def test_a_file_of_published_scores_that_does_not_fit_is_named(tmp_path, rows, message):
    with pytest.raises(LmassayError, match=message):
        read_published(published_file(tmp_path, rows))
    with pytest.raises(LmassayError, match="cannot be read"):
        read_published(tmp_path / "none.csv")


def test_published_figures_are_refused_beside_data_of_ones_own(runs, tmp_path):
    path = published_file(tmp_path, [("3_x", "TF-IDF", "auroc", 0.1, 0.2)])
    with pytest.raises(LmassayError, match="of the layout own"):
        leaderboard([altered(runs["letters", 3], layout="own")], with_published=path)


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the published scores are not beside this checkout")
def test_the_published_file_is_read_whole():
    cells = read_published(REFERENCE)
    assert len(cells) == 2 * 104
    attention = [
        c.value for c in cells if (c.method, c.part) == ("Attention probes", "ood") and c.figure.startswith("g")
    ]
    assert statistics.median(attention) == 0.345
    assert {c.figure for c in cells if c.number in (4, 5)} == {"g_mean2_mc", "auroc"}
    assert {c.method for c in cells if c.llm and c.figure == "auroc"} == {
        "Few-shot LLMs (conf)",
        "Zero-shot LLMs (conf)",
    }


def test_the_command_prints_and_writes_csv_and_figure(folders, tmp_path, capsys):
    path = published_file(tmp_path, [("3_x", "TF-IDF", "gmean2", 0.1, 0.2)])
    words = ["cot", "leaderboard", folders / "waits", folders / "letters", "--with-published", path]
    status, out = _command(capsys, *words, "--csv", tmp_path / "b.csv", "--figure", tmp_path / "b.svg")
    assert status == 0
    for shown in (
        "waits",
        "TF-IDF (published)",
        "median_ood",
        "best non-LLM",
        "note: published figures have no interval",
    ):
        assert shown in out.out
    table = pl.read_csv(tmp_path / "b.csv")
    assert {"row", "task", "part", "figure", "value", "low", "high", "n"} <= set(table.columns)
    assert "waits" in (tmp_path / "b.svg").read_text()
    status, out = _command(capsys, *words, "--json")
    assert status == 0
    assert json.loads(out.out)["rows"][0]["row"]
    status, out = _command(capsys, *words, "--figure", tmp_path / "b.pdf")
    assert status == 2
    assert out.err.count("\n") == 1


def _command(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return stop.value.code, capsys.readouterr()


class Easy(Waits):
    """Answers only what is easy."""

    id = "easy"
    abstains = "when a text is long"

    def score(self, X):
        scores = super().score(X)
        return np.where(np.array([len(x.text("cot")) for x in X]) % 3 == 0, np.nan, scores)


def test_who_answers_only_some_rows_has_no_figure_on_the_board(runs):
    """I-85: else the best method would be the one that answers the least."""
    board = leaderboard([runs["waits", 3], evaluate(data_of(3), Easy)])
    cells = board.cells.filter(row="easy", headline=True)
    assert cells["value"].to_list() == [None, None]
    assert all(s.startswith("undefined: abstained on ") and s.endswith(" of 60") for s in cells["status"])
    assert board.cells.filter(row="waits", headline=True)["value"].null_count() == 0
