"""Requests that were passed over in silence, or with advice that could not be followed."""

from __future__ import annotations

import re

import pytest

from lmassay.cli import app, cot_run, main
from lmassay.methods.registry import BUILT_IN, CONTROLS
from outside_runs import outside_run

BATTERY = '{"id": "a", "family": "f", "prompt": "2 + 2 =", "options": [" 4", " 5"], "answer": 0, "template": "t"}\n'


def _run(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    return stop.value.code, *capsys.readouterr()


@pytest.mark.parametrize(
    "words",
    [
        ("demo", "--out", ""),
        ("demo", "--out="),
        ("xray", "run", "nobody", "--out", ""),
        ("cot", "run", "atypical_length", "--source", "demo", "--method", "tfidf", "--out", ""),
        ("report", "nowhere", "-o", ""),
        ("bundle", "nowhere", "--out", ""),
    ],
)
def test_an_empty_out_is_refused_and_nothing_is_written(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    status, out, err = _run(capsys, *words)
    assert (status, out) == (2, "")
    assert re.match(r"error\[bad-request\]: (--out|-o) is empty — ", err)
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_word_after_out_may_be_missing(capsys):
    status, _, err = _run(capsys, "demo", "--out")
    assert status == 2
    assert "is empty" not in err


def test_a_battery_of_no_run_is_refused_and_both_are_named(capsys, tmp_path):
    run = outside_run(tmp_path / "run")
    file = tmp_path / "mine.jsonl"
    file.write_text(BATTERY)
    status, out, err = _run(capsys, "report", run, "-o", tmp_path / "r.html", "--battery", file)
    assert (status, out) == (2, "")
    assert "error[bad-request]: no run was of the battery mine (sha256" in err
    assert "the runs are of run.table (sha256" in err
    assert not (tmp_path / "r.html").exists()


def test_a_report_of_several_runs_says_how_far_it_is(capsys, tmp_path):
    runs = [outside_run(tmp_path / name, name=name) for name in ("a", "b")]
    status, _, err = _run(capsys, "report", *runs, "-o", tmp_path / "r.html")
    assert (status, err) == (0, "runs: 2 of 2\n")


def test_a_report_where_no_file_can_be_made_is_an_unwritable_folder(capsys, tmp_path):
    from pathlib import Path

    if not Path("/proc/self").is_dir():
        pytest.skip("a file system that takes no file")
    status, out, err = _run(capsys, "report", outside_run(tmp_path / "run"), "-o", "/proc/x.html")
    assert (status, out) == (2, "")
    assert "error[out-folder-unwritable]: cannot write to /proc: " in err


def test_the_help_of_cot_run_names_every_method_of_ours(capsys):
    assert {*cot_run.OWN} == {*BUILT_IN} - {*CONTROLS} | {cot_run.MONITOR}
    status, out, _ = _run(capsys, "cot", "run", "--help")
    assert status == 0
    assert all(re.search(rf"\b{name}\b", out) for name in cot_run.OWN)


@pytest.mark.parametrize(("name", "said"), [("nosuch", r"known: .*\bmonitor\b"), ("monitr", r"did you mean monitor\?")])
def test_an_unknown_method_is_told_of_the_monitor(capsys, name, said):
    status, out, err = _run(capsys, "cot", "run", "atypical_length", "--source", "demo", "--method", name)
    assert (status, out) == (2, "")
    assert re.search(rf"no method '{name}' — {said}", err)


def test_the_demos_data_is_not_called_the_users_own(capsys):
    words = ("cot", "run", "atypical_length", "--source", "demo", "--method", "tfidf", "--validation", "held_out")
    status, _, err = _run(capsys, *words)
    assert status == 2
    assert "bad-request]: the demo's data has no layout" in err


def test_no_option_that_names_a_place_is_left_out_of_the_check():
    """A path option called otherwise than --out would let an empty word through to the working directory."""
    import typer

    from lmassay.cli import OUT_OPTIONS

    def walked(command):
        for sub in getattr(command, "commands", {}).values():
            yield from walked(sub)
        yield command

    found = {o for c in walked(typer.main.get_command(app)) for p in c.params if p.name == "out" for o in p.opts}
    assert found - {"out"} == {*OUT_OPTIONS}
