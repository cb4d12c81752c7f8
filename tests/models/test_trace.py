"""Recording changes nothing, an edit changes what it says and no more."""

from __future__ import annotations

import pytest
import torch

from lmassay.models.edits import Columns, Mean, Replace, Resample, Zero
from lmassay.models.readout import lens_logits
from lmassay.models.trace import Batch, Resume, trace
from tiny_models import FAMILIES

pytestmark = pytest.mark.tiny
TOKENS = 7


def _batch(model, n=2):
    ids = torch.randint(3, 300, (n, TOKENS), generator=torch.Generator().manual_seed(1))
    return Batch(ids, torch.ones_like(ids), torch.arange(TOKENS).expand_as(ids))


def _everywhere(n=2):
    return torch.arange(n).repeat_interleave(TOKENS), torch.arange(TOKENS).repeat(n)


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_states_are_those_the_model_itself_reports(tiny_model, family):
    model = tiny_model(family)
    batch = _batch(model)
    rows, cols = _everywhere()
    seen = trace(model, batch, rows, cols)
    own = model.hf(batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True)
    assert len(seen.states) == model.n_blocks + 2 == len(model.depths)
    # The last of them is already normed in Hugging Face's list, so it is left out here and held against the logits.
    for depth in range(model.n_blocks):
        torch.testing.assert_close(seen.states[depth], own.hidden_states[depth][rows, cols], rtol=0, atol=1e-6)
    torch.testing.assert_close(
        lens_logits(model, seen.states[-1]), own.logits[rows, cols].float(), rtol=0, atol=1e-5
    )  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["", ".attention", ".mlp"])
def test_identity_edit_is_bit_equal(tiny_model, family, kind):
    model = tiny_model(family)
    rows, cols = _everywhere()
    site = f"block.1{kind}"
    clean = trace(model, _batch(model), rows, cols, (), record_sites=[site], logits=True)
    edited = trace(
        model, _batch(model), rows, cols, (), edits=[Replace(site, rows, cols, clean.sites[site])], logits=True
    )
    assert torch.equal(clean.logits, edited.logits)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["attention", "mlp"])
