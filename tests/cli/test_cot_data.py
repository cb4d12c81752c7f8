"""`lmassay cot tasks`, `show` and `import`: what is printed, and that no text of the data can do anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lmassay.cli import main

sys.path.insert(0, str(Path(__file__).parent.parent / "cot"))
from made_release import made, write_checkout


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path / "cache"))

    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main(["cot", *map(str, words)])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return run


def own(tmp_path, cot):
    path = tmp_path / "mine.jsonl"
    splits = ("train", "test")
    rows = [{"example_id": s, "split": s, "question_id": s, "label": "yes", "prompt": "?", "cot": cot} for s in splits]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_tasks_are_listed_with_sizes_before_and_after_import(run, tmp_path):
    status, out, _ = run("tasks")
    assert status == 0
    assert "train 46,160, validation 72, test 86, ood_test 58" in out
    assert out.count("not imported") == 9
    write_checkout(tmp_path / "checkout", made())
    # Smaller than the release, which an import says with its exit status.
    status, out, _ = run("import", tmp_path / "checkout")
    assert status == 4
    assert "head/1/train/records" in out
    assert "46,160" in out
    assert "differs" in out
    status, out, _ = run("tasks", "--json")
    listed = json.loads(out)
    assert [t["store"] for t in listed] == ["imported"] * 9
    assert listed[0]["sizes"] == dict.fromkeys(("train", "validation", "test", "ood_test"), 8)
    assert all(t["label_rule"] and t["quirks"] and t["segments"] for t in listed)


def test_an_example_is_shown_as_a_method_sees_it(run, tmp_path):
    write_checkout(tmp_path / "checkout", made())
    run("import", tmp_path / "checkout")
    status, out, _ = run("show", "authority_hint", "test:0", "--json")
    assert status == 0
    shown = json.loads(out)
    assert [s["kind"] for s in shown["segments"]] == ["prompt", "option", "option", "suggestion", "cot", "answer"]
    for hidden in ("pair_key", "direction", "suggest_", "hint_following", "independent", "switch", "_file"):
        assert hidden not in out
    # By its key and by its file's name it is the same.
    assert run("show", "5", shown["key"], "--json")[1] == out
    status, out, _ = run("show", "1", "test_q0_000")
    assert status == 0
    assert "[cot]" in out
    assert "Thought 0 on test_q0" in out


def test_what_cannot_be_shown_is_said_in_a_line(run, tmp_path):
    write_checkout(tmp_path / "checkout", made())
    run("import", tmp_path / "checkout")
    for words, code, why in (
        (("show", "reasoning_terminator", "test:0"), "unknown-task", "did you mean reasoning_termination"),
        (("show", "1", "nothing"), "bad-request", "no example 'nothing'"),
        (("show", "1", "test:99"), "bad-request", "test has 8 rows"),
        (("show", "1", "test:0", "--layout", "post"), "bad-request", "two training sets"),
        (("show", "1", "test:0", "--layout", "post", "--regime", "id"), "cot-data-missing", "layout post"),
        (("tasks", "--layout", "past"), "bad-request", "did you mean post"),
        (("import", tmp_path / "nothing"), "bad-request", "no such file"),
    ):
        status, _, err = run(*words)
        assert (status, err.count("\n")) == (2, 1), words
        assert f"error[{code}]" in err
        assert why in err


def test_no_text_reaches_the_terminal_as_more_than_text(run, tmp_path):
    evil = "a\x1b[31mred\x1b]0;title\x07 [bold]b[/bold] \u202eabc\u202c \x9b2J :smile: שלום\r\tz"
    path = own(tmp_path, evil + "\nsecond line")
    status, out, _ = run("show", "1", "test:0", "--source", path)
    assert status == 0
    assert not set(out) & set("\x1b\x07\u202e\u202c\x9b\r")
    assert "\\x1b[31mred" in out
    assert "[bold]b[/bold]" in out
    assert ":smile:" in out
    assert "\\u202eabc" in out
    assert "שלום" in out
    assert "\nsecond line\n" in out


def test_a_lone_surrogate_is_refused_and_no_crash(run, tmp_path):
    path = own(tmp_path, "x")
    path.write_text(path.read_text().replace('"x"', '"\\ud800x"'))
    status, out, err = run("show", "1", "test:0", "--source", path)
    assert (status, out) == (2, "")
    assert "error[cot-data-broken]" in err
    assert "line 1 cannot be read as strict JSON" in err


def test_a_text_of_50_mb_is_cut_unless_all_is_asked_for(run, tmp_path):
    path = own(tmp_path, "0123456789 " * (50 * 2**20 // 11))
    status, out, _ = run("show", "1", "test:0", "--source", path)
    assert status == 0
    assert len(out) < 5000
    assert "more characters; --full shows them" in out
    assert len(run("show", "1", "test:0", "--source", path, "--full")[1]) > 50_000_000
