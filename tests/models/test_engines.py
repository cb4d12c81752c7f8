"""Three engines, one oracle: numpy GPT-2 in float64, and the plain engine for every family."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_gpt2 import log_probs_at_depths

from lmassay.models.engines import score
from lmassay.models.tree import Continuations
from tiny_models import FAMILIES, VOCABULARY

pytestmark = pytest.mark.tiny
DEPTH_TOLERANCE = 1e-4


def _requests(seed=0, n=5, longest=20):
    rng = np.random.default_rng(seed)

    def some(low, high, size):
        return tuple(int(t) for t in rng.integers(low, high, size))

    return [
        Continuations(
            some(3, VOCABULARY, rng.integers(1, longest)), tuple(some(3, 9, rng.integers(1, 5)) for _ in range(5))
        )
        for _ in range(n)
    ]


def _gap(a, b):
    return max(np.abs(x - y).max() for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True))


@pytest.mark.parametrize("engine", ["packed", "cached", "plain"])
@pytest.mark.parametrize(("dtype", "allowed"), [("float64", 1e-9), ("float32", 1e-4)])
def test_engine_equals_numpy_gpt2_at_every_depth(tiny_model, engine, dtype, allowed):
    model = tiny_model("gpt2", dtype=dtype)
    config = model.hf.config
    requests = _requests()
    for request, scored in zip(requests, score(model, requests, engine=engine), strict=True):
        for target, values in zip(request.targets, scored, strict=True):
            ids = [*request.context, *target]
            oracle = log_probs_at_depths(model.hf.state_dict(), ids[:-1], config.n_head, config.n_layer)
            start = len(request.context) - 1
            expected = [[depth[start + i, t] for depth in oracle] for i, t in enumerate(target)]
            np.testing.assert_allclose(values, expected, rtol=0, atol=allowed)


@pytest.mark.parametrize("family", FAMILIES)
def test_fast_engines_equal_the_plain_one(tiny_model, family):
    model = tiny_model(family)
    requests = _requests(seed=1)
    plain = score(model, requests, engine="plain")
    assert _gap(plain, score(model, requests, engine="packed", batch_tokens=64)) < DEPTH_TOLERANCE
    assert _gap(plain, score(model, requests, engine="cached", batch_tokens=64)) < DEPTH_TOLERANCE


@pytest.mark.parametrize("family", ["bloom", "mpt", "falcon_alibi"])
def test_a_family_whose_positions_come_from_the_mask_is_not_packed(tiny_model, family):
    assert not tiny_model(family).packing


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gemma3", "gpt_neo", "cohere2"])
def test_a_sequence_longer_than_a_sliding_window_stays_right(tiny_model, family):
    model = tiny_model(family)
    assert model.window == 16
    requests = _requests(seed=2, n=3, longest=40)
    assert max(len(r.context) for r in requests) > 16
    plain = score(model, requests, engine="plain")
    assert _gap(plain, score(model, requests, engine="packed")) < DEPTH_TOLERANCE


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch_tokens=st.integers(8, 400), seed=st.integers(0, 50), order=st.randoms())
def test_batch_size_order_and_other_requests_change_nothing(tiny_model, batch_tokens, seed, order):
    model = tiny_model("llama")
    requests = _requests(seed, n=4)
    alone = [score(model, [request])[0] for request in requests]
    shuffled = list(range(len(requests)))
    order.shuffle(shuffled)
    together = score(model, [requests[i] for i in shuffled], batch_tokens=batch_tokens)
    assert _gap([alone[i] for i in shuffled], together) < 1e-5


def test_scores_of_a_split_tree_equal_those_of_a_whole_one(tiny_model):
    model = tiny_model("gpt2")
    rng = np.random.default_rng(0)
    targets = tuple({tuple(int(t) for t in rng.integers(3, VOCABULARY, 3)) for _ in range(60)})
    request = Continuations((5, 6), targets)
    assert _gap(score(model, [request], batch_tokens=2000), score(model, [request], batch_tokens=20)) < 1e-5


@pytest.mark.parametrize("engine", ["packed", "cached", "plain"])
def test_log_probabilities_of_all_next_tokens_sum_to_one(tiny_model, engine):
    model = tiny_model("gemma2")
    request = Continuations((7, 8, 9), tuple((t,) for t in range(VOCABULARY)))
    (scored,) = score(model, [request], engine=engine)
    total = np.exp(np.concatenate(scored)).sum(0)
    np.testing.assert_allclose(total, 1.0, atol=1e-4)


def test_the_likeliest_token_scores_highest_and_all_below_zero(tiny_model):
    """I-34: a loss in place of a log-likelihood would turn the order around."""
    model = tiny_model("gpt2")
    own = model.hf(torch.tensor([[4]])).logits[0, -1]
    (scored,) = score(model, [Continuations((4,), tuple((t,) for t in range(VOCABULARY)))])
    final = np.concatenate(scored)[:, -1]
    assert final.argmax() == int(own.argmax())
    assert (final < 0).all()
