"""Attention that sentences receive, against the weights transformers hands out whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmassay.errors import LmassayError
from lmassay.models.attended import SentenceAttention, received
from lmassay.models.generate import InProcess
from lmassay.models.sampling import Prompt

pytestmark = pytest.mark.tiny

OWN, NEXT = ("The first one.", "A second?", "Then the third!"), "And the next."


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "bloom", "mistral", "gpt_neox", "opt", "phi"])
def test_mass_is_summed_over_keys_and_averaged_over_queries_heads_and_blocks(tiny_model, family):
    model = tiny_model(family)
    before = model.hf.config._attn_implementation
    ids = [5, 9, 2, 14, 7, 3, 11, 8]
    found = received(model, ids, [(5, 8), (7, 8)], [(0, 2), (2, 5)])
    assert model.hf.config._attn_implementation == before
    model.hf.set_attn_implementation("eager")
    with torch.inference_mode():
        weights = model.hf(torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
    model.hf.set_attn_implementation(before)
    mean = np.mean([w[0].double().mean(0).numpy() for w in weights], axis=0)
    for q, (first, last) in enumerate([(5, 8), (7, 8)]):
        for k, (start, stop) in enumerate([(0, 2), (2, 5)]):
            by_hand = np.mean([sum(mean[i, j] for j in range(start, stop)) for i in range(first, last)])
            assert found[q, k] == pytest.approx(by_hand, abs=1e-6)


def test_a_family_that_keeps_its_weights_to_itself_is_refused_by_name(tiny_model):
    with pytest.raises(LmassayError, match="0 of 3 attention modules") as refused:
        received(tiny_model("falcon"), [5, 9, 2], [(2, 3)], [(0, 2)])
    assert refused.value.code == "model-not-supported"


def test_sentences_are_found_among_the_tokens(tiny_model):
    engine = InProcess(tiny_model("llama"))
    from_last, from_next = SentenceAttention(engine)("Which?", OWN, NEXT)
    assert from_last.shape == from_next.shape == (3,)
    cot = " ".join([*OWN, NEXT])
    prompt = Prompt.of(engine.thinking.asking("Which?"), engine.thinking.begun(cot))
    ids = engine.renderer.ids(prompt)
    # Token by token: which sentence does the text up to and with this token end in?
    texts = [engine.renderer.tokens.hf.decode(ids[: i + 1]) for i in range(len(ids))]
    start = len(texts[-1]) - len(cot)
    ends = np.cumsum([len(s) + 1 for s in (*OWN, NEXT)]) - 1
    of = [int(np.searchsorted(ends, len(t) - start)) if len(t) > start else -1 for t in texts]
    spans = [(of.index(s), len(of) - of[::-1].index(s)) for s in range(4)]
    both = received(engine.model, ids, [spans[2], spans[3]], spans[:3])
    np.testing.assert_allclose(np.stack([from_last, from_next]), both, atol=1e-9)
