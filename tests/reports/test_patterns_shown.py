"""Patterns in a terminal and as a figure: everything that was found, nothing untrusted obeyed."""

from __future__ import annotations

import copy
import json
import re
import shutil
import struct
from pathlib import Path

import pytest

from lmassay.cli import main
from lmassay.errors import LmassayError
from lmassay.reports.charts import psi_points, tree_chart, write_figure
from lmassay.reports.patterns import print_patterns
from lmassay.storage.runs import RUN
from lmassay.xray.compare import compare_runs
from made_runs import MODELS, changed, made_run

HOSTILE = "<script>[red]x[/]\x1b[31m&"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [made_run(folder, model, battery) for battery in ("core50", "heldout54") for model in MODELS]


@pytest.fixture(scope="module")
def comparison(folders):
    return compare_runs(folders)


def _printed(capsys, patterns):
    print_patterns(patterns)
    return capsys.readouterr().out


def test_rows_ranking_trees_conjectures_and_confounds_are_printed_in_this_order(capsys, comparison):
    out = _printed(capsys, comparison["patterns"])
    titles = [
        "training rows: core50, 3 models, 150 tasks", "held-out rows: heldout54, 3 models, 162 tasks",
        "Mutual information with PSI > 0, nats, training rows", "Mutual information with PSI > 0, nats, held-out rows",
        "Tree on all features", "Tree without anything computed from wins", "Conjectures on the held-out rows",
        "Dominant confound",
    ]  # fmt: skip
    assert [out.index(title) for title in titles] == sorted(out.index(title) for title in titles)


def test_every_feature_stands_with_its_figures(capsys, comparison):
    out = _printed(capsys, comparison["patterns"])
    for row in comparison["patterns"]["mutual_information"]["training"]:
        line = next(x for x in out.splitlines() if x.startswith(row["feature"] + " "))
        assert f"{row['plug_in']:.4f}" in line
        assert f"{row['corrected']:.4f}" in line
        assert line.startswith(row["feature"] + " *") == row["from_wins"]


def test_the_trees_are_printed_as_they_were_told(capsys, comparison):
    out = [line.rstrip() for line in _printed(capsys, comparison["patterns"]).splitlines()]
    for tree in comparison["patterns"]["trees"].values():
        first, *rest = tree["text"].splitlines()
        at = out.index(first)
        assert out[at + 1 : at + 1 + len(rest)] == rest


def test_every_verdict_stands_with_its_chance(capsys, comparison):
    out = _printed(capsys, comparison["patterns"])
    for conjecture in comparison["patterns"]["conjectures"]:
        (line, *_) = (x for x in out.splitlines() if x.startswith(conjecture["name"] + " "))
        assert conjecture["verdict"] in line
        assert f"{conjecture['chance']:.3f}" in line


def test_what_is_undefined_is_a_dash_with_its_reason(capsys, folders):
    out = _printed(capsys, compare_runs(folders[:3])["patterns"])
    assert "undefined: no held-out run" in " ".join(out.split())
    assert re.search(r"held-out rows\s+–", out)


def test_untrusted_names_are_shown_and_not_obeyed(capsys, comparison):
    patterns = copy.deepcopy(comparison["patterns"])
    patterns["confounds"][0]["model"] = HOSTILE
    patterns["trees"]["all"]["text"] = f"|--- {HOSTILE}"
    patterns["notices"] = [HOSTILE]
    out = _printed(capsys, patterns)
    assert out.count(r"<script>[red]x[/]\x1b[31m&") == 3
    assert "\x1b" not in out


# Figures


@pytest.mark.parametrize("suffix", ["svg", "SVG"])
def test_a_figure_shows_every_split_and_every_family(comparison, tmp_path, suffix):
    path = tmp_path / f"f.{suffix}"
    write_figure(comparison, path)
    drawn = path.read_text()
    assert drawn.startswith("<svg")
    for tree in comparison["patterns"]["trees"].values():
        for node in tree["nodes"]:
            if node["feature"] is not None:
                assert f"{node['feature']} ≤ {node['threshold']:.3g}" in drawn
            assert f"{node['n_positive']} of {node['n']} have PSI &gt; 0" in drawn
    for family in comparison["families"]:
        assert f">{family}<" in drawn


