"""Residuals of every prompt at every depth, kept on disk."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from lmassay.errors import LmassayError
from lmassay.models.trace import Batch, trace
from lmassay.storage.parts import Parts
from lmassay.xray import residuals as room
from lmassay.xray.residuals import COLUMNS, Residuals, record_residuals

CONTEXTS = [tuple(3 + (7 * i + 5 * j) % 300 for j in range(1 + i % 9)) for i in range(40)]


def _record(model, folder, contexts=CONTEXTS, batch_tokens=64, **more):
    return record_residuals(model, contexts, Parts(folder, COLUMNS), batch_tokens=batch_tokens, **more)


def _alone(model, context):
    """(n_depths, d_model) of one prompt in a forward pass of its own."""
    ids = torch.tensor([context])
    batch = Batch(ids, torch.ones_like(ids), torch.arange(len(context))[None])
    return trace(model, batch, torch.tensor([0]), torch.tensor([len(context) - 1])).states[:, 0].double().numpy()


@pytest.mark.tiny
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "opt_projected", "falcon_alibi", "mistral"])
def test_a_residual_is_the_one_of_its_prompt_alone(tiny_model, tmp_path, family):
    model = tiny_model(family)
    found = _record(model, tmp_path / "parts")
    assert found.n_depths == model.n_blocks + 1
    some = CONTEXTS[::3]
    alone = np.stack([_alone(model, c) for c in some], 1)
    for depth in range(found.n_depths):
        states = found.at(depth, some)
        assert states.dtype == np.float64
        np.testing.assert_allclose(states, alone[depth], atol=2e-5)
    # `final` is what the last block hands over, and is not kept twice.
    np.testing.assert_array_equal(alone[-1], alone[-2])


@pytest.mark.tiny
def test_batch_size_and_order_of_prompts_move_rounding_only(tiny_model, tmp_path):
    model = tiny_model("llama")
    one = _record(model, tmp_path / "a", batch_tokens=1)
    many = _record(model, tmp_path / "b", CONTEXTS[::-1], batch_tokens=4096)
    assert one.shards == many.shards
    for depth in range(one.n_depths):
        np.testing.assert_allclose(one.at(depth, CONTEXTS), many.at(depth, CONTEXTS), atol=2e-5)


@pytest.mark.tiny
def test_a_prompt_asked_for_twice_is_run_once(tiny_model, tmp_path):
    found = _record(tiny_model("gpt2"), tmp_path / "parts", [CONTEXTS[3], CONTEXTS[5], CONTEXTS[3]])
    assert sum(map(len, found.shards)) == 2
    states = found.at(1, [CONTEXTS[3], CONTEXTS[5], CONTEXTS[3]])
    np.testing.assert_array_equal(states[0], states[2])


@pytest.mark.tiny
def test_an_interrupted_run_goes_on_where_it_stopped(tiny_model, tmp_path, monkeypatch):
    model = tiny_model("gpt2")
    monkeypatch.setattr(room, "SHARD_PROMPTS", 4)
    whole = _record(model, tmp_path / "whole")

    def stop(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _record(model, tmp_path / "cut", progress=stop)
    # A part of the second shard is cut short, too.
    damaged = sorted((tmp_path / "cut").glob("00004-*"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    ran = []
    forward = room._run
    monkeypatch.setattr(room, "_run", lambda m, shard, n: ran.append(shard) or forward(m, shard, n))
    again = _record(model, tmp_path / "cut")
    assert len(whole.shards) >= 5
    assert ran == [whole.shards[1], *whole.shards[3:]]
    for depth in range(whole.n_depths):
        np.testing.assert_array_equal(again.at(depth, CONTEXTS), whole.at(depth, CONTEXTS))


@pytest.mark.tiny
def test_parts_that_vanish_while_the_run_goes_on_are_an_error(tiny_model, tmp_path):
    found = _record(tiny_model("gpt2"), tmp_path / "parts")
    for path in (tmp_path / "parts").glob("*.parquet"):
        path.unlink()
    with pytest.raises(LmassayError, match="bad-run-folder"):
        found.at(0, CONTEXTS)


@pytest.mark.tiny
def test_a_state_that_is_no_number_is_named_by_its_depth(tiny_model, tmp_path, monkeypatch):
    model = tiny_model("gpt2")
    bias = model.anatomy.mlp[1].c_proj.bias
    kept = bias[0].item()
    with torch.no_grad():
        bias[0] = torch.inf
    try:
        with pytest.raises(LmassayError, match=r"non-finite-logits.*block\.1"):
            _record(model, tmp_path / "parts")
    finally:
        with torch.no_grad():
            bias[0] = kept
    assert not list((tmp_path / "parts").glob("*.parquet"))


def test_reading_holds_one_depth_in_memory(tmp_path):
    """Written without a model: what is read grows with prompts and width, not with depths."""
    n_depths, n, width = 12, 64, 512
    contexts = tuple((i,) for i in range(n))
    found = Residuals(Parts(tmp_path / "parts", COLUMNS), (contexts,), n_depths, width)
    found.keep(0, torch.randn(n_depths, n, width))
    found.at(0, contexts)
    tracemalloc.start()
    for depth in range(n_depths):
        found.at(depth, contexts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    one_depth = n * width * 8
    assert peak < 6 * one_depth < n_depths * one_depth
