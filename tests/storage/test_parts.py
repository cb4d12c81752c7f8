"""Finished shards: read back exactly, or done again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmassay.storage.parts import Parts

COLUMNS = ("embed", "block.0", "final")
VALUES = np.random.default_rng(0).normal(size=(7, 3))


@pytest.fixture
def parts(tmp_path):
    made = Parts(tmp_path / "parts", COLUMNS)
    made.write(3, "what", VALUES)
    return made


def _file(parts):
    (path,) = parts.folder.iterdir()
    return path


def test_a_shard_is_read_back_bit_for_bit(parts):
    read = parts.read(3, "what", 7)
    assert read.tobytes() == VALUES.tobytes()
    assert parts.damaged == 0


@pytest.mark.parametrize(("index", "content"), [(2, "what"), (3, "what else")])
def test_another_number_or_plan_finds_nothing_and_damages_nothing(parts, index, content):
    assert parts.read(index, content, 7) is None
    assert parts.damaged == 0
    assert _file(parts).exists()


@given(st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_changed_byte_means_done_again(tmp_path_factory, at, change):
    """Parquet itself would give other numbers back, or bring the reader down."""
    parts = Parts(tmp_path_factory.mktemp("run") / "parts", COLUMNS)
    parts.write(0, "what", VALUES)
    path = _file(parts)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= change
    path.write_bytes(data)
    assert parts.read(0, "what", 7) is None
    assert parts.damaged == 1
    assert list(parts.folder.iterdir()) == []


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_a_cut_part_is_dropped_and_can_be_written_again(parts, kept):
    path = _file(parts)
    path.write_bytes(path.read_bytes()[:kept])
    assert parts.read(3, "what", 7) is None
    assert parts.damaged == 1
    parts.write(3, "what", VALUES)
    assert parts.read(3, "what", 7).tobytes() == VALUES.tobytes()


def test_a_part_of_another_size_or_of_other_depths_is_done_again(parts, tmp_path):
    assert parts.read(3, "what", 8) is None
    parts.write(3, "what", VALUES)
    other = Parts(tmp_path / "parts", ("embed", "block.0", "block.1"))
    assert other.read(3, "what", 7) is None
    assert other.damaged == 1
