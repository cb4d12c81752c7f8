"""Ablation of tasks, against whole forward passes with one hook each and plain loops over components."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from made import battery
from made import task as scored_task
from plain_passes import (
    BATTERY,
    NEUTRAL,
    TASKS,
    clean,
    clean_scores,
    first_of,
    ids_of,
    leads,
    read,
    run,
    wide_model,
    wins,
)

import lmassay.models.ablation as engine
from lmassay.evidence import judged
from lmassay.models.trace import site_module
from lmassay.seeds import smallest_hash
from lmassay.storage.rescore import rescore_run
from lmassay.storage.runs import ABLATIONS, LABELS, OPTIONS, RUN, SCORES
from lmassay.xray import ablation
from lmassay.xray.run import Settings, rescored, run_xray
from lmassay.xray.scores import compute_scores
from lmassay.xray.task import Task

ABLATION = Settings(phases=("real", "ablation"))
FIGURES = ("margin", "win", "j")
#: Those that another task of their family can lend outputs to.
LENT = tuple(t for t in TASKS if t.family != "proof_closure")


# ---- the plain way: hooks of torch, one sequence at a time


def _site_of(component, n_heads, model):
    """Module, whether its input is what is replaced, and the columns."""
    _, block, kind, *head = component.split(".")
    if kind != "head":
        return site_module(model, f"block.{block}.{kind}"), False, slice(None)
    size = model.hf.config.hidden_size // n_heads
    at = int(head[0]) * size
    return site_module(model, f"block.{block}.heads"), True, slice(at, at + size)


def _seen(module, before, model, ids):
    """(n_tokens, width) what the module puts out, or reads."""
    kept = []

    def watch():
        if before:
            return module.register_forward_pre_hook(lambda _, args: kept.append(args[0][0].clone()))
        return module.register_forward_hook(lambda _, __, out: kept.append(first_of(out)[0].clone()))

    run(model, ids, [watch])
    return kept[0]


def _without(model, prompt, option, site, value_at):
    """(n_depths,) mean log-probabilities where a token k places before the prompt's end gets ``value_at(k)``."""
    module, before, columns = site
    context, target = ids_of(model, prompt, option)
    ids = [*context, *target[:-1]]
    put = [value_at(max(0, len(context) - 1 - t)) for t in range(len(ids))]

    def change(tensor):
        tensor = tensor.clone()
        for t, value in enumerate(put):
            tensor[0, t, columns] = value if isinstance(value, float) else value[columns]
        return tensor

    def after(_, __, out):
        return (change(out[0]), *out[1:]) if isinstance(out, tuple) else change(out)

    def register():
        if before:
            return module.register_forward_pre_hook(lambda _, args: (change(args[0]), *args[1:]))
        return module.register_forward_hook(after)

    return read(model, *run(model, ids, [register]), list(range(len(context) - 1, len(ids))), target)


def _prompt_ids(model, prompt):
    return [*model.tokens.prefix, *model.tokens.encode(prompt)]


def _donor(task):
    """Another task of the family, by the hash that names it."""
    others = [t for t in TASKS if t.family == task.family and t is not task]
    return smallest_hash(others, 0, task.id, "ablation donor", text=lambda t: t.id)


def _replacement(kind, model, site):
    """Task -> what a token k places before the prompt's end gets."""
    module, before, _ = site
    if kind == "zero":
        return lambda task: lambda k: 0.0
    outputs = {t.id: _seen(module, before, model, _prompt_ids(model, t.prompt)) for t in TASKS}
    if kind == "mean":
        mean = torch.cat(list(outputs.values())).mean(0)
        return lambda task: lambda k: mean

    def of(task):
        donor = outputs[_donor(task).id]
        return lambda k: donor[max(0, len(donor) - 1 - k)]

    return of


def _plain(model, kind, prior, tasks, components, n_heads=4):
    """(component, task id) -> (n_options, n_depths) scores without the component."""
    found = {}
    for component in components:
        site = _site_of(component, n_heads, model)
        replacement = _replacement(kind, model, site)
        for task in tasks:
            value_at = replacement(task)
            found[component, task.id] = np.array(
                [
                    np.subtract(
                        _without(model, task.prompt, option, site, value_at),
                        _without(model, NEUTRAL, option, site, value_at)
                        if prior == "edited"
                        else clean(model, NEUTRAL, option)[0],
                    )
                    for option in task.options
                ]
            )
    return found


