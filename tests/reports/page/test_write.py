"""The written page: what opens it, what it holds, what it refuses."""

from __future__ import annotations

import json
import re

import pytest
from hostile import HOSTILE, hostile_run
from made_page import Page, packed_parts
from made_phases import add_phases

from lmassay.cli import main
from lmassay.reports.page.write import MOST_RUNS, report_html, told_apart, write_report
from lmassay.storage.runs import OPTIONS, RUN, SCORES
from made_runs import changed, made_run, rewrite_scores


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [add_phases(made_run(folder, "middle", "core50")), made_run(folder, "large", "core50")]


@pytest.fixture(scope="module")
def html(runs):
    return report_html(runs)


def _refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["report", *map(str, arguments)])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return stopped.value.code, err


def test_evidence_comes_first_and_in_words(html, runs):
    text = Page(html).text
    row = json.loads((runs[0] / SCORES).read_text())["evidence"][0]
    said = f"{row['signal_value']:.2f}".replace("0.", ".")
    assert f"Internal win rate {said} against" in text
    assert text.index("Internal win rate") < text.index("PSI by family and size")
    assert text.index("Evidence") < text.index("Models side by side")


def test_the_page_asks_for_nothing_and_runs_only_its_own_script(html):
    page = Page(html)
    assert not re.search(r"""(?:src|href|action)=["']?(?:https?:)?//""", html)
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not any(name.startswith("on") or name == "style" for _, a in page.elements for name in a)


def test_ids_are_unique_and_links_of_the_contents_lead_somewhere(html):
    page = Page(html)
    assert len(page.ids()) == len(set(page.ids()))
    links = [a["href"][1:] for tag, a in page.elements if tag == "a" and (a.get("href") or "").startswith("#")]
    assert len(links) > 10
    assert set(links) <= set(page.ids())


def test_every_figure_has_a_reading_a_download_and_a_name(html):
    figures = re.findall(r"<figure.*?</figure>", html, re.DOTALL)
    assert len(figures) > 12
    for figure in figures:
        assert re.search(r'class="reading">[^<]+\.</p>', figure)
        assert 'data-save="csv"' in figure
        assert "aria-label" in figure


def test_a_run_in_which_nothing_could_be_measured_is_undecided_and_not_a_failure(runs, tmp_path):
    unmeasured = made_run(tmp_path, "small", "core50")
    scores = json.loads((unmeasured / SCORES).read_text())
    rewrite_scores(unmeasured, scores | {"evidence": [], "survives_its_controls": None})
    text = Page(report_html([unmeasured])).text
    assert "undecided: nothing could be measured" in text
    assert "does not survive every control" not in text
    assert "undecided (nothing could be measured)" in Page(report_html([unmeasured, runs[1]])).text


def test_runs_of_one_convention_stand_side_by_side_with_conjectures(html):
    text = Page(html).text
    assert "Models side by side" in text
    assert "Conjectures on the held-out rows" in text


def test_runs_of_two_conventions_stand_on_one_page_without_figures_over_both(runs, tmp_path):
    other = made_run(tmp_path, "small", "core50")
    changed(other, lambda record: record["identity"]["settings"].update(span=5))
    text = Page(report_html([runs[0], other])).text
    assert "No patterns over these runs" in text
    assert "span" in text


def test_hostile_text_stands_in_the_page_as_text_only(tmp_path):
    run = hostile_run(tmp_path / "run")
    html = report_html([run])
    page = Page(html)
    ours = {"html", "head", "meta", "title", "link", "style", "body", "script"}
    assert sum(tag == "script" for tag, _ in page.elements) == 1 + len(packed_parts(html))
    assert [tag for tag, _ in page.elements if tag == "style"] == ["style"]
    assert not {"img", "iframe", "object", "embed", "form", "base"} & {tag for tag, _ in page.elements}
    assert "<script>window.owned=1</script>" in page.text
    assert "\\u202etxt.exe" in page.text
    assert "49" not in re.findall(r"\{\{.*?\}\}", page.text)
    assert ours <= {tag for tag, _ in page.elements}
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", html)
    header, _ = packed_parts(html)["r0-win-map"]
    assert len(header["rows"]) == len(HOSTILE)


