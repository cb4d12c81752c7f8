"""Extraction against transformers' own hidden states, one text at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.errors import LmassayError
from lmassay.models.extract import Reading, extract, like_lengths, padded, width_of
from lmassay.models.open import open_model
from lmassay.models.trace import trace
from tiny_models import VOCABULARY, tiny_hf, tiny_tokenizer

FAMILIES = ["gpt2", "gpt_neo", "gptj", "gpt_neox", "llama", "mistral", "qwen3", "gemma2", "gemma3", "opt_projected",
            "falcon_alibi", "bloom", "mpt"]  # fmt: skip
POOLINGS = ("last", "mean", "max")

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Another number of threads changes last bits, and a tiny model is too small to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def readings(n=7, seed=0):
    """Sequences of 1 to 40 tokens, of which some places are kept."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        length = int(rng.integers(1, 41))
        kept = np.sort(rng.choice(length, size=int(rng.integers(1, length + 1)), replace=False))
        made.append(Reading(rng.integers(3, VOCABULARY, size=length).astype(np.int32), kept.astype(np.int64)))
    return made


@torch.no_grad()
def plain(model, reading, block):
    """(n_tokens, width) output of a block for one text alone; hidden_states have the last block normed, so a hook."""
    seen = []
    handle = model.anatomy.blocks[block].register_forward_hook(
        lambda _, __, output: seen.append(output[0] if isinstance(output, tuple) else output)
    )
    out = model.hf(torch.tensor(reading.ids[None].astype(np.int64)), output_hidden_states=True, use_cache=False)
    handle.remove()
    if block < model.n_blocks - 1:
        assert torch.equal(out.hidden_states[block + 1], seen[0])
    return seen[0][0].double().numpy()[reading.kept]


def gathered(model, items, blocks, **options):
    """Per sequence: (n_blocks, n_poolings, width) pooled, and (n_token_blocks, n_kept, width) states."""
    pooled, tokens = {}, {}
    for batch in extract(model, items, blocks, **options):
        start = 0
        for at, member in enumerate(batch.members):
            stop = start + len(items[member].kept)
            pooled[member], tokens[member] = batch.pooled[:, :, at], batch.tokens[:, start:stop]
            start = stop
        assert start == batch.tokens.shape[1] or not len(batch.tokens)
    assert sorted(pooled) == list(range(len(items)))
    return [pooled[i] for i in range(len(items))], [tokens[i] for i in range(len(items))]


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_each_text_alone(tiny_model, family):
    model = tiny_model(family, dtype="float64")
    items, blocks = readings(), list(range(model.n_blocks))
    pooled, tokens = gathered(model, items, blocks, token_blocks=blocks, batch_tokens=100)
    for item, found, states in zip(items, pooled, tokens, strict=True):
        for b in blocks:
            own = plain(model, item, b)
            assert states[b] == pytest.approx(own, rel=1e-5, abs=1e-5)
            assert found[b, 0] == pytest.approx(own[-1], rel=1e-5, abs=1e-5)
            assert found[b, 1] == pytest.approx(np.array([column.mean() for column in own.T]), rel=1e-5, abs=1e-5)
            assert found[b, 2] == pytest.approx(np.array([max(column) for column in own.T]), rel=1e-5, abs=1e-5)


@settings(max_examples=12, deadline=None)
@given(order=st.permutations(range(7)), batch_tokens=st.integers(1, 300))
def test_batch_size_and_order_change_nothing(tiny_model, order, batch_tokens):
    """I-68: a row alone and a row in any batch are pooled alike."""
    model, items = tiny_model("llama"), readings()
    pooled, tokens = gathered(model, items, [0, 2], token_blocks=[2], batch_tokens=120)
    again, states = gathered(model, [items[i] for i in order], [0, 2], token_blocks=[2], batch_tokens=batch_tokens)
    for at, i in enumerate(order):
        assert again[at] == pytest.approx(pooled[i], rel=1e-5, abs=1e-5)
        assert states[at] == pytest.approx(tokens[i], rel=1e-5, abs=1e-5)


