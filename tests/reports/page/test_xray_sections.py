"""The xray sections say what the run's own figures and tables say."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from made_phases import add_phases

from lmassay.errors import LmassayError
from lmassay.reports.page.opened import open_run
from lmassay.reports.page.parts import UNDEFINED, Chart, Grid, Table
from lmassay.reports.page.xray import xray_page
from lmassay.reports.page.xray_wins import CONDITIONS, by_depth, read_wins
from lmassay.storage.runs import LABELS, OPTIONS, SCORES
from lmassay.xray.batteries import load_battery
from lmassay.xray.task import Battery, Task
from made_runs import made_run
from outside_runs import outside_run, outside_table


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return add_phases(made_run(tmp_path_factory.mktemp("runs"), "middle", "core50"))


@pytest.fixture(scope="module")
def document(run):
    return json.loads((run / SCORES).read_text())


@pytest.fixture(scope="module")
def wins(run):
    return read_wins(run)


@pytest.fixture(scope="module")
def page(run):
    return xray_page(open_run(run))


def _parts(page):
    return {part.id: part for section in page.sections for part in section.parts}


def _plain_leads(run, variant, condition):
    """Task id -> lead at each depth, a cell at a time."""
    options = pl.read_parquet(run / OPTIONS).filter(variant=variant)
    labels = pl.read_parquet(run / LABELS).filter(variant=variant, condition=condition)
    played = dict(labels.select("task_id", "option").iter_rows())
    scores: dict[str, dict[int, dict[int, float]]] = {}
    for task, option, depth, score in options.select("task_id", "option", "depth_index", "score").iter_rows():
        scores.setdefault(task, {}).setdefault(depth, {})[option] = score
    return {
        task: [at[d][played[task]] - max(s for o, s in at[d].items() if o != played[task]) for d in sorted(at)]
        for task, at in scores.items()
        if task in played
    }


@pytest.mark.parametrize("condition", CONDITIONS)
def test_leads_are_those_of_a_plain_loop(run, wins, condition):
    variant = condition if condition in ("semantics_break", "prompt_swap") else "real"
    expected = _plain_leads(run, variant, condition if variant == "real" else "real")
    for task, lead in zip(wins.tasks["task_id"], wins.leads[condition], strict=True):
        assert lead == pytest.approx(expected[task], abs=1e-12)


def test_depths_won_are_those_of_the_run_s_own_table(wins, document):
    won = dict(zip(wins.tasks["task_id"], wins.won("real").sum(1), strict=True))
    assert won == {t["task_id"]: t["n_real_win_layers"] for t in document["tasks"]}
    shares = dict(zip(wins.tasks["task_id"], wins.won("matched_token").mean(1), strict=True))
    assert [shares[t["task_id"]] for t in document["tasks"]] == pytest.approx([t["j_mt"] for t in document["tasks"]])


def test_tasks_of_different_numbers_of_options_do_not_mix(tmp_path):
    table = outside_table().filter((pl.col("option") < 2) | pl.col("task_id").is_in(["t3", "t7"]))
    run = outside_run(tmp_path / "run", table=table.with_columns(answer=pl.lit(1)))
    wins = read_wins(run)
    expected = _plain_leads(run, "real", "real")
    for task, lead in zip(wins.tasks["task_id"], wins.leads["real"], strict=True):
        assert lead == pytest.approx(expected[task], abs=1e-12)


def test_tied_options_win_nothing(tmp_path):
    table = outside_table().with_columns(logprob=pl.lit(-2.0), neutral=pl.lit(-1.0))
    wins = read_wins(outside_run(tmp_path / "run", table=table))
    assert not wins.won("real").any()
    assert (wins.leads["real"] == 0).all()


def test_a_condition_that_was_not_run_is_no_layer(tmp_path):
    wins = read_wins(outside_run(tmp_path / "run", table=outside_table().filter(variant="real")))
    assert set(wins.leads) == {"real", "random_label", "matched_token"}


def test_a_task_without_the_broken_prompt_is_undefined_there(tmp_path):
    table = outside_table().filter((pl.col("variant") != "semantics_break") | (pl.col("task_id") != "t0"))
    wins = read_wins(outside_run(tmp_path / "run", table=table))
    place = wins.tasks["task_id"].to_list().index("t0")
    assert (wins.won("semantics_break")[place] == UNDEFINED).all()
    assert (np.delete(wins.won("semantics_break"), place, 0) != UNDEFINED).all()


def test_a_cut_table_is_refused(tmp_path):
    run = outside_run(tmp_path / "run")
    options = pl.read_parquet(run / OPTIONS)
    pl.concat([options.head(4), options.tail(-5)]).write_parquet(run / OPTIONS)
    with pytest.raises(LmassayError, match="not complete"):
        read_wins(run)
    (run / OPTIONS).write_bytes((run / OPTIONS).read_bytes()[:-100])
    with pytest.raises(LmassayError, match="bad-run-folder"):
        read_wins(run)


def test_shares_by_depth_are_means_over_tasks_with_intervals_around_them(wins):
    frame = by_depth(wins, 0)
    for row in frame.iter_rows(named=True):
        condition = next(c for c, said in CONDITIONS.items() if said == row["condition"])
        lead = wins.leads[condition][:, row["depth_index"]]
        assert row["won"] == pytest.approx(np.mean(lead > 1e-4))
        assert row["lead"] == pytest.approx(np.mean(lead))
        assert row["n"] == len(lead)
        assert row["won_low"] <= row["won"] <= row["won_high"]


def test_the_map_holds_real_beside_controls_with_prompts_options_tokens_and_scores(page, run):
    grid = _parts(page)["win-map"]
    assert isinstance(grid, Grid)
    assert list(grid.layers) == list(CONDITIONS.values())
    battery = {task.id: task for task in load_battery("core50").tasks}
    scores = pl.read_parquet(run / OPTIONS).filter(variant="real")
    first = 0
    for i, task_id in enumerate(grid.row_labels):
        task = battery[task_id]
        assert task.prompt in grid.hover.texts[i]
        assert [line.split("  (")[0] for line in grid.hover.lines[i]] == list(task.options)
        assert sum("answer" in line.rsplit("(", 1)[1] for line in grid.hover.lines[i]) == 1
        assert "answer" in grid.hover.lines[i][task.answer].rsplit("(", 1)[1]
        mine = scores.filter(task_id=task_id).sort("option", "depth_index")["score"].to_numpy()
        rows = grid.hover.values[first : first + len(task.options)]
        assert rows.ravel() == pytest.approx(mine)
        first += len(task.options)
    assert set(grid.sort_by) >= {"family", "PSI", "first depth won", "outcome"}


def test_without_the_battery_the_map_says_how_to_get_prompts(tmp_path):
    run = outside_run(tmp_path / "run")
    assert "--battery" in _parts(xray_page(open_run(run)))["win-map"].note
    texts = tuple(f"option {i}" for i in range(3))
    battery = Battery("own", "1", tuple(Task(f"t{i}", "f", f"prompt {i}", texts, 0, "t") for i in range(12)))
    grid = _parts(xray_page(open_run(run), batteries=[battery]))["win-map"]
    assert "--battery" not in grid.note
    assert grid.hover.texts == [f"prompt {i}" for i in range(12)]


def test_a_battery_of_other_options_gives_no_prompts(tmp_path):
    run = outside_run(tmp_path / "run")
    other = Battery("own", "1", tuple(Task(f"t{i}", "f", f"prompt {i}", ("a", "b", "c"), 0, "t") for i in range(12)))
    assert "--battery" in _parts(xray_page(open_run(run), batteries=[other]))["win-map"].note


def test_a_map_of_too_many_tasks_is_folded_and_says_where_the_whole_is(run):
    grid = _parts(xray_page(open_run(run), limit=7))["win-map"]
    assert len(grid.row_labels) == 7
    assert all(len(layer) == 7 for layer in grid.layers.values())
    assert "7 of 50" in grid.note
    assert OPTIONS in grid.note


def test_the_reading_of_psi_names_the_run_s_own_figure(page, document):
    psi = document["scores"]["psi"]["value"]
    assert f"{abs(psi):.2f}".replace("0.", ".") in _parts(page)["psi-family"].reading


def test_without_skill_is_psi_bar_less_its_excess(page, document):
    rows = _parts(page)["psi-family"].rows
    for family in document["families"]:
        mine = [t["psi_bar"] - t["psi_excess"] for t in document["tasks"] if t["family"] == family]
        assert rows.filter(family=family)["without_skill"][0] == pytest.approx(np.mean(mine))


def test_outcomes_count_every_task_once(page, document):
    assert _parts(page)["outcomes"].rows["n"].sum() == len(document["tasks"])


def test_the_patching_grid_has_a_cell_for_each_measured_pair_and_nothing_elsewhere(page, document):
    grid = _parts(page)["patching-flips"]
    layer = grid.layers[CONDITIONS["real"]]
    cells = {
        (c["source_index"], c["target_block"]): c
        for c in document["phases"]["patching"]["cells"]
        if c["condition"] == "real"
    }
    for i, source in enumerate((1, 2)):
        for j, target in enumerate((1, 2)):
            cell = cells.get((source, target))
            assert (np.isnan(layer[i, j]) and cell is None) or layer[i, j] == cell["flips"] / cell["n"]
    assert list(grid.row_labels) == ["d1", "d2"]
    assert list(grid.column_labels) == ["block.1", "block.2"]


def test_the_ablation_map_names_the_component_whose_loss_is_largest(page):
    grid = _parts(page)["ablation-margin"]
    assert list(grid.row_labels) == ["attention", "mlp"]
    assert grid.layers[CONDITIONS["real"]].tolist() == [[-0.5, 0.0, 0.5], [-1.5, -1.0, -0.5]]
    assert "block.0 mlp" in grid.reading
    assert "right answer, binder_tracking" in grid.layers


def test_geometry_draws_what_has_values_and_leaves_out_what_is_undefined(page):
    parts = _parts(page)
    assert "geometry-probe" in parts
    assert "geometry-clustering" not in parts
    assert (
        "Probe, logic against compute: highest at d2, .70 [.40, .90], where it is .50 for shuffled labels (n = 5)."
        in parts["geometry-probe"].reading
    )


def test_every_part_has_a_reading_and_ids_are_unique(page):
    parts = [part for section in page.sections for part in section.parts]
    assert all(part.reading.endswith(".") and part.title for part in parts)
    assert len({part.id for part in parts}) == len(parts)
    assert {type(part) for part in parts} == {Chart, Grid, Table}