def test_a_component_s_output_is_one_vector_a_token_and_is_what_the_block_adds(tiny_model, family, kind):
    """OPT flattens its tokens around the MLP: what is recorded there must still be the named token's own."""
    model = tiny_model(family)
    rows, cols = _everywhere()
    site = f"block.1.{kind}"
    seen = trace(model, _batch(model), rows, cols, record_sites=[site])
    assert seen.sites[site].shape == seen.states[1].shape
    one = torch.tensor([1]), torch.tensor([4])
    chosen = int(((rows == 1) & (cols == 4)).nonzero()[0, 0])
    torch.testing.assert_close(
        trace(model, _batch(model), *one, (), record_sites=[site]).sites[site][0], seen.sites[site][chosen]
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_resuming_from_its_own_states_is_bit_equal(tiny_model, family):
    model = tiny_model(family)
    rows, cols = _everywhere()
    clean = trace(model, _batch(model), rows, cols, logits=True)
    for block in range(model.n_blocks):
        states = clean.states[block + 1].view(2, TOKENS, -1)
        later = range(block + 1, len(model.depths))
        resumed = trace(model, _batch(model), rows, cols, later, logits=True, resume=Resume(block, states))
        assert torch.equal(resumed.logits, clean.logits)
        assert torch.equal(resumed.states, clean.states[block + 1 :])
    again = trace(model, _batch(model), rows, cols, logits=True)
    assert torch.equal(again.logits, clean.logits)


def test_resuming_elsewhere_forgets_the_prompt(tiny_model):
    model = tiny_model("llama")
    rows, cols = _everywhere()
    clean = trace(model, _batch(model), rows, cols, logits=True)
    other = torch.zeros(2, TOKENS, clean.states.shape[-1])
    resumed = trace(model, _batch(model), rows, cols, (), logits=True, resume=Resume(model.n_blocks - 1, other))
    assert torch.allclose(resumed.logits, resumed.logits[:1].expand_as(resumed.logits))
    assert not torch.allclose(resumed.logits, clean.logits, atol=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_ablating_a_head_equals_zeroing_its_columns_of_the_output_projection(tiny_model, family):
    """Grouped-query families too: a head is a query head, and its share stands in columns of its own."""
    model = tiny_model(family)
    rows, cols = _everywhere()
    projection = model.anatomy.out_projection[1]
    n_heads = model.hf.config.get_text_config().num_attention_heads
    kept = projection.weight.data.clone()
    # GPT-2's Conv1D keeps its weight the other way round.
    weight = projection.weight.data.T if type(projection).__name__ == "Conv1D" else projection.weight.data
    width = weight.shape[1] // n_heads
    for head in range(n_heads):
        zeroed = Columns(Zero("block.1.heads"), head * width, (head + 1) * width)
        edited = trace(model, _batch(model), rows, cols, (), edits=[zeroed], logits=True).logits
        try:
            weight[:, head * width : (head + 1) * width] = 0
            expected = trace(model, _batch(model), rows, cols, (), logits=True).logits
        finally:
            projection.weight.data.copy_(kept)
        torch.testing.assert_close(edited, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "bloom", "mpt", "gpt_neox", "falcon", "opt"])
def test_ablating_both_components_of_a_block_leaves_the_residual_stream_as_it_came(tiny_model, family):
    """What is named attention and MLP output is exactly what is added, biases and post-norms included (I-54)."""
    model = tiny_model(family)
    rows, cols = _everywhere()
    zeroed = [Zero("block.1.attention"), Zero("block.1.mlp")]
    states = trace(model, _batch(model), rows, cols, edits=zeroed).states
    torch.testing.assert_close(states[2], states[1], rtol=0, atol=1e-6)


def test_reading_more_does_not_change_what_is_read(tiny_model):
    """I-53: the result does not depend on what else is requested, or in which order."""
    model = tiny_model("llama")
    rows, cols = _everywhere()
    edit = [Zero("block.1.mlp")]
    few = trace(model, _batch(model), rows, cols, (4,), edits=edit).states
    many = trace(
        model, _batch(model), rows, cols, (4, 0, 2), edits=edit, record_sites=["block.2.mlp", "block.0.attention"]
    ).states
    assert torch.equal(few[0], many[0])


def test_an_edit_touches_only_the_tokens_it_names(tiny_model):
    """I-56."""
    model = tiny_model("gpt2")
    rows, cols = _everywhere()
    clean = trace(model, _batch(model), rows, cols).states
    values = torch.full((1, 32), 3.0)
    edited = trace(
        model, _batch(model), rows, cols, edits=[Replace("block.0", torch.tensor([1]), torch.tensor([4]), values)]
    ).states
    changed = (clean[1] != edited[1]).any(-1)
    assert changed.nonzero().flatten().tolist() == [TOKENS + 4]
    assert torch.equal(clean[:, :TOKENS], edited[:, :TOKENS])
    assert torch.equal(clean[-1, TOKENS : TOKENS + 4], edited[-1, TOKENS : TOKENS + 4])
    assert not torch.equal(clean[-1, TOKENS + 4 :], edited[-1, TOKENS + 4 :])


def test_mean_and_resample_put_what_they_are_given(tiny_model):
    model = tiny_model("llama")
    rows, cols = _everywhere()
    vector = torch.arange(32.0)
    donor = torch.randn(2, TOKENS, 32)
    for edit, expected in (
        (Mean("block.1.mlp", vector), vector.expand(14, 32)),
        (Resample("block.1.mlp", donor), donor.reshape(14, 32)),
    ):
        seen = trace(model, _batch(model), rows, cols, (), edits=[edit], record_sites=["block.1.mlp"])
        assert torch.equal(seen.sites["block.1.mlp"], expected)


def test_a_donor_of_another_length_is_refused(tiny_model):
    """I-58."""
    model = tiny_model("llama")
    rows, cols = _everywhere()
    with pytest.raises(ValueError, match="do not fit"):
        trace(model, _batch(model), rows, cols, edits=[Resample("block.1", torch.zeros(2, TOKENS + 1, 32))])


@pytest.mark.parametrize("site", ["block.9", "block.1.norm", "nonsense", "block.-1"])
def test_an_unknown_site_is_named(tiny_model, site):
    rows, cols = _everywhere()
    with pytest.raises(ValueError, match="has no site"):
        trace(tiny_model("gpt2"), _batch(None), rows, cols, edits=[Zero(site)])


def _hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.hf.modules())


def test_no_hook_stays_behind(tiny_model):
    model = tiny_model("gpt2")
    rows, cols = _everywhere()
    before = _hooks(model)
    trace(model, _batch(model), rows, cols)
    with pytest.raises(ValueError, match="has no site"):
        trace(model, _batch(model), rows, cols, edits=[Zero("block.9")])
    assert _hooks(model) == before