@given(lengths=st.lists(st.integers(1, 500), max_size=40), budget=st.integers(1, 3000))
def test_every_sequence_is_in_one_batch_that_fits_and_is_padded_little_unless_small(lengths, budget):
    found = list(like_lengths(lengths, budget))
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    for batch in found:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget
        for place, i in enumerate(batch):
            assert lengths[i] >= 0.9 * longest or longest * place < budget / 8


def test_blocks_come_in_the_order_asked_for(tiny_model):
    model, items = tiny_model("llama"), readings(3)
    forth, _ = gathered(model, items, [0, 2])
    back, states = gathered(model, items, [2, 0], token_blocks=[0], poolings=("max", "last"))
    for one, other in zip(forth, back, strict=True):
        assert np.array_equal(one[:, [2, 0]][::-1], other)
    assert np.array_equal(states[0][0][-1], back[0][1, 1])


@pytest.mark.parametrize("storage", ["bfloat16", "float16"])
def test_half_precision_rounds_what_is_stored_and_nothing_that_is_pooled(tiny_model, storage):
    model, items = tiny_model("llama"), readings(4)
    whole, states = gathered(model, items, [1], token_blocks=[1])
    pooled, halves = gathered(model, items, [1], token_blocks=[1], storage=storage)
    kind = getattr(torch, storage)
    for one, other, full, half in zip(whole, pooled, states, halves, strict=True):
        assert np.array_equal(one, other)
        bits = torch.from_numpy(full).to(kind).view(torch.int16).numpy()
        assert np.array_equal(bits, half.view(np.int16))


def test_a_bfloat16_reader_is_pooled_in_float32(tiny_model):
    model = tiny_model("llama", dtype="bfloat16")
    items = readings(4)
    pooled, states = gathered(model, items, [1], token_blocks=[1])
    for found, own in zip(pooled, states, strict=True):
        assert found[0, 1] == pytest.approx(own[0].astype(np.float64).mean(0), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("block", [0, 1, 2])
def test_no_block_after_the_last_that_is_wanted_is_run(tiny_model, block):
    model, ran = tiny_model("llama"), []
    handles = [
        module.register_forward_hook(lambda *_, i=i: ran.append(i)) for i, module in enumerate(model.anatomy.blocks)
    ]
    handles.append(model.anatomy.head.register_forward_hook(lambda *_: ran.append("head")))
    list(extract(model, readings(2), [block]))
    for handle in handles:
        handle.remove()
    assert set(ran) == set(range(block + 1))


def test_an_edit_after_what_is_recorded_is_still_reached(tiny_model):
    from lmassay.models.edits import Zero

    model = tiny_model("llama")
    batch = padded(model, [readings(1)[0].ids])
    first = torch.tensor([0])
    with_logits = trace(model, batch, first, first, [1], edits=[Zero("block.2.mlp")], logits=True)
    without = trace(model, batch, first, first, [1], edits=[Zero("block.2.mlp")])
    assert torch.equal(with_logits.states, without.states)


def test_states_that_are_no_numbers_are_refused():
    model = open_model(tiny_hf("llama"), tokenizer=tiny_tokenizer())
    model.anatomy.blocks[1].mlp.down_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(LmassayError, match="NaN or infinite") as refused:
        list(extract(model, readings(2), [1]))
    assert refused.value.code == "non-finite-logits"
    assert len(list(extract(model, readings(2), [0]))) == 1


def test_states_too_large_for_float16_are_refused_and_bfloat16_takes_them():
    hf = tiny_hf("llama")
    hf.get_input_embeddings().weight.data *= 1e6
    model = open_model(hf, tokenizer=tiny_tokenizer())
    with pytest.raises(LmassayError, match="too large for float16"):
        list(extract(model, readings(2), [0], token_blocks=[0], storage="float16"))
    assert list(extract(model, readings(2), [0], token_blocks=[0], storage="bfloat16"))


@pytest.mark.parametrize("family", ["gpt2", "mpt", "opt_projected", "gemma3"])
def test_the_width_is_that_of_the_residual_stream(tiny_model, family):
    model = tiny_model(family)
    (batch,) = extract(model, readings(1), [0])
    assert batch.pooled.shape[-1] == width_of(model) == 32
