"""What stands in a terminal or a file: all figures, no escape codes, nothing untrusted obeyed."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.reports import terminal
from lmassay.reports.terminal import clean, number, print_comparison, print_run
from lmassay.storage.runs import RUN, SCORES
from lmassay.xray.compare import compare_runs
from outside_runs import outside_run, outside_table

HOSTILE = "[bold red]x[/] [/nothing] \x1b[31m\x07\r\n\u202egnp.exe :smile: \ud800"
VISIBLE = r"[bold red]x[/] [/nothing] \x1b[31m\x07\r\n\u202egnp.exe :smile: \ud800"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = outside_run(tmp_path_factory.mktemp("run") / "run", table=outside_table().drop("neutral"))
    return json.loads((run / RUN).read_text()), json.loads((run / SCORES).read_text())


def _printed(capsys, finished, **changes):
    record, document = json.loads(json.dumps(finished))
    for where, value in changes.items():
        {"model": record["model"], "battery": record["identity"]["battery"]}[where]["name"] = value
    print_run(record, document)
    return capsys.readouterr().out


def test_evidence_comes_first_and_every_section_follows(capsys, finished):
    out = _printed(capsys, finished)
    titles = [
        "survives its controls: no",
        "Evidence",
        "Scores",
        "PSI by family",
        "Paraphrase groups",
        "counts:",
        "note:",
    ]
    assert [out.index(t) for t in titles] == sorted(out.index(t) for t in titles)


def test_every_score_stands_with_its_interval_and_n(capsys, finished):
    lines = {line.split()[0]: line for line in _printed(capsys, finished).splitlines() if line.split()}
    for name, score in finished[1]["scores"].items():
        line = lines[name]
        assert number(score["value"]) in line
        assert f" {score['n']} " in line
        if score["low"] is not None:
            assert f"[{score['low']:.3f}, {score['high']:.3f}]" in line


def test_what_is_undefined_is_a_dash_with_its_reason_and_never_zero(capsys, finished):
    record, document = json.loads(json.dumps(finished))
    document["scores"]["sb_win"] |= {"value": None, "low": None, "high": None, "status": "undefined: phase not run"}
    print_run(record, document)
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("sb_win"))
    assert re.match(r"sb_win\s+–\s", line)
    assert "(undefined: phase not run)" in line


def test_counts_and_notices_are_all_printed(capsys, finished):
    out = " ".join(_printed(capsys, finished).split())
    for name, n in finished[1]["counts"].items():
        assert f"{name} {n}" in out
    for notice in finished[1]["notices"]:
        assert f"note: {notice}" in out


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"])
def test_no_escape_code_leaves_for_a_file_whatever_the_environment_says(capsys, finished, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert "\x1b" not in _printed(capsys, finished)


def test_a_terminal_gets_colour(finished, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in _printed(capsys, finished)


@pytest.mark.parametrize("where", ["model", "battery"])
def test_an_untrusted_name_is_shown_and_not_obeyed(capsys, finished, where):
    out = _printed(capsys, finished, **{where: HOSTILE})
    assert VISIBLE in out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", out)


def test_untrusted_families_groups_and_notices_are_shown_and_not_obeyed(capsys, finished):
    record, document = json.loads(json.dumps(finished))
    document["families"] = {HOSTILE: document["families"]["sums"]}
    document["paraphrase_groups"][0]["group"] = HOSTILE
    document["notices"] = [HOSTILE]
    print_run(record, document)
    out = capsys.readouterr().out
    assert out.count(VISIBLE) == 3


def test_an_untrusted_model_name_heads_a_column_of_a_comparison(capsys, tmp_path):
    runs = [outside_run(tmp_path / "a", name="[/bold]"), outside_run(tmp_path / "b", name="[red]b\x1b")]
    print_comparison(compare_runs(runs))
    head = capsys.readouterr().out.splitlines()[1]
    assert "[/bold]" in head
    assert r"[red]b\x1b" in head
    assert "None" not in head


def test_a_comparison_puts_each_null_beside_its_rate_and_says_why(capsys, tmp_path):
    runs = [outside_run(tmp_path / str(i), table=outside_table(i), name=f"m{i}") for i in range(3)]
    print_comparison(compare_runs(runs))
    out = capsys.readouterr().out
    assert "compare models by psi_excess and its p" in out
    (line,) = (x for x in out.splitlines() if x.startswith("real_win "))
    values = [json.loads((r / SCORES).read_text())["scores"]["real_win"]["value"] for r in runs]
    assert re.findall(r"(\S+) \[", line) == [f"{v:.3f}" for v in values]


@given(st.text())
def test_cleaned_text_has_no_control_character_and_keeps_what_is_printable(text):
    plain = clean(text).plain
    assert plain.isprintable()
    if text.isprintable():
        assert plain == text


@pytest.mark.parametrize(("value", "shown"), [(None, "–"), (0, "0"), (-2, "-2"), (0.0, "0.000"), (0.12345, "0.123")])
def test_numbers(value, shown):
    assert number(value) == shown


def test_off_a_terminal_no_line_is_cut(capsys, finished):
    assert "…" not in _printed(capsys, finished, model="m" * (3 * terminal.PLAIN_WIDTH))


@pytest.mark.parametrize("value", [0.001, None])
def test_the_turned_sign_of_an_ablation_is_explained_where_it_has_a_figure(capsys, finished, value):
    record, document = json.loads(json.dumps(finished))
    row = document["evidence"][0] | {"signal": "ablation_j", "signal_value": value, "control_value": value}
    document["evidence"].append(row)
    print_run(record, document)
    out = capsys.readouterr().out
    assert ("ablation_j: the score below with its sign turned" in out) is (value is not None)


def test_a_run_without_figures_is_undecided_and_does_not_fail(capsys, finished):
    record, document = json.loads(json.dumps(finished))
    document |= {"evidence": [], "survives_its_controls": None, "notices": ["again", "again"]}
    print_run(record, document)
    out = capsys.readouterr().out
    assert "survives its controls: undecided (nothing could be measured)" in out
    assert "no row of evidence" in out
    assert "Evidence" not in out
    assert out.count("note:") == 1
    assert "note: again (2 times)" in out
