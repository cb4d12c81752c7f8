"""The lens reads a state with that state's own statistics, once normed, capped and scaled as the model does."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from lmassay.models import lens
from lmassay.models.engines import score
from lmassay.models.lens import target_log_probs
from lmassay.models.open import open_model
from lmassay.models.readout import head_input, lens_logits, readout_dtype
from lmassay.models.trace import Batch, trace
from lmassay.models.tree import Continuations
from tiny_models import FAMILIES, VOCABULARY, tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
TOKENS = 6


def _seen(model):
    ids = torch.randint(3, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(2))
    batch = Batch(ids, torch.ones_like(ids), torch.arange(TOKENS)[None])
    cols = torch.arange(TOKENS)
    return ids, trace(model, batch, torch.zeros_like(cols), cols, logits=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_lens_of_the_last_block_is_the_model_s_output(tiny_model, family):
    model = tiny_model(family)
    ids, seen = _seen(model)
    own = model.hf(input_ids=ids).logits[0]
    torch.testing.assert_close(lens_logits(model, seen.states[-1]), own, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_those_of_a_whole_log_softmax_in_any_blocks_of_rows_and_words(
    tiny_model, monkeypatch, family
):
    model = tiny_model(family)
    _, seen = _seen(model)
    rows, targets = torch.arange(TOKENS).flip(0), torch.arange(3, 3 + TOKENS)
    whole = torch.log_softmax(lens_logits(model, seen.states[-1]).double(), -1)[rows, targets]
    for n_rows, n_words in ((2, 7), (TOKENS, VOCABULARY - 1), (1, VOCABULARY)):
        monkeypatch.setattr(lens, "ROWS", n_rows)
        monkeypatch.setattr(lens, "VOCABULARY_BLOCK", n_words)
        found = target_log_probs(model, seen.states, rows, targets)[-1]
        torch.testing.assert_close(found.double(), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "opt", "cohere"])
def test_norming_the_last_hidden_state_a_second_time_is_another_distribution(tiny_model, family):
    """I-3: the last entry of Hugging Face's hidden_states is normed already; the recorded state is not."""
    model = tiny_model(family)
    ids, seen = _seen(model)
    own = torch.log_softmax(model.hf(input_ids=ids).logits[0], -1)
    normed = model.hf(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
    torch.testing.assert_close(head_input(model, seen.states[-1]), normed, rtol=0, atol=1e-5)
    twice = torch.log_softmax(lens_logits(model, normed), -1)
    assert float((twice - own).abs().max()) > 1e-2


def test_a_state_is_normed_by_its_own_statistics_not_by_those_of_the_last_block(tiny_model):
    """I-1, on GPT-2's LayerNorm written out."""
    model = tiny_model("gpt2", dtype="float64")
    _, seen = _seen(model)
    norm, head = model.hf.transformer.ln_f, model.hf.lm_head.weight

    def by_hand(state, scale_of):
        centred = state - state.mean(-1, keepdim=True)
        variance = scale_of.var(-1, unbiased=False, keepdim=True)
        return (centred / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias) @ head.T

    for depth in range(model.n_blocks + 1):
        state = seen.states[depth]
        torch.testing.assert_close(lens_logits(model, state), by_hand(state, state), rtol=0, atol=1e-10)
    early, last = seen.states[1], seen.states[-1]
    assert float((lens_logits(model, early) - by_hand(early, last)).abs().max()) > 1e-2
    distribution = torch.softmax(lens_logits(model, early), -1)
    entropy = -(distribution * distribution.log()).sum(-1)
    assert (entropy < math.log(VOCABULARY) - 0.01).all()


def test_a_soft_cap_bounds_the_lens_at_every_depth_and_keeps_the_order(tiny_model):
    """I-6, I-7: logits far above twice the cap come out below it, in scoring as in the model's own output."""
    hf = tiny_hf("gemma2")
    cap = hf.config.final_logit_softcapping
    with torch.no_grad():
        hf.lm_head.weight.mul_(4.0)
    model = open_model(hf, tokenizer=tiny_tokenizer(), dtype="float64")
    ids, seen = _seen(model)
    for state in seen.states:
        raw = head_input(model, state) @ hf.lm_head.weight.T
        capped = lens_logits(model, state)
        assert float(raw.abs().max()) > 2 * cap
        assert float(capped.abs().max()) <= cap
        torch.testing.assert_close(capped, cap * torch.tanh(raw / cap), rtol=0, atol=1e-10)
        picked = capped.gather(1, raw.argmax(-1, keepdim=True))[:, 0]
        assert torch.equal(picked, capped.amax(-1))
    request = Continuations(tuple(ids[0].tolist()), tuple((t,) for t in range(VOCABULARY)))
    own = torch.log_softmax(hf(input_ids=ids).logits[0, -1], -1)
    scored = torch.tensor([target[0, -1] for target in score(model, [request])[0]])
    torch.testing.assert_close(scored, own, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("family", "scale"), [("cohere", 0.25), ("granite", 1 / 3)])
def test_a_logit_scale_acts_at_every_depth(tiny_model, family, scale):
    model = tiny_model(family)
    _, seen = _seen(model)
    for state in seen.states:
        raw = head_input(model, state) @ model.anatomy.head.weight.T
        torch.testing.assert_close(lens_logits(model, state), raw * scale, rtol=0, atol=1e-5)


def test_a_bias_of_the_head_is_added(tiny_model):
    model = tiny_model("phi")
    _, seen = _seen(model)
    head = model.anatomy.head
    assert float(head.bias.detach().abs().max()) > 0
    expected = head_input(model, seen.states[1]) @ head.weight.T + head.bias
    torch.testing.assert_close(lens_logits(model, seen.states[1]), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma2", "opt_projected"])
def test_a_bfloat16_body_is_read_in_float32(tiny_model, family):
    """I-18: states are cast before norm, head, soft-cap and softmax, so nothing of the readout is rounded to 8 bits."""
    model = tiny_model(family, dtype="bfloat16")
    _, seen = _seen(model)
    assert model.dtype == torch.bfloat16
    assert readout_dtype(model) == torch.float32
    assert seen.states.dtype == torch.bfloat16
    rows = seen.states[-1].double()
    for part in (model.anatomy.norm, model.anatomy.projection):
        if part is not None:
            rows = copy.deepcopy(part).double()(rows)
    logits = model.anatomy.finish(rows @ model.anatomy.head.weight.double().T)
    found = lens_logits(model, seen.states[-1])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), logits, rtol=0, atol=1e-4)
    assert float((seen.logits.double() - logits).abs().max()) > 1e-4


def test_a_half_precision_norm_changed_in_place_is_read_as_it_is_now():
    hf = tiny_hf("llama")
    open_model(hf, tokenizer=tiny_tokenizer(), dtype="bfloat16")
    with torch.no_grad():
        hf.model.norm.weight.mul_(1.5)
    model = open_model(hf, tokenizer=tiny_tokenizer())
    assert model.numerics["lens_of_last_block"] < model.numerics["tolerance"]