def test_a_million_letters_are_cut_with_a_note(tmp_path):
    html = report_html([hostile_run(tmp_path / "run", long=True)])
    assert len(html) < 2_000_000
    assert any("more" in line for line in packed_parts(html)["r0-win-map"][0]["lines"][0])


def test_equal_names_are_told_apart():
    assert told_apart([("a", "x"), ("a", "y"), ("b", "z")]) == ["a (x)", "a (y)", "b"]
    assert told_apart([("a", "x"), ("a", "x")]) == ["a (x)", "a (x) (2)"]


def test_the_command_writes_the_page_and_says_where(runs, tmp_path, capsys):
    out = tmp_path / "r.html"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(runs[1]), "-o", str(out)])
    assert ended.value.code == 0
    assert str(out) in capsys.readouterr().out
    assert out.read_text().startswith("<!doctype html>")
    assert not [p for p in tmp_path.iterdir() if p != out]


def test_a_file_that_exists_is_replaced_with_force_only(runs, tmp_path, capsys):
    out = tmp_path / "r.html"
    out.write_text("mine")
    status, err = _refused([runs[1], "-o", out], capsys)
    assert status == 2
    assert "--force" in err
    assert out.read_text() == "mine"
    write_report([runs[1]], out, force=True)
    assert out.read_text() != "mine"


def test_places_that_cannot_be_written_to_are_refused(runs, tmp_path, capsys):
    for out, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "r.html", "no folder"),
        (tmp_path / "r.pdf", ".html"),
    ):
        status, err = _refused([runs[1], "-o", out], capsys)
        assert status == 2
        assert said in err


def test_no_run_a_run_named_twice_and_a_thousand_runs_are_refused(runs, tmp_path, capsys):
    out = tmp_path / "r.html"
    assert _refused(["-o", out], capsys)[0] == 2
    status, err = _refused([runs[1], runs[1], "-o", out], capsys)
    assert (status, "named twice" in err) == (2, True)
    status, err = _refused([*(tmp_path / str(i) for i in range(1000)), "-o", out], capsys)
    assert status == 2
    assert f"1,000 runs were named, and a report holds {MOST_RUNS} at most" in err
    assert not out.exists()


def test_what_is_no_run_is_newer_or_was_altered_is_refused_and_nothing_is_written(runs, tmp_path, capsys):
    out = tmp_path / "r.html"
    newer = made_run(tmp_path, "small", "core50")
    changed(newer, lambda record: record.update(schema_version=99))
    empty = tmp_path / "empty"
    empty.mkdir()
    for bad in (newer, empty, tmp_path / "missing"):
        status, err = _refused([runs[1], bad, "-o", out], capsys)
        assert status == 2
        assert "bad-run-folder" in err
    altered = made_run(tmp_path, "middle", "core50")
    with (altered / OPTIONS).open("ab") as file:
        file.write(b"0")
    assert "bad-run-folder" in _refused([altered, "-o", out], capsys)[1]
    for wrong in ([], {"suite": 3}, {"suite": "xray", "model": 3, "battery": None, "settings": []}):
        strange = changed(altered, lambda record, wrong=wrong: record.update(identity=wrong, status="failed"))
        assert "bad-run-folder" in _refused([strange, "-o", out], capsys)[1]
    assert not out.exists()


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_an_unfinished_run_is_shown_and_marked_with_what_is_there(tmp_path, status):
    run = made_run(tmp_path, "small", "core50")
    changed(run, lambda record: record.update(status=status))
    assert "its scores.json is not read" in Page(report_html([run])).text
    (run / SCORES).unlink()
    page = Page(report_html([run]))
    assert "but no scores.json" in page.text
    assert "Not a finished run" in page.text
    assert "no verdicts" in page.text
    assert "Wins by task and depth" in page.text
    assert "no verdict" in page.text


def test_a_run_that_measured_nothing_yet_is_a_page_that_says_so(tmp_path):
    run = made_run(tmp_path, "small", "core50")
    changed(run, lambda record: record.update(status="running"))
    for file in run.iterdir():
        if file.name != RUN:
            file.unlink()
    assert "holds no table yet" in Page(report_html([run])).text
