"""A run in one file: the same bytes every time, and nothing in it taken on trust."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile

import polars as pl
import pytest

from lmassay.cli.finished import rescored_of
from lmassay.errors import FINDING, LmassayError
from lmassay.storage import bundle as bundle_module
from lmassay.storage.bundle import MANIFEST, content_hash, verify_bundle, write_bundle
from lmassay.storage.runs import LABELS, OPTIONS, RUN, SCORES
from outside_runs import outside_run

FILES = (RUN, SCORES, OPTIONS, LABELS)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return outside_run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def packed(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "run.tar.gz"
    write_bundle(run, path)
    return path


def _members(path):
    with tarfile.open(path) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive}


def _pack(path, members, kind=tarfile.REGTYPE, odd=None):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if name == odd:
                member.type, member.linkname, member.size = kind, "/etc/passwd", 0
            archive.addfile(member, io.BytesIO(data))
    return path


def _forged(members):
    """Members with digests that fit, as a careful forger would make them."""
    digests = {n: hashlib.sha256(members[n]).hexdigest() for n in FILES}
    content = {n: d for n, d in digests.items() if n != RUN}
    whole = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {**members, MANIFEST: json.dumps({"files": digests, "content_sha256": whole}).encode()}


def _refused(path, said=""):
    with pytest.raises(LmassayError, match="bad-run-folder: .* does not verify") as refused:
        verify_bundle(path, rescored_of)
    assert refused.value.exit_status == FINDING
    assert said in refused.value.what
    return refused.value


def test_the_same_run_gives_the_same_bytes_wherever_it_lies(run, packed, tmp_path):
    copy = tmp_path / "another name"
    copy.mkdir()
    for name in reversed(FILES):
        (copy / name).write_bytes((run / name).read_bytes())
    digest = write_bundle(copy, tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").read_bytes() == packed.read_bytes()
    assert digest == hashlib.sha256(packed.read_bytes()).hexdigest()


def test_a_bundle_verifies_and_names_its_content(run, packed):
    assert verify_bundle(packed, rescored_of) == content_hash(run)


def test_the_content_hash_ignores_times_and_machine_and_nothing_else(run, tmp_path):
    for name in FILES:
        (tmp_path / name).write_bytes((run / name).read_bytes())
    record = json.loads((tmp_path / RUN).read_text())
    (tmp_path / RUN).write_text(json.dumps(record | {"started": "2020-01-01T00:00:00Z", "machine": {}}))
    assert content_hash(tmp_path) == content_hash(run)
    for name in (SCORES, OPTIONS, LABELS):
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(kept + b" ")
        assert content_hash(tmp_path) != content_hash(run)
        (tmp_path / name).write_bytes(kept)


def test_every_file_of_the_run_is_in_it_and_nothing_else(packed):
    assert list(_members(packed)) == [MANIFEST, *FILES]


@pytest.mark.parametrize("name", FILES)
def test_a_changed_or_missing_file_is_named(packed, tmp_path, name):
    members = _members(packed)
    _refused(_pack(tmp_path / "a.tar.gz", {**members, name: members[name] + b" "}), f"{name} is not what the manifest")
    del members[name]
    _refused(_pack(tmp_path / "b.tar.gz", members), f"{name} is not what the manifest")


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"files": 3}', b"\xff"])
def test_a_manifest_that_says_nothing_is_refused(packed, tmp_path, content):
    members = _members(packed)
    del members[MANIFEST]
    if content is not None:
        members[MANIFEST] = content
    _refused(_pack(tmp_path / "a.tar.gz", members))


def test_a_score_that_does_not_come_out_of_its_tables_is_named_though_all_hashes_hold(packed, tmp_path):
    members = _members(packed)
    document = json.loads(members[SCORES])
    document["scores"]["psi"]["value"] = 0.99
    forged = _forged({**members, SCORES: json.dumps(document).encode()})
    _refused(_pack(tmp_path / "a.tar.gz", forged), "scores.psi.value comes out differently")


def test_a_table_that_contradicts_itself_is_named_though_all_hashes_hold(packed, tmp_path):
    members = _members(packed)
    buffer = io.BytesIO()
    pl.read_parquet(members[OPTIONS]).with_columns(pl.col("logprob") + 1).write_parquet(buffer)
    record = json.loads(members[RUN])
    record["tables"][OPTIONS] = hashlib.sha256(buffer.getvalue()).hexdigest()
    forged = _forged({**members, OPTIONS: buffer.getvalue(), RUN: json.dumps(record).encode()})
    _refused(_pack(tmp_path / "a.tar.gz", forged), "scores differ from logprob - neutral")


@pytest.mark.parametrize("identity", [None, [], {}, {"settings": None}, {"settings": {"seed": "x"}}])
def test_a_record_with_anything_in_it_is_refused_and_does_not_crash(packed, tmp_path, identity):
    members = _members(packed)
    record = json.loads(members[RUN]) | {"identity": identity}
    _refused(_pack(tmp_path / "a.tar.gz", _forged({**members, RUN: json.dumps(record).encode()})))


@pytest.mark.parametrize("name", ["../evil", "/else/evil", "run.json/../../evil", "a/run.json", "evil"])
def test_a_member_of_another_name_is_refused_and_written_nowhere(packed, tmp_path, name):
    (tmp_path / "deep").mkdir()
    path = _pack(tmp_path / "deep" / "a.tar.gz", {**_members(packed), name: b"evil"})
    _refused(path, "it holds")
    assert [p.name for p in tmp_path.rglob("*")] == ["deep", "a.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_links_and_other_kinds_of_member_are_refused(packed, tmp_path, kind):
    _refused(_pack(tmp_path / "a.tar.gz", _members(packed), kind, odd=RUN), "it holds 'run.json'")


def test_what_would_fill_the_disk_is_refused_before_it_is_unpacked(packed, monkeypatch):
    monkeypatch.setattr(bundle_module, "LARGEST", 1000)
    _refused(packed, "it holds")


def test_a_file_cut_or_damaged_anywhere_is_refused_in_one_line_or_holds_the_very_same_run(run, packed, tmp_path):
    """A changed byte of padding, or of the archive's own checksum after the last member, changes no run."""
    data = packed.read_bytes()
    draw = random.Random(0)
    damaged = [data[:n] for n in (0, 1, 10, len(data) // 2, len(data) - 1)]
    for _ in range(25):
        changed = bytearray(data)
        changed[draw.randrange(12, len(data))] ^= draw.randrange(1, 256)
        damaged.append(bytes(changed))
    damaged += [gzip.compress(b"no archive"), b"no gzip"]
    refusals = []
    for content in damaged:
        (tmp_path / "a.tar.gz").write_bytes(content)
        try:
            assert verify_bundle(tmp_path / "a.tar.gz", rescored_of) == content_hash(run)
        except LmassayError as refused:
            refusals.append(refused)
    assert len(refusals) >= len(damaged) - 3
    assert {r.exit_status for r in refusals} == {FINDING}
    assert not any("\n" in str(r) for r in refusals)


def test_an_unfinished_or_incomplete_run_is_not_packed(run, tmp_path):
    copy = tmp_path / "run"
    copy.mkdir()
    for name in FILES:
        (copy / name).write_bytes((run / name).read_bytes())
    (copy / LABELS).unlink()
    with pytest.raises(LmassayError, match=f"bad-run-folder: .* lacks {LABELS}"):
        write_bundle(copy, tmp_path / "out.tar.gz")
    record = json.loads((run / RUN).read_text())
    (copy / RUN).write_text(json.dumps(record | {"status": "running"}))
    with pytest.raises(LmassayError, match="the run is running"):
        write_bundle(copy, tmp_path / "out.tar.gz")
    assert not (tmp_path / "out.tar.gz").exists()