def _change(model, task, score):
    """(n_options,) by figure: without the component minus with it."""
    before = clean_scores(model, task)
    n = before.shape[1]
    return {
        "margin": np.subtract(leads(score[:, -1]), leads(before[:, -1])),
        "win": wins(score)[:, -1].astype(float) - wins(before)[:, -1],
        "j": (wins(score).sum(1) - wins(before).sum(1)) / n,
    }


def _weights(model, task, condition):
    """Options that may play the answer, all alike."""
    if condition == "real":
        return [task.answer]
    wrong = [o for o in range(len(task.options)) if o != task.answer]
    if condition == "random_label":
        return wrong
    length = [len(ids_of(model, task.prompt, o)[1]) for o in task.options]
    off = {o: abs(length[o] - length[task.answer]) for o in wrong}
    return [o for o in wrong if off[o] == min(off.values())]


def _mean(values):
    values = list(values)
    return sum(values) / len(values)


def _names(n_blocks, n_heads=0):
    heads = [f"head.{h}" for h in range(n_heads)]
    return [f"block.{b}.{part}" for b in range(n_blocks) for part in ("attention", "mlp", *heads)]


CASES = [
    ("gpt2", "none", "mean", "edited", False),
    ("gpt2", "none", "zero", "clean", True),
    ("llama", "adds", "resample", "edited", False),
    ("llama", "adds", "mean", "clean", True),
    ("bloom", "none", "resample", "clean", False),
    ("bloom", "none", "zero", "edited", False),
]


@pytest.mark.tiny
@pytest.mark.parametrize(("family", "bos", "kind", "prior", "heads"), CASES)
def test_table_and_figures_are_those_of_whole_passes_with_one_hook(tmp_path, family, bos, kind, prior, heads):
    model = wide_model(family, bos)
    settings = replace(ABLATION, ablation=kind, prior=prior, heads=heads)
    result = run_xray(lambda: model, BATTERY, tmp_path / "run", settings)
    table = pl.read_parquet(result.path / ABLATIONS)
    assert dict(table.schema) == ablation.SCHEMA
    tasks = LENT if kind == "resample" else TASKS
    names = _names(model.n_blocks, 4 if heads else 0)
    keys = table.select("component", "task_id", "option").rows()
    assert sorted(keys) == sorted((c, t.id, o) for c in names for t in tasks for o in range(3))
    assert table.select("component", "block", "kind", "head").unique().sort("component").rows() == sorted(
        (c, int(c.split(".")[1]), c.split(".")[2], int(c.split(".")[3]) if "head" in c else None) for c in names
    )

    # Every head would take long the plain way: those of one block stand for the others.
    checked = [c for c in names if "head" not in c or c.startswith("block.1")]
    plain = _plain(model, kind, prior, tasks, checked)
    details = {
        (r["component"], r["family"], r["condition"]): r for r in result.scores["phases"]["ablation"]["components"]
    }
    for (component, task_id), score in plain.items():
        rows = table.filter(component=component, task_id=task_id).sort("option")
        # Some families keep float32 inside whatever the weights' precision.
        np.testing.assert_allclose(rows["score"], score[:, -1], rtol=0, atol=1e-6)
        np.testing.assert_allclose(rows["score"], rows["logprob"] - rows["neutral"], rtol=0, atol=1e-12)
        assert rows["n_won"].to_list() == wins(score).sum(1).tolist()

    families = {f: [t for t in tasks if t.family == f] for f in dict.fromkeys(t.family for t in tasks)}
    change = {(c, t.id): _change(model, t, plain[c, t.id]) for c in checked for t in tasks}
    for condition in ("real", "random_label", "matched_token"):
        for family_name, members in {"all": tasks, **families}.items():
            for component in checked:
                row = details[component, family_name, condition]
                assert row["n"] == len(members)
                for name in FIGURES:
                    expected = _mean(
                        _mean(change[component, t.id][name][o] for o in _weights(model, t, condition)) for t in members
                    )
                    assert row[name] == pytest.approx(expected, abs=1e-6)
        suffix = {"real": "", "random_label": "_rl", "matched_token": "_mt"}[condition]
        for name in FIGURES:
            found = result.scores["scores"][f"ablation_{name}{suffix}"]
            whole = [c for c in names if "head" not in c]
            assert found["value"] == pytest.approx(_mean(details[c, "all", condition][name] for c in whole), abs=1e-9)
            assert (found["n"], found["status"]) == (len(tasks), "few_clusters")
            assert found["low"] <= found["value"] <= found["high"]
    notice = f"{len(TASKS) - len(LENT)} tasks were not ablated: their family has no other task to take outputs from"
    assert (notice in result.scores["notices"]) == (kind == "resample")


