"""Results in a notebook: a short line, a table that opens with the evidence, and a report's figures by name."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import polars as pl
import pytest
from made_runs_of_cot import Certain, Counts, evaluated, made_data
from test_compression import made_records

from lmassay.cot.audit.findings import AuditReport, Finding
from lmassay.cot.compression import cells_of
from lmassay.cot.compression_scores import compression_report
from lmassay.cot.entropy import entropy_report
from lmassay.cot.leaderboard import leaderboard
from lmassay.errors import LmassayError
from lmassay.reports.notebook import open_run
from lmassay.storage.runs import RUN, SCORES
from lmassay.xray.finished import read_finished
from lmassay.xray.run import RunResult
from made_runs import changed
from outside_runs import outside_run

HOSTILE = "<script>alert(1)</script><img src=x onerror=y> & \u202e\x1b"


class Tags(HTMLParser):
    """Every tag, and all text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


ALLOWED = {
    "div",
    "p",
    "b",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "span",
    "bdi",
    "ul",
    "li",
    "details",
    "summary",
}


def checked(result):
    """The HTML, once it is known to hold tables and text only, and the line to be short."""
    found = Tags(result._repr_html_())
    assert set(found.tags) <= ALLOWED
    assert found.attributes <= {"style"}
    assert len(repr(result)) < 200
    assert repr(result).startswith(f"<{type(result).__name__} ")
    return found


@pytest.fixture(scope="module")
def cot(tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "run"
    return path, evaluated(Certain, out=path)


@pytest.fixture(scope="module")
def xray(tmp_path_factory):
    return outside_run(tmp_path_factory.mktemp("x") / "run")


def test_an_evaluation_opens_with_its_evidence(cot):
    _, result = cot
    found = checked(result)
    text = found.text
    assert text.index("survives its controls") < text.index("Evidence") < text.index("Scores")
    for row in result.document["evidence"]:
        assert f"[{row['low']:.3f}, {row['high']:.3f}]" in text
    assert text.count("✓ survives") == sum(r["verdict"] == "survives" for r in result.document["evidence"])


def test_a_leaderboard_has_a_line_for_each_row(cot):
    board = leaderboard([cot[1]])
    found = checked(board)
    assert found.tags.count("tr") == 1 + len(board.rows)
    wide = board.wide
    for row in board.rows:
        for part in ("id", "ood"):
            (cell,) = board.cells.filter(pl.col("headline"), row=row.label, part=part).to_dicts()
            shown = wide.filter(row=row.label)[f"made {part.upper()}"][0]
            assert shown.startswith("undefined" if cell["value"] is None else f"{cell['value']:.3f}")


def test_tasks_8_and_9_are_tables():
    report = compression_report(cells_of(made_records()))
    assert checked(report).text.index("Evidence") < checked(report).text.index("KL, questions first")
    entropy = entropy_report(made_data("regression", n=40))
    assert f"{entropy.estimates['test']['mean'].value:.3f}" in checked(entropy).text


def test_an_audit_lists_its_findings():
    report = AuditReport("mine", "label", "", 0.6, 0, 1, 3, (), (Finding("leak", "feature", HOSTILE, "AUROC .9"),), ())
    assert "script" in checked(report).text
    assert "1 findings, 1 of them leaks" in repr(report)


def test_xray_results_open_with_their_evidence(xray):
    document = json.loads((xray / SCORES).read_text())
    for result in (read_finished(xray), RunResult(xray, document, 0, 1), open_run(xray)):
        text = checked(result).text
        assert text.index("Evidence") < text.index("Scores")
        assert text.count("real_win") >= 4


def test_untrusted_names_and_notices_are_text(xray):
    document = json.loads((xray / SCORES).read_text())
    document["notices"] = [HOSTILE]
    document["evidence"][0]["control"] = HOSTILE
    found = checked(RunResult(xray, document, 0, 1))
    assert found.text.count("<script>alert(1)</script>") == 2
    assert r"\u202e\x1b" in found.text


def test_a_run_opens_by_its_folder_with_tables_and_figures(cot):
    path, result = cot
    run = open_run(path)
    assert checked(run).text.index("Evidence") < checked(run).text.index("Figures and tables")
    assert run.survives == result.survives
    assert run.evidence["difference"].to_list() == result.evidence["difference"].to_list()
    assert run.scores.filter(score="test.auroc")["value"][0] == result.scored.scores["test.auroc"].value
    assert {"distribution", "roc", "transfer", "questions", "reliability"} <= set(run.figures)
    assert run.rows("roc")["method"][0] == "certain"
    assert run.figure("roc").to_dict()["concat"]
    assert "survive" in repr(run)


def test_a_name_that_is_not_there_gets_the_nearest(cot):
    run = open_run(cot[0])
    for ask in (run.figure, run.rows):
        with pytest.raises(LmassayError, match="did you mean roc"):
            ask("rok")


def test_an_xray_run_opens_alike(xray):
    run = open_run(xray)
    assert run.figures
    for name in run.figures:
        assert run.figure(name).to_dict()
        assert run.rows(name).width


def test_an_unfinished_run_is_refused(tmp_path):
    evaluated(Counts, out=tmp_path / "run", n=40)
    changed(tmp_path / "run", lambda record: record.update(status="failed"))
    assert (tmp_path / "run" / RUN).is_file()
    with pytest.raises(LmassayError, match="failed part-way"):
        open_run(tmp_path / "run")
