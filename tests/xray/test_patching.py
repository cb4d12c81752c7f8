"""Carry-forward patching of tasks, against whole forward passes with one edit each and plain loops over cells."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from made import battery, depths
from made import task as scored_task
from plain_passes import BATTERY, NEUTRAL, TASKS, clean, clean_scores, leads, patched, wide_model, wins

import lmassay.models.patching as engine
from lmassay.evidence import judged
from lmassay.models.open import open_model
from lmassay.seeds import generator
from lmassay.storage.rescore import rescore_run
from lmassay.storage.runs import LABELS, OPTIONS, PATCHES, RUN, SCORES
from lmassay.xray import patching
from lmassay.xray.options import PromptStyle
from lmassay.xray.plan import items_of, plan_run
from lmassay.xray.relabel import Labels
from lmassay.xray.run import Settings, rescored, run_xray
from lmassay.xray.scores import compute_scores
from tiny_models import tiny_hf, tiny_tokenizer

CONDITIONS = {"real": "", "random_label": "_rl", "matched_token": "_mt"}
PATCHING = Settings(phases=("real", "patching"))
NO_LOST = "undefined: no task of this condition was known and then lost with a block left to patch"


def _labels(run):
    """(task id, condition) -> the option that plays the answer."""
    rows = pl.read_parquet(run / LABELS).filter(variant="real")
    return {(r["task_id"], r["condition"]): r["option"] for r in rows.iter_rows(named=True)}


def _plain_cells(model, task, labels):
    """By condition, the cells of the task's own known-then-lost trajectory; nothing where it has none."""
    won, n = wins(clean_scores(model, task)), model.n_blocks
    found = {}
    for condition in CONDITIONS:
        label = labels[task.id, condition]
        lost = won[label, :-1].any() and not won[label, -1]
        # Block t comes after depth s, which is block s - 1; the last block is never a target.
        found[condition] = {
            (s, t) for s in range(n + 1) for t in range(n) if lost and won[label, s] and s - 1 < t <= n - 2
        }
    return found


def _plain_scores(model, task, cell, prior):
    """(n_options,) patched scores of one cell."""
    return [
        patched(model, task.prompt, o, *cell)
        - (patched(model, NEUTRAL, o, *cell) if prior == "edited" else clean(model, NEUTRAL, o)[0][-1])
        for o in task.options
    ]


def _mean(values):
    return sum(values) / len(values)


@pytest.mark.tiny
@pytest.mark.parametrize("prior", ["edited", "clean"])
@pytest.mark.parametrize(("family", "bos"), [("gpt2", "none"), ("llama", "adds"), ("bloom", "none")])
def test_table_and_figures_are_those_of_whole_passes_with_one_edit(tmp_path, family, bos, prior):
    model = wide_model(family, bos)
    assert model.packing == (family != "bloom")
    run = run_xray(lambda: model, BATTERY, tmp_path / "run", replace(PATCHING, prior=prior))
    table, labels = pl.read_parquet(run.path / PATCHES), _labels(run.path)
    assert dict(table.schema) == patching.SCHEMA
    plain = {task.id: _plain_cells(model, task, labels) for task in TASKS}
    expected = {(task.id, *cell) for task in TASKS for cells in plain[task.id].values() for cell in cells}
    assert any(cells["real"] for cells in plain.values())
    assert {s for _, s, _ in expected} >= {0}
    assert set(table.select("task_id", "source_index", "target_block").iter_rows()) == expected

    score = {}
    for task in TASKS:
        for cell in sorted({c for cells in plain[task.id].values() for c in cells}):
            rows = table.filter(task_id=task.id, source_index=cell[0], target_block=cell[1])
            assert rows["option"].to_list() == list(range(len(task.options)))
            assert set(rows["source"]) == {model.depths[cell[0]]}
            assert set(rows["target"]) == {f"block.{cell[1]}"}
            score[task.id, cell] = _plain_scores(model, task, cell, prior)
            np.testing.assert_allclose(rows["score"], score[task.id, cell], rtol=0, atol=1e-6)
            np.testing.assert_allclose(rows["score"], rows["logprob"] - rows["neutral"], rtol=0, atol=1e-12)

    details = run.scores["phases"]["patching"]
    for condition, suffix in CONDITIONS.items():
        margins, gains = {}, {}
        for task in TASKS:
            label, cells = labels[task.id, condition], sorted(plain[task.id][condition])
            if cells:
                before = leads(clean_scores(model, task)[:, -1])[label]
                margins[task.id] = {c: leads(score[task.id, c])[label] for c in cells}
                gains[task.id] = {c: m - before for c, m in margins[task.id].items()}
        figures = {
            "flip": [any(m > 1e-4 for m in by.values()) for by in margins.values()],
            "mean_flip": [_mean([m > 1e-4 for m in by.values()]) for by in margins.values()],
            "best_delta": [max(by.values()) for by in gains.values()],
        }
        for name, values in figures.items():
            found = run.scores["scores"][f"patching_{name}{suffix}"]
            if not values:
                assert (found["value"], found["status"]) == (None, NO_LOST)
                continue
            assert found["value"] == pytest.approx(_mean(values), abs=1e-6)
            assert found["n"] == len(values)
        tasks = {r["task_id"]: r for r in details["tasks"] if r["condition"] == condition}
        assert set(tasks) == set(margins)
        for task_id, row in tasks.items():
            assert row["n_cells"] == len(margins[task_id])
            assert row["flips"] == sum(m > 1e-4 for m in margins[task_id].values())
            assert row["best_delta"] == pytest.approx(max(gains[task_id].values()), abs=1e-6)
        grid = {(r["source_index"], r["target_block"]): r for r in details["cells"] if r["condition"] == condition}
        assert set(grid) == {c for by in margins.values() for c in by}
        for cell, row in grid.items():
            there = [task_id for task_id, by in margins.items() if cell in by]
            assert (row["n"], row["flips"]) == (len(there), sum(margins[t][cell] > 1e-4 for t in there))
            assert row["mean_delta"] == pytest.approx(_mean([gains[t][cell] for t in there]), abs=1e-6)


