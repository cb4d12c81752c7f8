"""`lmassay show` on narrow terminals, in logs, and with its heat maps, against loops over the run's own tables."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import polars as pl
import pytest
from made_runs_of_cot import Counts, evaluated

from lmassay.cli import main
from lmassay.reports.page.xray_wins import read_wins
from lmassay.reports.terminal_maps import ablation_maps, patching_maps, score_map, win_map
from lmassay.storage.runs import RUN, SCORES
from outside_runs import outside_run, outside_table

HOSTILE = "[bold red]x[/] \x1b[31m\x07\u202egnp é \ud800"


@pytest.fixture(scope="module")
def xray(tmp_path_factory):
    return outside_run(tmp_path_factory.mktemp("x") / "run", table=outside_table())


@pytest.fixture(scope="module")
def cot(tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "run"
    evaluated(Counts, out=path)
    return path


def shown(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["show", *map(str, words)])
    assert not stop.value.code
    return capsys.readouterr().out


def narrow(monkeypatch):
    """Standard output as a terminal of 80 columns."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


@pytest.mark.parametrize("suite", ["xray", "cot"])
def test_at_80_columns_no_line_is_longer_and_no_number_is_broken(suite, request, capsys, monkeypatch):
    narrow(monkeypatch)
    run = request.getfixturevalue(suite)
    out = shown(capsys, run)
    table = out[: out.index("run folder:")]
    assert max(map(len, table.splitlines())) <= 80
    document = json.loads((run / SCORES).read_text())
    for row in [*document["evidence"], *document["scores"].values()]:
        if row["low"] is not None:
            assert f"[{row['low']:.3f}, {row['high']:.3f}]" in out


@pytest.mark.parametrize("suite", ["xray", "cot"])
def test_at_80_columns_each_evidence_row_has_its_line_under_its_signal(suite, request, capsys, monkeypatch):
    narrow(monkeypatch)
    run = request.getfixturevalue(suite)
    lines = shown(capsys, run).splitlines()
    place = lines.index("Evidence")
    for row in json.loads((run / SCORES).read_text())["evidence"]:
        head = next(i for i, line in enumerate(lines) if i > place and line.strip() == row["signal"])
        first = row["control"].split()[0]
        mine = next(line for line in lines[head:] if line.strip().startswith(first))
        at = lines.index(mine, head)
        assert row["verdict"].split()[0] in " ".join(lines[at : at + 2])


@pytest.mark.parametrize("suite", ["xray", "cot"])
def test_plain_is_ascii_and_says_what_the_other_says(suite, request, capsys):
    run = request.getfixturevalue(suite)
    plain, other = shown(capsys, run, "--plain"), shown(capsys, run)
    assert plain.isascii()
    assert "\x1b" not in plain
    assert re.findall(r"\d\.\d{3}", plain) == re.findall(r"\d\.\d{3}", other)


@pytest.mark.parametrize("suite", ["xray", "cot"])
def test_plain_on_a_terminal_has_no_colour_and_its_width(suite, request, capsys, monkeypatch):
    narrow(monkeypatch)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = shown(capsys, request.getfixturevalue(suite), "--plain")
    assert "\x1b" not in out
    assert out.isascii()
    assert max(map(len, out[: out.index("run folder:")].splitlines())) <= 80


@pytest.mark.parametrize("suite", ["xray", "cot"])
def test_json_is_the_document_and_nothing_else(suite, request, capsys):
    run = request.getfixturevalue(suite)
    assert json.loads(shown(capsys, run, "--json")) == json.loads((run / SCORES).read_text())


