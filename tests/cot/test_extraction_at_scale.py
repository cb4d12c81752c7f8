"""Extraction of many examples and of models that are spread out: memory stays flat, states stay the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from made_extraction import WORDS, asked, write_data, write_reader

from lmassay.cot.activations import extract_activations
from lmassay.cot.extraction import DataSource
from lmassay.models.source import ModelSource
from lmassay.storage.activations import ActivationStore

pytestmark = pytest.mark.tiny
TESTS = Path(__file__).parents[1]

CHILD = """
import resource, sys
import torch
from made_extraction import run
torch.set_num_threads(1)
result = run(*sys.argv[1:4], token_blocks=(0, 2), storage="float32", shard_tokens=4000, batch_tokens=1000)
tokens = result.record["counts"]["tokens"]["kept"]
print(result.made, tokens, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Another number of threads changes last bits, and a tiny model is too small to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def write_long(path, n):
    """`n` training examples of like length, near the context of 128 tokens, and a few of the other splits."""
    rows = []
    for split, rows_of in (("train", n), ("validation", 4), ("test", 4)):
        for i in range(rows_of):
            said = " ".join(WORDS[(i * j + j) % len(WORDS)] for j in range(1, 23))
            rows.append(
                {"example_id": f"{split}-{i}", "split": split, "question_id": f"{split}-{i // 2}",
                 "label": ("yes", "no")[i % 2], "prompt": f"Is {i} odd?", "cot": said}
            )  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_examples(tmp_path):
    """Eight times the examples, in shards of the same size, each time in a process of its own."""
    reader = write_reader(tmp_path / "reader")
    environment = os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS / 'cot'}", "OMP_NUM_THREADS": "1"}
    seen = {}
    for n in (300, 2400):
        words = [write_long(tmp_path / f"{n}.jsonl", n), reader, tmp_path / f"store {n}"]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *map(str, words)], capture_output=True, text=True, check=True, env=environment
        )
        shards, tokens, kilobytes = map(int, done.stdout.split()[-3:])
        seen[n] = shards, tokens, kilobytes * 1024
    more_shards, more_tokens = seen[2400][0] - seen[300][0], seen[2400][1] - seen[300][1]
    assert more_shards > 20
    # Two blocks of 32 float32 components a token: what would be held if states were kept until the end.
    states = more_tokens * 2 * 32 * 4
    assert states > 30e6
    assert seen[2400][2] - seen[300][2] < states / 3, seen


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    return write_data(root / "data.jsonl", n=12), write_reader(root / "reader")


def extracted(place, out, device_map):
    data, reader = place
    source = DataSource("reasoning_termination", source=str(data))
    return ActivationStore(
        extract_activations(source, ModelSource(str(reader), device_map=device_map), asked(), out).path
    )


@pytest.fixture(scope="module")
def plain(place, tmp_path_factory):
    return extracted(place, tmp_path_factory.mktemp("plain") / "store", None)


#: The second of three blocks stays on disk and is read each time it is run.
ON_DISK = {
    "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.layers.2": "cpu",
    "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu",
}  # fmt: skip


@pytest.mark.parametrize("device_map", ["auto", {"": "cpu"}, ON_DISK], ids=["auto", "one", "disk"])
def test_a_model_that_is_spread_out_gives_the_same_states(place, plain, tmp_path, device_map):
    found = extracted(place, tmp_path / "store", device_map)
    # Where a model's parts lie decides no number, and so is no part of a store's identity.
    assert found.identity == plain.identity
    keys = plain.examples()["key"].to_numpy()
    for pooling in ("last", "mean", "max"):
        assert np.array_equal(found.pooled(keys, 2, pooling), plain.pooled(keys, 2, pooling))
    for key in keys.tolist():
        assert np.array_equal(found.states(key, 2), plain.states(key, 2))


def test_a_block_on_disk_holds_no_memory(place):
    model = ModelSource(str(place[1]), device_map=ON_DISK).open()
    devices = {name: p.device.type for name, p in model.hf.named_parameters() if "layers." in name}
    assert {d for name, d in devices.items() if ".1." in name.partition("layers")[2][:3]} == {"meta"}
    assert {d for name, d in devices.items() if ".1." not in name.partition("layers")[2][:3]} == {"cpu"}
