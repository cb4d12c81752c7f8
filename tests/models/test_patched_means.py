"""Patching against full forward passes with one edit each, one sequence at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.models.edits import Replace
from lmassay.models.engines import score
from lmassay.models.patching import cells_of, patched_means
from lmassay.models.trace import Batch, trace
from lmassay.models.tree import Continuations

pytestmark = pytest.mark.tiny

#: Parallel residual, grouped queries, post-norms, ALiBi and logit scaling; `test_trace` resumes every family.
FAMILIES = ["gpt2", "gpt_neox", "qwen3", "gemma2", "opt", "bloom", "mpt", "falcon", "cohere"]

REQUESTS = [
    Continuations((5, 9, 11, 40), ((7,), (7, 8), (21, 22, 23), (7, 8, 30))),
    Continuations((12, 13), ((50, 51), (60,))),
    Continuations((33,), ((44, 45), (46,))),
]


def plain(model, request, cells):
    """(n_cells, n_targets): the whole model once per cell and target, by a hook on the target block."""
    found = np.empty((len(cells), len(request.targets)))
    for column, target in enumerate(request.targets):
        ids = torch.tensor([[*request.context, *target[:-1]]])
        batch = Batch(ids, torch.ones_like(ids), torch.arange(ids.shape[1])[None])
        cols = torch.arange(len(request.context) - 1, ids.shape[1])
        rows = torch.zeros_like(cols)
        clean = trace(model, batch, rows, cols)
        for at, (source, block) in enumerate(cells):
            patch = Replace(f"block.{block}", rows, cols, clean.states[source])
            logits = trace(model, batch, rows, cols, (), edits=[patch], logits=True).logits.double()
            found[at, column] = torch.log_softmax(logits, -1)[torch.arange(len(target)), torch.tensor(target)].mean()
    return found


def grids(model):
    """Every cell, one source, two sources; the readout column included."""
    targets = range(model.n_blocks)
    return [cells_of(sources, targets) for sources in (range(model.n_blocks + 1), [1], [0, 2])]


@pytest.mark.parametrize("family", FAMILIES)
def test_patched_scores_equal_full_forward_passes_with_one_edit(tiny_model, family):
    model = tiny_model(family, dtype="float64")
    found = patched_means(model, REQUESTS, grids(model))
    for request, cells, values in zip(REQUESTS, grids(model), found, strict=True):
        # Some families keep float32 inside (norms, soft-caps) whatever the weights' precision.
        np.testing.assert_allclose(values, plain(model, request, cells), rtol=0, atol=1e-6)


def test_every_source_meets_the_blocks_after_it():
    assert cells_of([0, 2, 1], [0, 1, 2]) == [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
    assert cells_of([3], [0, 1, 2]) == []


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom"])
def test_the_readout_column_is_the_lens_at_the_source(tiny_model, family):
    """Replacing the last block's output by an earlier state reads that state: no causal figure, so it is left out."""
    model = tiny_model(family, dtype="float64")
    depths = list(range(model.n_blocks))
    found = patched_means(model, REQUESTS, [cells_of(depths, [model.n_blocks - 1])] * 3)
    for values, scored in zip(found, score(model, REQUESTS), strict=True):
        lens = np.stack([tokens.mean(0)[depths] for tokens in scored], 1)
        np.testing.assert_allclose(values, lens, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom"])
def test_a_block_s_own_output_patches_nothing(tiny_model, family):
    """s = t, which no grid holds: the states put in are those that stood there."""
    model = tiny_model(family, dtype="float64")
    cells = [(block + 1, block) for block in range(model.n_blocks)]
    for values, scored in zip(patched_means(model, REQUESTS, [cells] * 3), score(model, REQUESTS), strict=True):
        clean = [tokens.mean(0)[-1] for tokens in scored]
        np.testing.assert_allclose(values, [clean] * len(cells), rtol=0, atol=1e-9)


@settings(max_examples=10, deadline=None)
@given(batch_tokens=st.sampled_from([16, 40, 300, 4096]), order=st.permutations(range(3)))
def test_neither_batches_nor_order_matter(tiny_model, batch_tokens, order):
    model = tiny_model("llama", dtype="float64")
    first = patched_means(model, REQUESTS, grids(model))
    mixed = patched_means(
        model, [REQUESTS[i] for i in order], [grids(model)[i] for i in order], batch_tokens=batch_tokens
    )
    for at, i in enumerate(order):
        np.testing.assert_allclose(mixed[at], first[i], rtol=0, atol=1e-9)
