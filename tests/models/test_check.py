"""The self-check refuses, with the figure, a model that does not behave as every measurement assumes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from lmassay.errors import LmassayError
from lmassay.models.check import self_check, tolerance
from lmassay.models.open import open_model
from lmassay.models.trace import Batch, trace
from tiny_models import tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
TOKENIZER = tiny_tokenizer()


def _refused(hf) -> float:
    """The figure in the refusal."""
    with pytest.raises(LmassayError) as caught:
        open_model(hf, tokenizer=TOKENIZER)
    assert caught.value.code == "model-failed-self-check"
    found = re.search(r"by (\S+) nats \(allowed: (\S+)\)", caught.value.what)
    assert found is not None
    assert float(found[1]) > float(found[2])
    return float(found[1])


def test_a_model_that_norms_after_its_final_norm_is_refused_with_the_difference():
    hf = tiny_hf("llama")
    norm = hf.model.norm
    hf.model.register_forward_hook(lambda _, __, out: _changed(out, norm(out.last_hidden_state)))
    assert _refused(hf) > 1e-2


def _changed(output, state):
    output.last_hidden_state = state
    return output


def test_a_head_that_does_more_than_its_weights_say_is_refused_with_the_difference():
    hf = tiny_hf("llama")
    noise = 0.5 * torch.randn(320, generator=torch.Generator().manual_seed(0))
    hf.lm_head.register_forward_hook(lambda _, __, out: out + noise)
    assert _refused(hf) > 0.1


def test_the_final_norm_of_another_model_is_refused(tiny_model):
    model = tiny_model("llama")
    other = tiny_hf("llama", seed=5).model.norm
    with pytest.raises(LmassayError, match=r"lens of its last block differs from its own output by \d"):
        self_check(replace(model, anatomy=replace(model.anatomy, norm=other)))


def test_a_soft_cap_left_out_is_refused(tiny_model):
    model = tiny_model("gemma2")
    with pytest.raises(LmassayError, match="differs from its own output"):
        self_check(replace(model, anatomy=replace(model.anatomy, finish=lambda logits: logits)))


def test_a_model_that_answers_at_random_is_refused():
    hf = tiny_hf("llama")
    generator = torch.Generator().manual_seed(0)
    hf.model.layers[0].register_forward_hook(lambda _, __, out: out + torch.randn(out.shape, generator=generator))
    assert _refused(hf) > 0


def test_a_model_that_ignores_padding_is_refused():
    """I-24: a backend whose padded rows differ from the row alone fails loudly."""
    hf = tiny_hf("llama")
    forward = hf.model.forward

    def leaky(*args, **kwargs):
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.dim() == 2:
            kwargs["inputs_embeds"] = hf.model.embed_tokens(kwargs.pop("input_ids")) * (1 + (mask == 0).sum())
        return forward(*args, **kwargs)

    hf.model.forward = leaky
    with pytest.raises(LmassayError, match="a right-padded row differs from the row alone by"):
        open_model(hf, tokenizer=TOKENIZER)


def test_nan_weights_are_refused_as_such():
    hf = tiny_hf("llama")
    with torch.no_grad():
        hf.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(LmassayError, match="non-finite-logits"):
        open_model(hf, tokenizer=TOKENIZER)


def test_a_block_mask_the_model_misreads_switches_packing_off_and_nothing_else():
    hf = tiny_hf("llama")
    forward = hf.model.forward

    def causal_only(*args, **kwargs):
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.dim() == 4:
            kwargs["attention_mask"] = None
        return forward(*args, **kwargs)

    hf.model.forward = causal_only
    model = open_model(hf, tokenizer=TOKENIZER)
    assert not model.packing
    assert model.numerics["packed"] > 1e-3


def test_the_tolerance_is_of_the_body_s_precision():
    assert tolerance(torch.float32, 50.0) == tolerance(torch.float64, 50.0) == 1e-4
    assert tolerance(torch.float16, 10.0) < tolerance(torch.bfloat16, 10.0) < 1
    assert tolerance(torch.bfloat16, 20.0) == 2 * tolerance(torch.bfloat16, 10.0)


def _logits(model, ids, shift, width, filler):
    """A row alone, `shift` tokens from the left in a row of `width`, the rest padded with `filler`."""
    row = torch.full((1, width), filler)
    mask = torch.zeros(1, width, dtype=torch.int64)
    row[0, shift : shift + len(ids)] = torch.tensor(ids)
    mask[0, shift : shift + len(ids)] = 1
    cols = torch.arange(shift, shift + len(ids))
    batch = Batch(row, mask, (mask.cumsum(1) - 1).clamp_min(0))
    return trace(model, batch, torch.zeros_like(cols), cols, logits=True)


@pytest.mark.parametrize("family", ["gpt2", "llama", "opt", "gemma3", "gpt_neox"])
@pytest.mark.parametrize("pads", [1, 3, 8])
def test_padding_on_either_side_changes_nothing(tiny_model, family, pads):
    """I-24: with positions given, a padded row equals the row alone at every depth."""
    model = tiny_model(family)
    ids = [9, 40, 77, 12, 300]
    alone = _logits(model, ids, 0, len(ids), 0)
    for shift in (pads, 0):
        padded = _logits(model, ids, shift, len(ids) + pads, 0)
        torch.testing.assert_close(padded.logits, alone.logits, rtol=0, atol=1e-5)
        torch.testing.assert_close(padded.states, alone.states, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "mpt", "opt"])
@pytest.mark.parametrize("shift", [0, 4])
def test_the_ids_under_padding_do_not_matter(tiny_model, family, shift):
    """I-25."""
    model = tiny_model(family)
    ids = [9, 40, 77, 12]
    one, other = (_logits(model, ids, shift, 8, filler) for filler in (0, 213))
    assert torch.equal(one.logits, other.logits)
    assert torch.equal(one.states, other.states)


def test_a_part_that_never_runs_is_refused(tiny_model):
    """I-9: a hook that silently does nothing measures nothing."""
    model = tiny_model("llama")
    stray = (torch.nn.Identity(), *model.anatomy.mlp[1:])
    with pytest.raises(LmassayError, match=r"block\.0\.mlp ran 0 times"):
        self_check(replace(model, anatomy=replace(model.anatomy, mlp=stray)))


def test_a_part_that_two_blocks_share_is_refused():
    hf = tiny_hf("llama")
    hf.model.layers[1].mlp = hf.model.layers[0].mlp
    with pytest.raises(LmassayError, match=r"block\.[01]\.mlp ran 2 times"):
        open_model(hf, tokenizer=TOKENIZER)