@pytest.mark.tiny
def test_without_any_other_task_of_its_family_nothing_is_resampled_and_it_says_so(tmp_path):
    model = wide_model("gpt2")
    alone = replace(BATTERY, tasks=(TASKS[0], TASKS[-1]))
    result = run_xray(lambda: model, alone, tmp_path / "run", replace(ABLATION, ablation="resample"))
    table = pl.read_parquet(result.path / ABLATIONS)
    assert (table.height, dict(table.schema)) == (0, ablation.SCHEMA)
    figures = [s for n, s in result.scores["scores"].items() if n.startswith("ablation")]
    assert len(figures) == 9
    assert {(s["value"], s["status"]) for s in figures} == {(None, "undefined: no task could be ablated")}
    rows = [r["verdict"] for r in result.scores["evidence"] if r["signal"] == "ablation_j"]
    assert rows == ["undecided (no task could be ablated)"] * 2
    assert any(n.startswith("2 tasks were not ablated") for n in result.scores["notices"])
    assert rescore_run(result.path, rescored)[1] is None


@pytest.mark.tiny
@pytest.mark.parametrize("prior", ["edited", "clean"])
def test_distinct_depths_leave_the_last_block_out_of_the_count_and_change_no_output(tmp_path, prior):
    model = wide_model("gpt2")
    paper, distinct = (
        run_xray(lambda: model, BATTERY, tmp_path / depths, replace(ABLATION, depths=depths, prior=prior))
        for depths in ("paper", "distinct")
    )
    a, b = (pl.read_parquet(r.path / ABLATIONS) for r in (paper, distinct))
    assert a.drop("n_won").equals(b.drop("n_won"))
    # The last block repeats final, so where final is won the paper counts one depth more.
    final = (
        a.sort("component", "task_id", "option")
        .group_by("component", "task_id", maintain_order=True)
        .agg(pl.col("score"), pl.col("option"))
    )
    won_final = {
        (c, t, o): lead > 1e-4
        for c, t, scores, options in final.iter_rows()
        for o, lead in zip(options, leads(scores), strict=True)
    }
    keys = a.select("component", "task_id", "option").rows()
    assert (a["n_won"] - b["n_won"]).to_list() == [int(won_final[key]) for key in keys]
    for name in ("margin", "win"):
        assert distinct.scores["scores"][f"ablation_{name}"] == paper.scores["scores"][f"ablation_{name}"]
    shares = {t.id: np.delete(wins(clean_scores(model, t)), -2, 1).mean(1) for t in TASKS}
    n_depths = model.n_blocks + 1
    expected = _mean(
        n / n_depths - shares[t][o] for (_, t, o), n in zip(keys, b["n_won"], strict=True) if o == _answer(t)
    )
    assert distinct.scores["scores"]["ablation_j"]["value"] == pytest.approx(expected)


def _answer(task_id):
    return next(t.answer for t in TASKS if t.id == task_id)


@pytest.mark.tiny
@pytest.mark.parametrize("kind", ["mean", "resample"])
def test_neither_batches_nor_the_order_of_tasks_and_options_changes_a_figure(tmp_path, kind):
    model = wide_model("llama", dtype="float32")
    settings = replace(ABLATION, ablation=kind)
    whole = run_xray(lambda: model, BATTERY, tmp_path / "whole", settings)

    def turned(t: Task) -> Task:
        options = t.options[::-1]
        return replace(t, options=options, answer=options.index(t.options[t.answer]))

    for name, changed, batch_tokens in (
        ("small", BATTERY, 16),
        ("reverse", replace(BATTERY, tasks=TASKS[::-1]), None),
        ("turned", replace(BATTERY, tasks=tuple(turned(t) for t in reversed(TASKS))), None),
    ):
        again = run_xray(lambda: model, changed, tmp_path / name, replace(settings, batch_tokens=batch_tokens))
        if name != "turned":
            a, b = (pl.read_parquet(r.path / ABLATIONS) for r in (whole, again))
            exact = ("component", "task_id", "option", "n_won")
            assert a.select(exact).equals(b.select(exact))
            np.testing.assert_allclose(a["score"], b["score"], rtol=0, atol=1e-4)
        for figure in (n for n in whole.scores["scores"] if n.startswith("ablation")):
            one, two = whole.scores["scores"][figure], again.scores["scores"][figure]
            tolerance = 1e-4 if "margin" in figure else 1e-12
            assert two["value"] == pytest.approx(one["value"], abs=tolerance), (name, figure)


