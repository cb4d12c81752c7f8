"""Batched replies of a model in this process against a plain loop without a cache, one prompt at a time."""

from __future__ import annotations

import json

import pytest
import torch
from made_monitor import ASKED

from lmassay.cot.monitors.generation import Replier, Request
from lmassay.cot.monitors.structured import reply_schema, whole_replies

pytestmark = pytest.mark.tiny

FAMILIES = ["llama", "gpt2", "gpt_neox", "mistral"]


def prompts(model, n=7, start=40):
    """Prompts of different lengths that begin alike."""
    same = model.tokens.encode("Start with 7. Add 5. The result is 12. " * 3)[:start]
    ends = [model.tokens.encode("If A implies B, then " * (i % 4 + 1) + str(i)) for i in range(n)]
    return [(*same, *end[:25]) for end in ends]


@torch.inference_mode()
def plain(model, ids, n):
    """The likeliest token, n times, everything read again for each."""
    said = list(ids)
    for _ in range(n):
        token = int(model.hf(torch.tensor([said])).logits[0, -1].argmax())
        said.append(token)
        if token == 2:
            break
    return said[len(ids) :]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("start", [0, 40])
def test_batched_replies_are_those_of_a_plain_loop(tiny_model, family, start):
    model = tiny_model(family)
    asked = [Request(ids, 6) for ids in prompts(model, start=start)]
    found = Replier(model, max_rows=3)(asked)
    for request, reply in zip(asked, found, strict=True):
        tokens = plain(model, request.ids, 6)
        assert reply.n_tokens == len(tokens)
        kept = tokens[:-1] if tokens[-1] == 2 else tokens
        assert reply.text == model.tokens.hf.decode(kept, skip_special_tokens=True)
        assert reply.ended == (tokens[-1] == 2)


@pytest.mark.parametrize("max_rows", [1, 2, 5])
def test_the_batch_and_its_order_change_no_reply(tiny_model, max_rows):
    model = tiny_model("llama")
    asked = [Request(ids, 5, temperature=1.0, seed=i) for i, ids in enumerate(prompts(model))]
    one, other = Replier(model), Replier(model, max_rows=max_rows)
    assert other(asked[::-1])[::-1] == one(asked)


def test_a_seed_gives_its_sample_and_samples_follow_the_model(tiny_model):
    model = tiny_model("llama")
    ids = prompts(model)[0]
    first = [r.text for r in Replier(model)([Request(ids, 1, temperature=1.0, seed=s) for s in range(300)])]
    assert len(set(first)) > 3
    assert first == [r.text for r in Replier(model)([Request(ids, 1, temperature=1.0, seed=s) for s in range(300)])]
    with torch.inference_mode():
        p = model.hf(torch.tensor([ids])).logits[0, -1].softmax(-1)
    top = int(p.argmax())
    share = sum(t == model.tokens.hf.decode([top]) for t in first) / 300
    assert abs(share - float(p[top])) < 4 * (float(p[top]) * (1 - float(p[top])) / 300) ** 0.5 + 1e-3


def test_only_allowed_replies_are_given_and_by_the_likeliest_tokens(tiny_model):
    model = tiny_model("llama")
    allowed = ('{"answer": "yes"}', '{"answer": "no"}')
    found = Replier(model)([Request(ids, 40, allowed=allowed) for ids in prompts(model)])
    assert {r.text for r in found} <= set(allowed)
    assert all(r.ended for r in found)
    mixed = Replier(model)([Request(ids, 40, allowed=allowed if i % 2 else ()) for i, ids in enumerate(prompts(model))])
    assert [r.text for r in mixed[1::2]] == [r.text for r in found[1::2]]


def test_a_reply_ends_before_a_stop_text(tiny_model):
    model = tiny_model("llama")
    ids = prompts(model)[0]
    (whole,) = Replier(model)([Request(ids, 8)])
    stop = whole.text[2:4]
    (cut,) = Replier(model)([Request(ids, 8, stop=(stop,))])
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.ended


def test_a_reply_that_ends_early_is_told_before_the_others_are_done(tiny_model):
    model = tiny_model("llama")
    told = []
    ids = prompts(model)[0]
    found = Replier(model)([Request(ids, 9), Request(ids, 2)], lambda at, reply: told.append((at, reply)))
    assert [at for at, _ in told] == [1, 0]
    assert dict(told) == dict(enumerate(found))


def test_a_schema_of_one_field_has_few_replies_and_others_are_left_free():
    template, asking = ASKED["label"]
    assert whole_replies(reply_schema(template, asking)) == ('{"answer": "yes"}', '{"answer": "no"}')
    template, asking = ASKED["probability"]
    replies = whole_replies(reply_schema(template, asking))
    assert len(replies) == 101
    assert [json.loads(r)["probability"] for r in replies[:3]] == [0, 0.01, 0.02]
    template, asking = ASKED["distribution"]
    assert whole_replies(reply_schema(template, asking, letters="AB")) == ()
    template, asking = ASKED["sentences"]
    assert whole_replies(reply_schema(template, asking)) == ()