def test_a_png_is_a_png_of_some_size(comparison, tmp_path):
    write_figure(comparison, tmp_path / "f.png")
    data = (tmp_path / "f.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert min(width, height) > 500


def test_no_untrusted_text_becomes_markup(comparison, tmp_path):
    changed_names = copy.deepcopy(comparison)
    changed_names["families"] = {"</text><script>alert(1)</script>": comparison["families"]["binder_tracking"]}
    write_figure(changed_names, tmp_path / "f.svg")
    assert "<script" not in (tmp_path / "f.svg").read_text()


def test_points_are_the_runs_own_families_and_those_undefined_are_left_out(comparison):
    points = psi_points(comparison)
    assert len(points) == 3 * 5 + 3 * 6
    for point in points:
        (i,) = (
            i for i, run in enumerate(comparison["runs"])
            if (run["model"], run["battery"]) == (point["model"], point["battery"])
        )  # fmt: skip
        assert point["psi"] == comparison["families"][point["family"]][i]["value"]
        assert point["parameters"] == MODELS[point["model"]][2]
    holed = copy.deepcopy(comparison)
    holed["families"]["binder_tracking"][0]["value"] = None
    assert len(psi_points(holed)) == len(points) - 1


def test_leaves_stand_side_by_side_and_a_split_between_its_sides(comparison):
    nodes = comparison["patterns"]["trees"]["all"]["nodes"]
    boxes = tree_chart(nodes, "t").to_dict()["layer"][2]["data"]["values"]
    leaves = [box["x"] for box, node in zip(boxes, nodes, strict=True) if node["feature"] is None]
    assert leaves == list(range(len(leaves)))
    for box, node in zip(boxes, nodes, strict=True):
        if node["feature"] is not None:
            assert box["x"] == (boxes[node["left"]]["x"] + boxes[node["right"]]["x"]) / 2


def test_where_nothing_is_to_be_drawn_it_is_said(comparison, tmp_path):
    empty = copy.deepcopy(comparison)
    for tree in empty["patterns"]["trees"].values():
        tree["nodes"] = []
    for run in empty["runs"]:
        run["n_parameters"] = None
    with pytest.raises(LmassayError, match="bad-request: there is nothing to draw"):
        write_figure(empty, tmp_path / "f.svg")
    assert not (tmp_path / "f.svg").exists()


# The command


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["xray", "compare", *map(str, arguments)])
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def test_the_command_prints_runs_and_patterns_and_draws_the_figure(folders, tmp_path, capsys):
    code, out, _ = _run(capsys, *folders, "--figure", tmp_path / "f.svg")
    assert code == 0
    assert out.index("Runs on core50") < out.index("Runs on heldout54") < out.index("Conjectures")
    assert f"figure: {tmp_path / 'f.svg'}" in out
    assert (tmp_path / "f.svg").stat().st_size > 10_000


def test_its_json_is_strict_and_the_same_each_time(folders, capsys):
    def refuse(constant):
        raise AssertionError(constant)

    first = _run(capsys, *folders, "--json")[1]
    assert json.loads(first, parse_constant=refuse)["patterns"]["rows"]["training"]["n"] == 150
    assert _run(capsys, *folders, "--json")[1] == first


def test_a_figure_of_another_kind_is_refused_before_anything_is_read(capsys, tmp_path):
    code, _, err = _run(capsys, "nowhere", "nowhere", "--figure", tmp_path / "f.pdf")
    assert code == 2
    assert "'f.pdf' — known: .png, .svg" in err or "did you mean" in err


def test_every_field_of_the_json_is_explained(comparison):
    named = set(re.findall(r"`([^`\n]+)`", (Path(__file__).parents[2] / "docs" / "patterns.md").read_text()))
    patterns = comparison["patterns"]
    fields = {
        *comparison, *comparison["runs"][0], *patterns, *patterns["rows"], *patterns["rows"]["training"],
        *patterns["features"], *patterns["mutual_information"]["training"][0], *patterns["trees"],
        *patterns["trees"]["all"], *patterns["trees"]["all"]["nodes"][0], *patterns["trees"]["all"]["training"],
        *patterns["conjectures"][0], *patterns["confounds"][0], *(c["name"] for c in patterns["conjectures"]),
    }  # fmt: skip
    assert fields <= {word for text in named for word in re.findall(r"\w+", text)}


def test_a_run_of_another_protocol_is_refused_by_name(folders, tmp_path, capsys):
    other = shutil.copytree(folders[3], tmp_path / "other")
    changed(other, lambda r: r["identity"]["settings"].update(protocol="first-token"))
    assert json.loads((other / RUN).read_text())["identity"]["settings"]["protocol"] == "first-token"
    code, _, err = _run(capsys, folders[0], other)
    assert code == 2
    assert "differ in protocol: outside and first-token" in err
    assert err.count("\n") == 1