@pytest.mark.tiny
@pytest.mark.parametrize("family", ["gpt2", "bloom"])
def test_the_readout_column_gives_the_score_at_the_source_and_is_in_no_table(tmp_path, family):
    model = wide_model(family)
    run = run_xray(lambda: model, BATTERY, tmp_path / "run", PATCHING)
    assert pl.read_parquet(run.path / PATCHES)["target_block"].max() < model.n_blocks - 1
    options = pl.read_parquet(run.path / OPTIONS)
    plan = plan_run(items_of(BATTERY, ("real",), 0), PromptStyle(model.tokens), "multi-token", context_length=None)
    cells = [(source, model.n_blocks - 1) for source in range(model.n_blocks)]
    for planned in plan.items:
        own, neutral = engine.patched_means(model, [planned.own, planned.neutral], [cells, cells])
        for (source, _), found in zip(cells, own - neutral, strict=True):
            at_source = options.filter(task_id=planned.item.task_id, depth_index=source).sort("option")["score"]
            # Bloom keeps its position biases in float32 whatever the weights' precision.
            np.testing.assert_allclose(found, at_source, rtol=0, atol=1e-6)


@pytest.mark.tiny
def test_distinct_depths_patch_the_same_cells(tmp_path):
    """The last block repeats ``final``: where it is won, nothing was lost."""
    model = wide_model("gpt2")
    paper, distinct = (
        run_xray(lambda: model, BATTERY, tmp_path / depths, replace(PATCHING, depths=depths))
        for depths in ("paper", "distinct")
    )
    assert pl.read_parquet(paper.path / PATCHES).equals(pl.read_parquet(distinct.path / PATCHES))
    assert pl.read_parquet(paper.path / PATCHES).height
    names = [name for name in paper.scores["scores"] if name.startswith("patching")]
    assert [distinct.scores["scores"][n] for n in names] == [paper.scores["scores"][n] for n in names]
    assert distinct.scores["phases"] == paper.scores["phases"]


@pytest.mark.tiny
def test_neither_batches_nor_the_order_of_tasks_and_options_changes_a_figure(tmp_path):
    model = wide_model("llama", dtype="float32")
    whole = run_xray(lambda: model, BATTERY, tmp_path / "whole", PATCHING)

    def turned(t):
        options = t.options[::-1]
        return replace(t, options=options, answer=options.index(t.options[t.answer]))

    other = replace(BATTERY, tasks=tuple(turned(t) for t in reversed(TASKS)))
    reverse = replace(BATTERY, tasks=TASKS[::-1])
    for name, changed, settings in (
        ("small", BATTERY, replace(PATCHING, batch_tokens=16)),
        ("reverse", reverse, PATCHING),
        ("turned", other, PATCHING),
    ):
        again = run_xray(lambda: model, changed, tmp_path / name, settings)
        a, b = (pl.read_parquet(r.path / PATCHES) for r in (whole, again))
        if name != "turned":
            keys = ("task_id", "source_index", "target_block", "option")
            assert a.select(keys).equals(b.select(keys))
            np.testing.assert_allclose(a["score"], b["score"], rtol=0, atol=1e-4)
        for figure in (n for n in whole.scores["scores"] if n.startswith("patching")):
            one, two = whole.scores["scores"][figure], again.scores["scores"][figure]
            assert two["value"] == pytest.approx(one["value"], abs=1e-4), (name, figure)
            if "delta" not in figure:
                assert two == one
        one, two = (
            [r for r in run.scores["evidence"] if r["signal"] == "patching_mean_flip"] for run in (whole, again)
        )
        assert two == one


