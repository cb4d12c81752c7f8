"""The run folder: one writer, one identity, and nothing of anybody else's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from lmassay.errors import LmassayError
from lmassay.storage.runs import (
    LABELS,
    LOCK,
    OPTIONS,
    PARTS,
    RUN,
    SCORES,
    check_tables,
    claimed,
    finished_record,
    first_difference,
    read_record,
    read_scores,
)

IDENTITY = {
    "suite": "xray",
    "model": {"name": "m", "weights": "a" * 64},
    "settings": {"protocol": "multi-token", "phases": ["real"], "seed": 0},
}
HOLDER = """
import sys, time
from pathlib import Path
from lmassay.storage.runs import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(120)
"""


def _finished(path):
    with claimed(path) as folder:
        folder.bind(IDENTITY, command="c", model={"name": "m"})
        for name in (OPTIONS, LABELS):
            (path / name).write_text(name)
        (path / SCORES).write_text("{}")
        folder.finish((OPTIONS, LABELS), counts={})
    return path


def _with(section, field, value):
    return IDENTITY | {section: IDENTITY[section] | {field: value}}


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder `run`."""
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path, holder):
    with (
        pytest.raises(LmassayError, match=f"run-folder-in-use: .* is being written by process {holder.pid} "),
        claimed(tmp_path / "run"),
    ):
        pytest.fail("two writers")
    assert holder.poll() is None


def test_the_lock_of_a_dead_process_is_no_lock(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / LOCK).exists()
    with claimed(tmp_path / "run") as folder:
        assert (folder.path / LOCK).read_text() == str(os.getpid())


def test_a_folder_is_free_again_after_its_writer_failed(tmp_path):
    with pytest.raises(ZeroDivisionError), claimed(tmp_path / "run"):
        raise ZeroDivisionError
    with claimed(tmp_path / "run"):
        pass


def test_a_fault_of_the_work_is_not_called_an_unwritable_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="model"), claimed(tmp_path / "run"):
        raise FileNotFoundError("model.safetensors")


@pytest.mark.parametrize("name", ["thesis.tex", OPTIONS, SCORES, PARTS, "notes.tmp"])
def test_a_folder_of_something_else_is_refused_and_left_as_it_was(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(LmassayError, match=f"bad-run-folder: .* it holds {name}"), claimed(tmp_path):
        pytest.fail("claimed")
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("text", ["", "{", "[]", '"run"', '{"schema_version": 99}', '{"scripts": {}}'])
def test_a_run_json_that_is_not_ours_is_refused_and_left_as_it_was(tmp_path, text):
    (tmp_path / RUN).write_text(text)
    with pytest.raises(LmassayError, match="bad-run-folder"), claimed(tmp_path):
        pytest.fail("claimed")
    assert (tmp_path / RUN).read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == [RUN]


def test_what_a_killed_writer_left_half_written_is_swept_away(tmp_path):
    _finished(tmp_path / "run")
    (tmp_path / "run" / f".{OPTIONS}.abc.tmp").write_text("half")
    with claimed(tmp_path / "run"):
        assert {p.name for p in (tmp_path / "run").iterdir()} == {RUN, SCORES, OPTIONS, LABELS, LOCK}


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "run").write_text("")
    for path in (tmp_path / "run", tmp_path / "run" / "below"):
        with pytest.raises(LmassayError, match="out-folder-unwritable"), claimed(path):
            pytest.fail("claimed")