def _digests(result):
    names = (OPTIONS, LABELS, ABLATIONS, SCORES)
    return {n: hashlib.sha256((result / n).read_bytes()).hexdigest() for n in names}


@pytest.mark.tiny
def test_stopped_anywhere_it_goes_on_computes_no_shard_twice_and_ends_byte_for_byte_the_same(tmp_path, monkeypatch):
    """I-89: an interruption costs at most the shard it fell into."""
    model = wide_model("gpt2", dtype="float32")
    monkeypatch.setattr(ablation, "SHARD_TOKENS", 80)
    computed, steps = [], []
    ablate = engine.ablated_means

    def counted(model, requests, *args, **named):
        computed.extend((r.context, r.targets) for r in requests)
        return ablate(model, requests, *args, **named)

    monkeypatch.setattr(engine, "ablated_means", counted)
    whole = run_xray(lambda: model, BATTERY, tmp_path / "whole", ABLATION, progress=lambda *step: steps.append(step))
    in_one_go = sorted(computed)
    n_shards = max(n for phase, _, n in steps if phase == "ablation")
    assert n_shards >= 3
    computed.clear()
    for at in range(1, n_shards + 1):

        def stop(phase, done, _, at=at):
            if phase == "ablation" and done == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_xray(lambda: model, BATTERY, tmp_path / "cut", ABLATION, progress=stop)
        assert json.loads((tmp_path / "cut" / RUN).read_text())["status"] == "interrupted"
    again = run_xray(lambda: model, BATTERY, tmp_path / "cut", ABLATION)
    assert sorted(computed) == in_one_go
    assert _digests(again.path) == _digests(whole.path)
    assert rescore_run(again.path, rescored) == (whole.scores, None)


# ---- figures of a table made by hand


def _asked(n, *, skilled):
    """Tasks of three options, won by the answer throughout; and what one component's absence leaves of it."""
    tasks, rows = [], []
    for i in range(n):
        name = f"t{i:02d}"
        score = np.zeros((3, 5))
        score[0] = 1
        tasks.append(scored_task(score, name=name, template=f"template {i // 2:02d}", n_tokens=[1, 1, 2]))
        for component, left, n_won in (
            ("block.0.attention", (0.0, 1.0, 0.0) if skilled else (1.0, 0.0, 0.0), (0, 5, 0) if skilled else (5, 0, 0)),
            ("block.0.mlp", (1.0, 0.0, 0.0), (5, 0, 0)),
        ):
            kind = component.rpartition(".")[2]
            rows += [(component, 0, kind, None, name, o, left[o], 0.0, left[o], n_won[o]) for o in range(3)]
    decided = compute_scores(battery(tasks), seed=0).decided
    return ablation.summarise(pl.DataFrame(rows, schema=ablation.SCHEMA, orient="row"), decided, 0)


def test_changes_and_expected_controls_by_hand():
    found = _asked(30, skilled=True).scores
    # Two components, of which one costs the answer everything: margin 1 -> -1, win 1 -> 0, all five depths.
    assert found["ablation_margin"].value == pytest.approx(-1)
    assert found["ablation_win"].value == pytest.approx(-0.5)
    assert found["ablation_j"].value == pytest.approx(-0.5)
    # Of the two wrong options one takes over; the one of the answer's length is that one.
    assert found["ablation_j_rl"].value == pytest.approx(0.25)
    assert found["ablation_j_mt"].value == pytest.approx(0.5)
    assert found["ablation_margin_rl"].value == pytest.approx((2 + 0) / 2 / 2)
    assert (found["ablation_j"].n, found["ablation_j"].n_clusters, found["ablation_j"].status) == (30, 15, "ok")


def test_evidence_is_that_the_answer_loses_more_than_a_wrong_option():
    rows = judged(_asked(30, skilled=True).evidence)
    assert [(r.signal, r.control, r.metric, r.verdict) for r in rows] == [
        ("ablation_j", "random_label", "psi", "survives"),
        ("ablation_j", "matched_token", "psi", "survives"),
    ]
    assert [(r.signal_value, r.control_value) for r in rows] == [(0.5, -0.25), (0.5, -0.5)]


def test_components_that_do_nothing_fail():
    rows = judged(_asked(30, skilled=False).evidence)
    assert [(r.difference, r.verdict) for r in rows] == [(0, "fails")] * 2