def _digests(run):
    return {n: hashlib.sha256((run / n).read_bytes()).hexdigest() for n in (OPTIONS, LABELS, PATCHES, SCORES)}


@pytest.mark.tiny
def test_stopped_anywhere_it_goes_on_computes_no_shard_twice_and_ends_byte_for_byte_the_same(tmp_path, monkeypatch):
    """I-89: an interruption costs at most the shard it fell into."""
    model = wide_model("gpt2", dtype="float32")
    monkeypatch.setattr(patching, "SHARD_CELLS", 16)
    computed = []
    patch = engine.patched_means

    def counted(model, requests, cells, **named):
        computed.extend(r.context for r in requests)
        return patch(model, requests, cells, **named)

    monkeypatch.setattr(engine, "patched_means", counted)
    steps = []
    whole = run_xray(lambda: model, BATTERY, tmp_path / "whole", PATCHING, progress=lambda *step: steps.append(step))
    in_one_go = sorted(computed)
    n_shards = max(n for phase, _, n in steps if phase == "patching")
    assert [done for phase, done, _ in steps if phase == "patching"] == list(range(1, n_shards + 1))
    assert n_shards > 3
    computed.clear()
    for at in range(1, n_shards + 1):

        def stop(phase, done, _, at=at):
            if phase == "patching" and done == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_xray(lambda: model, BATTERY, tmp_path / "cut", PATCHING, progress=stop)
        assert json.loads((tmp_path / "cut" / RUN).read_text())["status"] == "interrupted"
        assert not (tmp_path / "cut" / SCORES).exists()
    again = run_xray(lambda: model, BATTERY, tmp_path / "cut", PATCHING)
    assert sorted(computed) == in_one_go
    assert _digests(again.path) == _digests(whole.path)
    assert rescore_run(again.path, rescored) == (whole.scores, None)


@pytest.mark.tiny
def test_where_nothing_was_lost_the_figures_are_undefined_and_not_zero(tmp_path):
    hf = tiny_hf("gpt2", tie_word_embeddings=False)
    hf.lm_head.weight.data.zero_()
    flat = open_model(hf, tokenizer=tiny_tokenizer())
    run = run_xray(lambda: flat, BATTERY, tmp_path / "run", PATCHING)
    table = pl.read_parquet(run.path / PATCHES)
    assert (table.height, dict(table.schema)) == (0, patching.SCHEMA)
    figures = {n: s for n, s in run.scores["scores"].items() if n.startswith("patching")}
    assert len(figures) == 9
    assert {(s["value"], s["status"], s["n"]) for s in figures.values()} == {(None, NO_LOST, 0)}
    rows = [r for r in run.scores["evidence"] if r["signal"] == "patching_mean_flip"]
    assert [(r["difference"], r["verdict"][:11]) for r in rows] == [(None, "undecided (")] * 2
    assert rescore_run(run.path, rescored)[1] is None


# ---- figures of tables made by hand: five depths, so blocks 0 to 2, and targets 0 and 1


def _asked(winners, name, *, template=None, labels=(0, 1, 2)):
    """A task of three options in which option `winners[d]` leads by 1 at depth d; who plays the answer, and labels."""
    score = np.zeros((3, len(winners)))
    score[list(winners), range(len(winners))] = 1
    return scored_task(score, answer=labels[0], name=name, template=template), Labels(*labels, 0)


def _decided(asked):
    scored = battery([t for t, _ in asked])
    assert scored.depths == depths(5)
    return compute_scores(scored, seed=0, labels={t.task_id: labels for t, labels in asked}).decided


def _table(cells):
    """Task id -> {(source, target): scores of the three options}."""
    rows = [
        (task, depths(5)[s], s, f"block.{t}", t, o, score, 0.0, score)
        for task, by_cell in cells.items()
        for (s, t), scores in by_cell.items()
        for o, score in enumerate(scores)
    ]
    return pl.DataFrame(rows, schema=patching.SCHEMA, orient="row")


WON, LOST, TIED = (1.0, 0.0, 0.5), (0.0, 1.0, 2.0), (1.0, 1.0, 0.0)


