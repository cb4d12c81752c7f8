"""A file is there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.storage.atomic import parquet_bytes, write_bytes, write_json, write_parquet, write_text, write_with


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("written", [0, 1, 7])
@pytest.mark.parametrize("before", [None, "old"])
def test_a_write_that_fails_at_any_byte_leaves_the_old_file_and_no_other(tmp_path, written, before):
    path = tmp_path / "scores.json"
    if before is not None:
        path.write_text(before)

    def fill(temporary: Path) -> None:
        temporary.write_text("new text"[:written])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(LmassayError, match=r"disk-full: .*No space left on device — free some space") as failed:
        write_with(path, fill)
    assert failed.value.exit_status == FAILED_PART_WAY
    assert (path.read_text() if path.exists() else None) == before
    assert [p.name for p in tmp_path.iterdir()] == ([] if before is None else [path.name])


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_after_the_last_byte_leaves_the_old_file_too(tmp_path, monkeypatch, step):
    path = tmp_path / "run.json"
    path.write_text("old")

    def fails(*_):
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(*(("os.fsync",) if step == "fsync" else (Path, "replace")), fails)
    with pytest.raises(LmassayError, match="disk-full"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_fault_of_the_writer_leaves_no_temporary_file_and_stays_itself(tmp_path):
    def fill(temporary: Path) -> None:
        temporary.write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_with(tmp_path / "file", fill)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_and_the_old_file_stands(small_disk):
    path = small_disk / "file"
    write_bytes(path, b"old")
    table = pl.DataFrame(np.random.default_rng(0).normal(size=(2000, 40)))
    for write in (
        lambda: write_bytes(path, bytes(100_000)),
        lambda: write_bytes(path, parquet_bytes(table)),
        lambda: write_parquet(path, [table], table.schema),
    ):
        with pytest.raises(LmassayError, match=r"disk-full: could not write .*No space left"):
            write()
        assert path.read_bytes() == b"old"
        assert [p.name for p in small_disk.iterdir()] == ["file"]


def test_a_missing_folder_is_not_called_a_full_disk(tmp_path):
    with pytest.raises(LmassayError, match="No such file or directory — make sure its folder can be written"):
        write_text(tmp_path / "nowhere" / "file", "text")


def test_what_is_read_back_is_what_was_written(tmp_path):
    content = {"b": [1, 2.5, None], "a": "π \u202e line\nbreak \ud800"}
    write_json(tmp_path / "x.json", content)
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == content
    assert list(json.loads((tmp_path / "x.json").read_text())) == ["b", "a"]
    assert (tmp_path / "x.json").read_bytes().isascii()


def test_json_holds_no_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"value": float("nan")})
    assert list(tmp_path.iterdir()) == []


TABLE = pl.DataFrame({"a": ["x", None] * 500, "b": np.linspace(0, 1, 1000), "c": [["p", "q"], []] * 500})


def test_the_same_table_gives_the_same_bytes(tmp_path):
    assert parquet_bytes(TABLE) == parquet_bytes(TABLE.clone())
    for name in ("first", "second"):
        write_parquet(tmp_path / name, TABLE.iter_slices(300), TABLE.schema)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_table_written_in_pieces_is_the_whole_table(tmp_path):
    write_parquet(tmp_path / "table", TABLE.iter_slices(300), TABLE.schema)
    assert_frame_equal(pl.read_parquet(tmp_path / "table"), TABLE)
    assert [p.name for p in tmp_path.iterdir()] == ["table"]


def test_a_fault_while_the_pieces_are_made_leaves_nothing(tmp_path):
    def pieces():
        yield TABLE
        raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, pl.exceptions.ComputeError)):
        write_parquet(tmp_path / "table", pieces(), TABLE.schema)
    assert list(tmp_path.iterdir()) == []