def test_a_folder_that_takes_no_new_file_is_found_out_by_writing_one(tmp_path, monkeypatch):
    """Permissions do not bind root, and a lock file that is there already can be written in a read-only folder."""

    def refused(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    with pytest.raises(LmassayError, match=r"out-folder-unwritable: .*Permission denied"), claimed(tmp_path / "run"):
        pytest.fail("claimed")


@pytest.mark.parametrize(
    ("other", "field", "old", "new"),
    [
        (_with("model", "weights", "b" * 64), "model.weights", "a" * 16 + "…", "b" * 16 + "…"),
        (_with("settings", "seed", 1), "settings.seed", "0", "1"),
        (
            _with("settings", "phases", ["real", "controls"]),
            "settings.phases",
            r"\['real'\]",
            r"\['real', 'controls'\]",
        ),
        (_with("settings", "chat", True), "settings.chat", "None", "True"),
        (IDENTITY | {"suite": "cot"}, "suite", "xray", "cot"),
    ],
)
@pytest.mark.parametrize("status", ["running", "done"])
def test_a_run_of_something_else_is_refused_by_its_first_differing_field(tmp_path, other, field, old, new, status):
    _finished(tmp_path)
    with claimed(tmp_path) as folder:
        folder.update(status=status)
    before = (tmp_path / RUN).read_bytes()
    with (
        claimed(tmp_path) as folder,
        pytest.raises(LmassayError, match=f"run-folder-mismatch: .* with {field} = {old}, this one has {new} —"),
    ):
        folder.bind(other)
    assert (tmp_path / RUN).read_bytes() == before


def test_the_same_run_goes_on_with_the_time_it_was_started(tmp_path):
    with claimed(tmp_path) as folder:
        folder.bind(IDENTITY, command="first")
        folder.update(started="2020-01-01T00:00:00Z", status="interrupted")
    with claimed(tmp_path) as folder:
        assert not folder.done
        folder.bind(IDENTITY, command="second")
    record = read_record(tmp_path)
    assert (record["started"], record["status"], record["command"]) == ("2020-01-01T00:00:00Z", "running", "second")


def test_binding_a_finished_run_changes_nothing(tmp_path):
    _finished(tmp_path)
    before = (tmp_path / RUN).read_bytes()
    with claimed(tmp_path) as folder:
        folder.bind(IDENTITY, command="again")
        assert folder.done
    assert (tmp_path / RUN).read_bytes() == before


def test_a_finished_run_has_no_parts(tmp_path):
    with claimed(tmp_path) as folder:
        folder.bind(IDENTITY)
        (tmp_path / PARTS).mkdir()
        (tmp_path / PARTS / "00000.parquet").write_text("")
        for name in (OPTIONS, LABELS):
            (tmp_path / name).write_text("")
        (tmp_path / SCORES).write_text("{}")
        folder.finish((OPTIONS, LABELS))
    assert not (tmp_path / PARTS).exists()


@pytest.mark.parametrize("name", [OPTIONS, LABELS])
def test_an_altered_table_is_named(tmp_path, name):
    _finished(tmp_path)
    check_tables(tmp_path, read_record(tmp_path))
    (tmp_path / name).write_text("altered")
    with pytest.raises(LmassayError, match=f"{name} is not the table this run wrote"):
        check_tables(tmp_path, read_record(tmp_path))


@pytest.mark.parametrize("name", [OPTIONS, LABELS, SCORES])
def test_scores_of_a_run_that_lacks_a_file_are_not_read(tmp_path, name):
    _finished(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(LmassayError, match=f"bad-run-folder: .*{name}"):
        read_scores(tmp_path)


@pytest.mark.parametrize("tables", [{}, None, ["options.parquet"], {"../options.parquet": "0"}])
def test_a_record_that_names_no_tables_of_ours_is_refused(tmp_path, tables):
    _finished(tmp_path)
    with claimed(tmp_path) as folder:
        folder.update(tables=tables)
    with pytest.raises(LmassayError, match=r"bad-run-folder: .* does not name its tables"):
        finished_record(tmp_path)


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_scores_of_an_unfinished_run_are_not_read(tmp_path, status):
    _finished(tmp_path)
    with claimed(tmp_path) as folder:
        folder.update(status=status)
    with pytest.raises(LmassayError, match=f"the run is {status} — run its command again"):
        read_scores(tmp_path)


def test_the_first_difference_is_the_first_in_order_and_by_dotted_name():
    assert first_difference({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 9}, "d": 9}) == ("a.c", 2, 9)
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == ("b", None, 2)
    assert first_difference({"a": 1, "b": 2}, {"a": 1}) == ("b", 2, None)
    assert first_difference(IDENTITY, json.loads(json.dumps(IDENTITY))) is None


@pytest.mark.parametrize("there", [False, True])
def test_a_request_that_fails_before_anything_began_leaves_nothing(tmp_path, there):
    path = tmp_path / "run"
    if there:
        path.mkdir()
    with pytest.raises(LmassayError, match="no such model"), claimed(path):
        raise LmassayError("model-not-found", "no such model", "name another")
    assert path.exists() is there
    assert not there or not list(path.iterdir())


def test_of_long_lists_what_differs_is_named(tmp_path):
    with claimed(tmp_path / "run") as folder:
        folder.bind(_with("settings", "phases", ["real", "controls", "paraphrase"]))
        with pytest.raises(LmassayError) as refused:
            folder.bind(_with("settings", "phases", ["real", "controls", "paraphrase", "patching"]))
    assert "settings.phases = […], this one has […, patching]" in refused.value.what