def test_flip_mean_flip_and_best_delta_by_hand():
    asked = [_asked([0, 0, 1, 2, 2], "a"), _asked([1, 0, 2, 2, 2], "b"), _asked([0, 0, 0, 0, 0], "kept")]
    # Option 0 is lost by 1 at the end, so a margin of .5 is a gain of 1.5.
    cells = {"a": {(0, 0): WON, (0, 1): LOST, (1, 1): TIED}, "b": {(1, 1): LOST}}
    cells["b"][0, 0] = WON  # a cell of another condition: option 0 did not win at embed
    found = patching.summarise(_table(cells), _decided(asked), 0)
    assert found.scores["patching_flip"].value == 0.5
    assert found.scores["patching_mean_flip"].value == pytest.approx((1 / 3 + 0) / 2)
    assert found.scores["patching_best_delta"].value == pytest.approx((1.5 + -1) / 2)
    assert found.scores["patching_flip"].n == 2
    real = [r for r in found.details["tasks"] if r["condition"] == "real"]
    assert [(r["task_id"], r["n_cells"], r["flips"]) for r in real] == [("a", 3, 1), ("b", 1, 0)]


def test_a_tie_at_the_end_is_no_flip():
    found = patching.summarise(_table({"a": {(0, 0): TIED}}), _decided([_asked([0, 1, 2, 2, 2], "a")]), 0)
    assert found.scores["patching_flip"].value == 0
    assert found.scores["patching_best_delta"].value == 1


def test_each_condition_has_its_own_lost_tasks_and_cells():
    """Option 1, the random label, is lost at block.0; option 2 wins at the end and is lost by nobody."""
    asked = [_asked([0, 1, 2, 2, 2], "a")]
    cells = {"a": {(0, 0): WON, (0, 1): LOST, (1, 1): (0.0, 3.0, 1.0)}}
    found = patching.summarise(_table(cells), _decided(asked), 0)
    assert found.scores["patching_mean_flip"].value == 0.5
    assert found.scores["patching_mean_flip_rl"].value == 1
    assert found.scores["patching_best_delta_rl"].value == 3
    assert found.scores["patching_mean_flip_mt"].status == NO_LOST
    grid = [(r["condition"], r["source_index"], r["target_block"], r["n"]) for r in found.details["cells"]]
    assert grid == [("real", 0, 0, 1), ("real", 0, 1, 1), ("random_label", 1, 1, 1)]


def test_what_was_won_too_late_to_be_patched_is_counted():
    """At block.1, the last block but one, no target is left."""
    found = patching.summarise(_table({}), _decided([_asked([2, 2, 0, 2, 2], "late")]), 0)
    assert found.scores["patching_flip"].status == NO_LOST
    assert found.notices == ("1 known-then-lost tasks were not patched: won too late to leave a block to patch",)


def _many(n, *, flips=lambda i: True, control=lambda i: False):
    """Tasks whose answer and whose random label are both lost; every other one has no random label to lose."""
    asked, cells = [], {}
    for i in range(n):
        name = f"t{i:02d}"
        asked.append(_asked([0, 1 if i % 2 else 2, 2, 2, 2], name, template=f"template {i // 2:02d}"))
        cells[name] = {(0, 0): WON if flips(i) else LOST, (0, 1): LOST}
        cells[name] |= {(1, 1): (0.0, 3.0, 1.0) if control(i) else LOST} if i % 2 else {}
    return asked, cells


def test_intervals_are_a_plain_bootstrap_over_the_templates_of_the_lost_tasks():
    asked, cells = _many(30, flips=lambda i: i % 3 == 0)
    found = patching.summarise(_table(cells), _decided(asked), 0).scores["patching_mean_flip"]
    assert (found.n, found.n_clusters, found.status) == (30, 15, "ok")
    values = [[0.5 * (i % 3 == 0) for i in (2 * k, 2 * k + 1)] for k in range(15)]
    times = generator(0, "patching real", "interval").multinomial(15, [1 / 15] * 15, size=2000)
    draws = [sum(n * sum(v) for n, v in zip(row, values, strict=True)) / (2 * sum(row)) for row in times.tolist()]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])))


@pytest.mark.parametrize(("control", "verdict"), [(False, "survives"), (True, "undecided")])
def test_evidence_holds_the_mean_flip_against_that_of_the_relabelled_tasks(control, verdict):
    asked, cells = _many(40, control=lambda i: control and i % 4 == 1)
    rows = judged(patching.summarise(_table(cells), _decided(asked), 0).evidence)
    random, matched = rows
    assert [(r.signal, r.control, r.metric) for r in rows] == [
        ("patching_mean_flip", c, "rate") for c in ("random_label", "matched_token")
    ]
    assert random.signal_value == 0.5
    assert random.control_value == (0.5 if control else 0)
    assert (random.n, random.n_clusters, random.verdict) == (40, 20, verdict)
    # Option 2 wins at the end in all of them.
    assert matched.difference is None
    assert matched.verdict.startswith("undecided (no task")


def test_the_order_of_the_table_s_tasks_changes_nothing():
    asked, cells = _many(24, flips=lambda i: i % 3 == 0)
    one = patching.summarise(_table(cells), _decided(asked), 0)
    other = patching.summarise(_table(dict(reversed(cells.items()))), _decided(asked[::-1]), 0)
    assert one == other
