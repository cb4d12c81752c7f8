"""A run's record: whatever stands in it, every reader refuses it with the same code, and before it prints anything."""

from __future__ import annotations

import json
import shutil

import pytest

from lmassay.cli import main
from lmassay.errors import LmassayError
from lmassay.reports.cite import citation
from lmassay.reports.notebook import open_run
from lmassay.reports.page.write import report_html
from lmassay.storage.runs import SCHEMA_VERSION, SCORES, read_record, read_scores
from made_runs import changed
from outside_runs import outside_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return outside_run(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def _command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    return stop.value.code, *capsys.readouterr()


@pytest.mark.parametrize("how", ["cut short", "another"])
def test_show_prints_nothing_of_a_run_whose_table_was_altered(run, capsys, how):
    table = run / "options.parquet"
    if how == "cut short":
        table.write_bytes(table.read_bytes()[:-100])
    else:
        import polars as pl

        pl.read_parquet(table).with_columns(pl.lit(0.0).alias("score")).write_parquet(table)
    status, out, err = _command(capsys, "show", run)
    assert (status, out) == (2, "")
    assert "bad-run-folder" in err
    assert "options.parquet is not the table this run wrote" in err


@pytest.mark.parametrize("value", [None, "name"])
@pytest.mark.parametrize("section", ["model", "identity", "identity.battery", "identity.settings", "packages"])
def test_a_record_without_its_sections_is_no_run_to_any_reader(run, capsys, section, value):
    def put(record):
        *above, last = section.split(".")
        for name in above:
            record = record[name]
        record[last] = value

    changed(run, put)
    for reader in (read_record, read_scores, citation, open_run):
        with pytest.raises(LmassayError, match=f"bad-run-folder: .* no object as {section}"):
            reader(run)
    for command in ("show", "cite", "rescore"):
        status, out, err = _command(capsys, command, run)
        assert (status, out) == (2, "")
        assert "error[bad-run-folder]" in err


@pytest.mark.parametrize("section", ["model", "packages"])
def test_a_record_that_lacks_a_section_is_the_folders_fault(run, capsys, section):
    changed(run, lambda record: record.pop(section))
    command = "show" if section == "model" else "cite"
    status, _, err = _command(capsys, command, run)
    assert status == 2
    assert "error[bad-run-folder]" in err


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_is_a_bad_request(path):
    with pytest.raises(LmassayError, match=f"bad-request: {path} is no path"):
        open_run(path)


def test_a_newer_schema_says_its_version_and_to_update(run):
    changed(run, lambda record: record.update(schema_version=SCHEMA_VERSION + 1))
    with pytest.raises(LmassayError, match=f"schema version {SCHEMA_VERSION + 1}.* — update lmassay"):
        read_record(run)


@pytest.mark.parametrize("version", [0, None, "1"])
def test_another_schema_is_to_be_run_again(run, version):
    changed(run, lambda record: record.update(schema_version=version))
    with pytest.raises(LmassayError, match="schema version.* — run it again"):
        read_record(run)


def test_scores_that_are_gone_are_said_to_be_not_there_and_rescore_writes_them(run, capsys):
    before = json.loads((run / SCORES).read_text())
    (run / SCORES).unlink()
    status, out, err = _command(capsys, "show", run)
    assert (status, out) == (2, "")
    assert "scores.json: it is not there" in err
    assert "Errno" not in err
    status, _, err = _command(capsys, "rescore", run)
    assert status == 4
    assert "scores.json was not there, and was written" in err
    assert json.loads((run / SCORES).read_text()) == before


def test_a_record_without_a_status_is_told_so(run):
    changed(run, lambda record: record.pop("status"))
    with pytest.raises(LmassayError, match=r"run\.json does not say whether the run is done"):
        read_scores(run)
    said = report_html([run])
    assert "This run does not say whether it is done." in said
    assert "None" not in said.partition("This run does not say")[2].partition("Run its command again")[0]