@pytest.mark.parametrize(("suite", "where"), [("xray", "model"), ("cot", "command")])
def test_plain_text_of_a_hostile_record_is_ascii(suite, where, request, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(request.getfixturevalue(suite), run)
    record = json.loads((run / RUN).read_text())
    record["identity"].setdefault("method", {})
    if where == "model":
        record["model"]["name"] = HOSTILE
    else:
        record["identity"]["method"]["id"] = HOSTILE
    (run / RUN).write_text(json.dumps(record))
    out = shown(capsys, run, "--plain")
    assert out.isascii()
    assert r"\x1b[31m\x07\u202egnp \xe9 \ud800" in out


def test_the_map_of_wins_is_a_loops(xray):
    heat = win_map(read_wins(xray))
    options = pl.read_parquet(xray / "options.parquet")
    labels = pl.read_parquet(xray / "labels.parquet")
    tasks = {t["task_id"]: t["family"] for t in json.loads((xray / SCORES).read_text())["tasks"]}

    def won(task, variant, condition, depth):
        mine = options.filter(task_id=task, variant=variant, depth_index=depth)
        scores = dict(mine.select("option", "score").iter_rows())
        label = labels.filter(task_id=task, variant=variant, condition=condition)["option"][0]
        return scores[label] - max(s for o, s in scores.items() if o != label) > 1e-4

    for i, (variant, condition) in enumerate(
        [
            ("real", "real"),
            ("real", "random_label"),
            ("real", "matched_token"),
            ("semantics_break", "real"),
            ("prompt_swap", "real"),
        ]
    ):
        expected = [np.mean([won(t, variant, condition, d) for t in tasks]) for d in range(5)]
        assert heat.values[i].tolist() == pytest.approx(expected)
    assert heat.rows[0] == f"all tasks ({len(tasks)})"
    family = next(iter(dict.fromkeys(tasks.values())))
    at = list(heat.rows).index(f"{family} ({sum(f == family for f in tasks.values())})")
    expected = [np.mean([won(t, "real", "real", d) for t in tasks if tasks[t] == family]) for d in range(5)]
    assert heat.values[at].tolist() == pytest.approx(expected)


def test_show_draws_the_maps_of_a_run_and_other_commands_do_not(xray, cot, capsys):
    assert "Share of tasks won by depth" in shown(capsys, xray)
    assert "Method and controls by split" in shown(capsys, cot)
    with pytest.raises(SystemExit):
        main(["rescore", str(cot)])
    assert "Method and controls by split" not in capsys.readouterr().out


def test_patching_and_ablation_have_a_map_for_each_label():
    cells = [
        {"condition": c, "source_index": s, "target_block": t, "n": 4, "flips": f, "mean_delta": 0.0}
        for c, s, t, f in (("real", 0, 1, 1), ("real", 2, 3, 4), ("random_label", 0, 1, 0))
    ]
    tasks = [{"condition": "real", "task_id": str(i)} for i in range(4)]
    real, random = patching_maps({"cells": cells, "tasks": tasks})
    assert "(4 tasks)" in real.title
    np.testing.assert_array_equal(real.values, [[0.25, np.nan], [np.nan, 1.0]])
    np.testing.assert_array_equal(random.values, [[0.0, np.nan], [np.nan, np.nan]])
    rows = [
        {"condition": "real", "family": f, "block": b, "kind": "mlp", "head": None, "margin": m, "n": 7}
        for f, b, m in (("all", 0, -1.5), ("all", 1, 0.5), ("sums", 0, 9.0))
    ]
    (heat,) = ablation_maps({"components": rows})
    assert heat.scale == "diverging"
    assert heat.values.tolist() == [[-1.5, 0.5]]


def test_a_cot_map_has_the_headline_of_every_method(cot):
    document = json.loads((cot / SCORES).read_text())
    table = score_map(document)
    assert [c.header.plain for c in table.columns] == [
        "method", "test g_mean2", "ood_test g_mean2", "test auroc", "ood_test auroc"
    ]  # fmt: skip
    cells = [c.plain.strip() for c in table.columns[3].cells]
    scores = [document["scores"], *document["controls"].values()]
    assert cells == [f"{s['test.auroc']['value']:.3f}" for s in scores]
