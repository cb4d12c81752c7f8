"""Shards: what the safetensors library reads of them, and what becomes of a damaged or unfinished one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from lmassay.errors import LmassayError
from lmassay.storage.shards import Shards, places_of, read_rows

TENSORS = {"keys": ("I64", (3,)), "half": ("BF16", (5, 4)), "whole": ("F32", (3, 2)), "none": ("F32", (0, 2))}


def _filled(shards, number=0, content="a"):
    with shards.new(number, content, TENSORS) as shard:
        shard.put("keys", 0, np.array([7, 8, 9]))
        shard.put("half", 3, _bits(np.full((2, 4), 1.5, np.float32)))
        shard.put("half", 0, _bits(np.full((3, 4), -2.0, np.float32)))
        shard.put("whole", 0, np.arange(6, dtype=np.float32).reshape(3, 2))
    return shards.find(number, content)


def _bits(values):
    return torch.from_numpy(values).bfloat16().view(torch.int16).numpy()


def test_the_safetensors_library_reads_what_was_written_in_pieces(tmp_path):
    path = _filled(Shards(tmp_path))
    read = load_file(path)
    assert {name: tuple(t.shape) for name, t in read.items()} == {n: shape for n, (_, shape) in TENSORS.items()}
    assert read["half"].dtype == torch.bfloat16
    assert read["half"][:, 0].tolist() == [-2.0, -2.0, -2.0, 1.5, 1.5]
    assert read["whole"].tolist() == [[0, 1], [2, 3], [4, 5]]
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"content": "a"}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_rows_come_back_as_bfloat16_rounds_them(tmp_path_factory, data):
    n = data.draw(st.integers(1, 20))
    values = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32) * 100
    shards = Shards(tmp_path_factory.mktemp("rows"))
    with shards.new(0, "a", {"x": ("BF16", (n, 3))}) as shard:
        cut = data.draw(st.integers(0, n))
        shard.put("x", cut, _bits(values[cut:]))
        shard.put("x", 0, _bits(values[:cut]))
    path = shards.find(0, "a")
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    read = read_rows(path, places_of(path)["x"], start, stop)
    assert np.array_equal(read, torch.from_numpy(values[start:stop]).bfloat16().float().numpy())


def test_an_unfinished_shard_leaves_nothing(tmp_path):
    shards = Shards(tmp_path)
    with pytest.raises(ValueError, match="rows, not"), shards.new(0, "a", TENSORS) as shard:
        shard.put("keys", 0, np.array([7, 8, 9, 10]))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="rows of half, whole"), shards.new(0, "a", TENSORS) as shard:
        shard.put("keys", 0, np.array([7, 8, 9]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "row", "values"),
    [
        ("whole", 0, np.zeros((1, 3), np.float32)),
        ("whole", 0, np.zeros((1, 2))),
        ("whole", 2, np.zeros((2, 2), np.float32)),
    ],
)
def test_values_of_another_type_or_shape_are_refused(tmp_path, name, row, values):
    with pytest.raises(ValueError, match=name), Shards(tmp_path).new(0, "a", TENSORS) as shard:
        shard.put(name, row, values)


@pytest.mark.parametrize("harm", ["cut", "altered"])
def test_a_damaged_shard_is_not_found_again_and_is_counted(tmp_path, harm):
    shards = Shards(tmp_path)
    path = _filled(shards)
    data = path.read_bytes()
    path.write_bytes(data[:-1] if harm == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    assert shards.find(0, "a") is None
    assert shards.damaged == 1
    assert list(tmp_path.iterdir()) == []


def test_a_shard_of_something_else_is_not_found(tmp_path):
    shards = Shards(tmp_path)
    path = _filled(shards)
    assert shards.find(0, "b") is None
    assert shards.find(1, "a") is None
    assert shards.find(0, "a") == path
    assert shards.has(0, "a")
    assert not shards.has(0, "b")


@pytest.mark.parametrize("data", [b"", b"12345678", (1 << 60).to_bytes(8, "little"), b"\x02" + bytes(7) + b"[]"])
def test_a_file_that_is_no_shard_is_named(tmp_path, data):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(LmassayError, match=r"x\.safetensors") as refused:
        places_of(path)
    assert refused.value.code == "activations-broken"


def test_rows_past_the_end_of_a_cut_file_are_named(tmp_path):
    path = _filled(Shards(tmp_path))
    place = places_of(path)["half"]
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(LmassayError, match="cut short"):
        read_rows(path, place, 0, 5)
