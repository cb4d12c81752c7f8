"""Texts are written once, found again to the byte, and keyed by nothing that tells anything."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.cot.parts import PartWriter, TableJob, example_keys, read_part
from lmassay.cot.schema import Field
from lmassay.examples import Texts

TEXT = (Field("t", "text", optional=True),)


def written(folder, values):
    part = PartWriter("head/1/train/records", TEXT, folder, 0)
    part.add([f"{i}.json" for i in range(len(values))], [{} if v is None else {"t": v} for v in values])
    part.finish([], size=0, started=0)
    about, columns = (orjson.loads(line) for line in (folder / "00000.json").read_bytes().split(b"\n"))
    return about, columns, (folder / "00000.t.text").read_bytes()


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)), max_size=12),
    st.integers(0, 20),
)
def test_every_text_comes_back_whole_and_prefixes_take_no_room(tmp_path_factory, values, cut):
    folder = tmp_path_factory.mktemp("parts")
    # A text followed by its own prefixes, as a rollout's prefixes are.
    longest = sum(len(v.encode()) for v in values if v)
    values = [v for text in values for v in ((text,) if text is None else (text, text[:cut], text[: cut // 2]))]
    _, columns, data = written(folder, values)
    sizes = np.array([-1 if n is None else n for n in columns["t@bytes"]], dtype=np.int64)
    starts = np.array([s or 0 for s in columns["t@start"]], dtype=np.int64)
    texts = Texts([data], np.zeros(len(values), dtype=np.int64), starts, sizes)
    assert texts.pick(np.arange(len(values))) == values
    assert texts.bytes_at(np.arange(len(values))) == [(v or "").encode() for v in values]
    assert len(data) <= longest


def test_the_digest_is_that_of_the_columns_and_the_texts(tmp_path):
    about, columns, data = written(tmp_path, ["längere Sache", "läng", "andere"])
    assert data == "längere Sacheandere".encode()
    sha256 = hashlib.sha256(data).hexdigest()
    assert about["texts"] == {"t": [len(data), sha256]}
    expected = hashlib.sha256(orjson.dumps(columns))
    expected.update(f"t\x1f{sha256}".encode())
    assert about["digest"] == expected.hexdigest()


def test_a_key_is_of_its_table_and_name_alone():
    names = [f"q_rollout_{i:03d}.json" for i in range(400)]
    keys = example_keys("head/1/train/records", names)
    assert keys[7:8] == example_keys("head/1/train/records", names[7:8])
    assert len({*keys, *example_keys("post/1/train/records", names)}) == 800
    assert all(0 <= k < 2**63 for k in keys)
    # Sorted by key, the names' order is gone.
    assert abs(np.corrcoef(np.argsort(np.argsort(keys)), np.arange(400))[0, 1]) < 0.2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"t": "a', "not JSON"),
        (b"", "not JSON"),
        (b'{"t": "\xff\xfe"}', "not UTF-8"),
        (b'{"t": "\\ud800"}', "lone surrogate"),
        (b'{"t": NaN}', "not strict JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"t": 3}', "int where text"),
    ],
)
def test_a_file_that_is_no_record_is_kept_out_with_its_reason(tmp_path, content, why):
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (source / "a.json").write_bytes(content)
    (source / "b.json").write_text(json.dumps({"t": "whole"}))
    read_part(TableJob("head/1/train/records", TEXT, str(source), ["a.json", "b.json"], str(out)), 0)
    about, columns = (orjson.loads(line) for line in (out / "00000.json").read_bytes().split(b"\n"))
    ((name, reason),) = about["kept_out"]
    assert name == "a.json"
    assert why in reason
    assert columns["_file"] == ["b.json"]


def test_a_text_of_50_mb_is_read_whole(tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    text = "ä long thought " * (50 * 2**20 // 16)
    (source / "a.json").write_text(json.dumps({"t": text}, ensure_ascii=False))
    read_part(TableJob("head/1/train/records", TEXT, str(source), ["a.json"], str(out)), 0)
    assert (out / "00000.t.text").read_text() == text


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (tmp_path / "secret.json").write_text('{"t": "secret"}')
    (source / "a.json").symlink_to(tmp_path / "secret.json")
    read_part(TableJob("head/1/train/records", TEXT, str(source), ["a.json"], str(out)), 0)
    assert b"secret" not in (out / "00000.t.text").read_bytes()
