"""States at the ends of sequences: the same in however many parts trunk and tails are run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmassay.models import branches
from lmassay.models.branches import end_states
from lmassay.models.readout import lens_logits

FAMILIES = ("gpt2", "llama", "gemma2", "bloom")


@pytest.mark.tiny
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("part", [3, 4, 7, 19, 20])
def test_a_trunk_longer_than_several_parts_reads_as_the_model_reads_it_whole(tiny_model, monkeypatch, family, part):
    monkeypatch.setattr(branches, "TRUNK_TOKENS", part)
    model = tiny_model(family)
    trunk = np.random.default_rng(0).integers(5, 60, 20).tolist()
    sequences = [trunk, trunk[:11], [*trunk[:6], 7, 8, 9]]
    last = [5, 1, 2]
    with torch.inference_mode():
        found = end_states(model, sequences, last)
        for ids, n, states in zip(sequences, last, found, strict=True):
            whole = model.hf(torch.tensor([ids]), use_cache=False).logits[0, -n:]
            assert states.shape[0] == n
            torch.testing.assert_close(lens_logits(model, states), whole, atol=2e-4, rtol=0)


@pytest.mark.tiny
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("packed", [None, False])
def test_tails_in_many_packs_and_batches_read_as_in_one(tiny_model, monkeypatch, family, packed):
    model = tiny_model(family)
    rng = np.random.default_rng(1)
    trunk = rng.integers(5, 60, 14).tolist()
    sequences = [trunk, *([*trunk[: 2 * i], *rng.integers(5, 60, 1 + i).tolist()] for i in range(6))]
    last = [1, 1, 2, 1, 3, 1, 2]
    with torch.inference_mode():
        whole = end_states(model, sequences, last, packed=packed)
        # A tail longer than a pack has one of its own.
        monkeypatch.setattr(branches, "TAIL_TOKENS", 4)
        monkeypatch.setattr(branches, "ROW_TOKENS", 20)
        parted = end_states(model, sequences, last, packed=packed)
    for one, other in zip(whole, parted, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=0)
