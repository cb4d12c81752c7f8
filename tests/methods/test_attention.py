"""The attention probe: its formula in plain float64, padding, order, seeds, stopping, and memory."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_states import example, fitted, made
from sklearn.metrics import roc_auc_score

from lmassay.errors import LmassayError
from lmassay.methods.attention import Attention
from lmassay.methods.attention_training import PASSES, Rows, batches, held_out, pooled_scores
from lmassay.methods.held_activations import HeldActivations
from lmassay.methods.linear import Linear
from lmassay.methods.method import Validation
from lmassay.methods.probe import load_probe

FEW = {"block": 1, "epochs": 6, "seeds": 2}


@pytest.fixture(scope="module")
def data():
    return made()


@pytest.fixture(scope="module")
def found(data):
    store, train, validation, _ = data
    return fitted(Attention, store, train, validation, **FEW, heads=2)


def by_formula(states, mean, scale, queries, values, intercept):
    """One seed's score, token by token and head by head."""
    total = float(intercept)
    rows = [[(v - m) / s for v, m, s in zip(row, mean, scale, strict=True)] for row in states.astype(np.float64)]
    for query, value in zip(queries, values, strict=True):
        logits = [sum(a * b for a, b in zip(row, query, strict=True)) for row in rows]
        weights = [np.exp(one - max(logits)) for one in logits]
        gathered = [sum(w * row[j] for w, row in zip(weights, rows, strict=True)) for j in range(len(value))]
        total += sum(g * v for g, v in zip(gathered, value, strict=True)) / sum(weights)
    return total


def test_scores_are_those_of_the_formula(data, found):
    store, _, _, (x_test, _, _) = data
    learnt = found.learnt()[1]
    for x, scores in zip(x_test[:12], found.by_seed(x_test[:12]), strict=True):
        for seed, score in enumerate(scores):
            parts = (learnt[name][seed] for name in ("queries", "values", "intercepts"))
            by_hand = by_formula(store.held[x.key][1], learnt["mean"], learnt["scale"], *parts)
            assert score == pytest.approx(by_hand, abs=1e-10)
    np.testing.assert_allclose(found.score(x_test), found.by_seed(x_test).mean(1), atol=1e-12)


def test_training_computes_the_same_formula_in_padded_batches(data, found):
    store, _, _, (x_test, _, _) = data
    learnt = found.learnt()[1]
    states = [(store.held[x.key][1] - learnt["mean"]) / learnt["scale"] for x in x_test]
    longest = max(map(len, states))
    padded = torch.tensor(np.stack([np.pad(s, ((0, longest - len(s)), (0, 0))) for s in states]))
    mask = torch.tensor([[t < len(s) for t in range(longest)] for s in states])
    parameters = [torch.tensor(learnt[name]) for name in ("queries", "values", "intercepts")]
    np.testing.assert_allclose(pooled_scores(padded, mask, *parameters).numpy(), found.by_seed(x_test), atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 1e30, float("nan"), float("inf"), -1e9]), st.integers(0, 5))
def test_what_stands_at_padding_has_no_effect(seed, garbage, more):
    """I-66: padding that contributes. Values there, and how many there are, change neither score nor gradient."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, 5)
    x = torch.tensor(rng.normal(size=(5, int(lengths.max()), 4)))
    mask = torch.arange(x.shape[1])[None] < torch.tensor(lengths)[:, None]
    parameters = [torch.tensor(rng.normal(size=shape)) for shape in ((3, 2, 4), (3, 2, 4), (3,))]

    def run(x, mask):
        ours = [p.clone().requires_grad_() for p in parameters]
        scores = pooled_scores(x, mask, *ours)
        (scores**2).sum().backward()
        return [scores.detach(), *(p.grad for p in ours)]

    dirty = torch.cat([torch.where(mask[..., None], x, garbage), torch.full((5, more, 4), garbage, dtype=x.dtype)], 1)
    wider = torch.cat([mask, torch.zeros(5, more, dtype=torch.bool)], 1)
    for before, after in zip(run(x, mask), run(dirty, wider), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=1e-12)


def test_a_row_that_is_all_padding_is_no_average_of_padding():
    """I-67: uniform attention over padding."""
    parameters = torch.ones(1, 1, 3), torch.ones(1, 1, 3), torch.zeros(1)
    score = pooled_scores(torch.ones(2, 4, 3), torch.tensor([[True] * 4, [False] * 4]), *parameters)
    assert score[0, 0] == 3.0
    assert torch.isnan(score[1, 0])


def test_an_example_without_tokens_abstains_and_others_do_not_notice(data, found):
    _, _, _, (x_test, _, _) = data
    before = found.score(x_test)
    score = found.score([x_test[0], example(5), x_test[1]])
    assert np.isnan(score[1])
    assert score[[0, 2]].tolist() == before[:2].tolist()
    assert found.score([]).shape == (0,)


def test_it_finds_a_token_that_pooling_dilutes():
    store, train, validation, (x_test, y_test, _) = made(200, where="one", strength=6.0, tokens=(20, 30), width=8)
    attention = fitted(Attention, store, train, validation, block=1, epochs=25, patience=10, rate=0.03)
    mean = fitted(Linear, store, train, validation, blocks=(1,), poolings=("mean",))
    assert roc_auc_score(y_test, attention.score(x_test)) > roc_auc_score(y_test, mean.score(x_test)) + 0.05
    # And it looks at the token that was moved: in most positives it has the largest contribution.
    direction = np.random.default_rng(99).normal(size=8)
    hits = [
        attention.contributions(x).largest(1)[0] == int(np.argmax(store.held[x.key][1] @ direction))
        for x, label in zip(x_test, y_test, strict=True)
        if label == 1
    ]
    assert np.mean(hits) > 0.6


def test_the_same_seed_gives_the_same_probe_and_another_seed_another(data, found):
    store, train, validation, (x_test, _, _) = data
    again = fitted(Attention, store, train, validation, **FEW, heads=2)
    assert again.score(x_test).tolist() == found.score(x_test).tolist()
    other = fitted(Attention, store, train, validation, seed=1, **FEW, heads=2)
    assert np.abs(other.score(x_test) - found.score(x_test)).max() > 1e-4


@settings(deadline=None, max_examples=3)
@given(st.permutations(range(40)))
def test_the_order_of_rows_changes_nothing(order):
    store, (x, y, groups), validation, (x_test, _, _) = made(40)
    at = np.array(order)
    options = {"block": 1, "epochs": 2, "seeds": 2, "batch": 7}
    before = fitted(Attention, store, (x, y, groups), validation, **options).score(x_test)
    after = fitted(Attention, store, ([x[i] for i in at], y[at], groups[at]), validation, **options).score(x_test)
    np.testing.assert_allclose(after, before, atol=1e-9)


def test_how_many_are_padded_together_changes_rounding_only(data, monkeypatch):
    store, train, validation, (x_test, _, _) = data
    options = {"block": 1, "epochs": 2, "seeds": 2}
    before = fitted(Attention, store, train, validation, **options).score(x_test)
    monkeypatch.setattr("lmassay.methods.attention_training.TOKENS", 1)
    after = fitted(Attention, store, train, validation, **options).score(x_test)
    np.testing.assert_allclose(after, before, atol=1e-4)


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 200))
def test_batches_hold_every_example_once_within_the_limit(lengths, limit):
    lengths = np.array(lengths)
    found = list(batches(lengths, limit))
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    assert all(len(at) == 1 or len(at) * lengths[at].max() <= limit for at in found)


def test_a_seed_alone_is_the_seed_among_others(data):
    """Seeds share passes and nothing else: each has its own draw, its own held-out rows, its own best pass."""
    store, train, validation, (x_test, _, _) = data
    three = fitted(Attention, store, train, validation, block=1, epochs=4, seeds=3)
    one = fitted(Attention, store, train, validation, block=1, epochs=4, seeds=1)
    np.testing.assert_allclose(three.by_seed(x_test)[:, 0], one.by_seed(x_test)[:, 0], atol=1e-5)
    assert np.abs(np.diff(three.by_seed(x_test), axis=1)).max() > 1e-3


def test_every_seed_is_reported_and_none_picked(data, found):
    _, (x, _, _), _, _ = data
    seeds = found.choices["seeds"]
    assert [r["seed"] for r in seeds] == [0, 1]
    for report in seeds:
        assert 1 <= report["passes"] <= FEW["epochs"]
        assert 0 < report["held_out"] < len(x)
        assert 0.5 < report["held_out_auroc"] <= 1
    assert found.choices["block"] == 1
    assert json.loads(json.dumps(found.choices)) == found.choices


def test_held_out_questions_are_whole_and_apart(data):
    _, (x, y, groups), _, _ = data
    rows = Rows(np.array([e.key for e in x]), y, groups)
    held = held_out(rows, "binary", 5, 0)
    assert (held.sum(0) == 1).all()
    for mine in held:
        assert not set(groups[mine]) & set(groups[~mine])


def test_training_stops_when_held_out_rows_stop_getting_better():
    """Labels that mean nothing: the best pass comes early."""
    store, (x, _, groups), validation, _ = made(80)
    noise = np.random.default_rng(5).permutation(np.arange(80) % 2).astype(np.float64)
    found = fitted(Attention, store, (x, noise, groups), validation, block=1, epochs=60, patience=3, rate=0.02)
    assert max(r["passes"] for r in found.choices["seeds"]) < 40


@pytest.mark.parametrize("parted", [False, True])
def test_where_no_question_can_be_kept_back_it_trains_a_fixed_number_of_passes(parted, data):
    """One question; or two, each of one class."""
    store, (x, y, groups), validation, (x_test, _, _) = data
    made_groups = y.astype(np.int64) if parted else groups * 0
    found = fitted(Attention, store, (x, y, made_groups), validation, block=1, seeds=2)
    assert found.choices["seeds"] == [{"seed": s, "passes": PASSES, "held_out": 0} for s in (0, 1)]
    assert np.isfinite(found.score(x_test)).all()


def test_a_held_out_part_of_one_class_is_named(data):
    store, (x, y, _), validation, _ = data
    # Question 0 has positives only, the other one both classes.
    two = np.where((y == 1) & (np.arange(len(y)) % 3 == 0), 0, 1)
    found = fitted(Attention, store, (x, y, two), validation, block=1, seeds=2, epochs=2)
    assert "undefined: one class" in {r.get("held_out_auroc") for r in found.choices["seeds"]}


def test_numbers_are_learnt_in_their_own_unit():
    store, train, validation, (x_test, y_test, _) = made(regression=True, strength=2.5)
    found = fitted(Attention, store, train, validation, kind="regression", block=1, epochs=20, rate=0.02)
    score = found.score(x_test)
    assert np.corrcoef(score, y_test)[0, 1] > 0.8
    assert abs(score.mean() - y_test.mean()) < 0.4
    assert "held_out_auroc" not in found.choices["seeds"][0]
    same = fitted(
        Attention, store, (train[0], np.full(len(train[1]), 2.5), train[2]), validation, kind="regression", epochs=1
    )
    np.testing.assert_allclose(same.score(x_test), 2.5, atol=0.2)


def test_validation_rows_and_test_states_have_no_part_in_it(data, found):
    store, train, validation, (x_test, _, _) = data
    others = {x.key for x in [*validation.X, *x_test]}
    far = {k: {b: s + 1e6 * (k in others) for b, s in of.items()} for k, of in store.held.items()}
    turned = Validation(validation.X, 1 - validation.y, validation.groups)
    again = fitted(Attention, HeldActivations("far", far), train, turned, **FEW, heads=2)
    for name, array in found.learnt()[1].items():
        assert (array == again.learnt()[1][name]).all()


def test_states_that_are_no_numbers_are_refused_in_training_and_abstained_from_in_scoring(data, found):
    store, train, validation, (x_test, _, _) = data
    bad = {k: {b: s.copy() for b, s in of.items()} for k, of in store.held.items()}
    bad[x_test[3].key][1][0, 2] = np.nan
    again = fitted(Attention, HeldActivations("bad", bad), train, validation, **FEW)
    assert np.flatnonzero(np.isnan(again.score(x_test))).tolist() == [3]
    bad[train[0][4].key][1][0, 2] = np.inf
    with pytest.raises(LmassayError, match=rf"example {train[0][4].key} at block 1 hold NaN"):
        fitted(Attention, HeldActivations("bad", bad), train, validation, **FEW)


def test_contributions_are_shares_of_the_score(data, found):
    _, _, _, (x_test, _, _) = data
    for x, score in zip(x_test[:8], found.score(x_test[:8]), strict=True):
        shares = found.contributions(x)
        assert shares.score == score
        assert shares.values.sum() + shares.rest == pytest.approx(score, abs=1e-9)


def test_it_is_kept_without_pickle_and_with(data, found, tmp_path):
    store, _, _, (x_test, _, _) = data
    found.save(tmp_path)
    for again in (Attention.load(tmp_path, store), load_probe(tmp_path, store)):
        assert again.score(x_test).tolist() == found.score(x_test).tolist()
        assert (again.heads, again.choices) == (2, found.choices)
    restored = pickle.loads(pickle.dumps(found))
    restored.activations = store
    assert restored.score(x_test).tolist() == found.score(x_test).tolist()


def test_what_is_missing_is_named(data):
    store, train, validation, (x_test, _, _) = data

    class Pooled(HeldActivations):
        token_blocks = ()

    with pytest.raises(LmassayError, match=r"reads every token's state.*hold none.*--token-blocks"):
        fitted(Attention, Pooled("pooled", store.held), train, validation)
    with pytest.raises(LmassayError, match=r"do not have every token's state of block 9; they have 0, 1, 2"):
        fitted(Attention, store, train, validation, block=9)
    with pytest.raises(LmassayError, match=r"heads = 0"):
        Attention(heads=0)
    with pytest.raises(LmassayError, match="has not been fitted"):
        Attention().score(x_test)


MEMORY = """
import sys, tracemalloc
import numpy as np
from lmassay.examples import VisibleExample
from lmassay.methods.attention import Attention
from lmassay.methods.method import Validation

class Drawn:
    "States made when asked for: what a memory-mapped store is to a probe."
    model, width, blocks, poolings, token_blocks, fingerprint = "drawn", 32, (0,), ("mean",), (0,), "0"
    def lengths(self, keys): return np.full(len(keys), 200)
    def states(self, key, block): return np.random.default_rng(key).normal(size=(200, 32)).astype(np.float32)

def peak(n):
    x = [VisibleExample(k, ()) for k in range(n)]
    y, groups = np.arange(n) % 2.0, np.arange(n) // 10
    probe = Attention(epochs=1, seeds=2)
    probe.activations = Drawn()
    tracemalloc.start()
    probe.fit(x, y, groups, Validation([], np.zeros(0), np.zeros(0, np.int64)), 0)
    probe.score(x)
    return tracemalloc.get_traced_memory()[1]

peak(300)
tracemalloc.stop()
import resource
few = peak(300); tracemalloc.stop()
rss_few = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
many = peak(1500)
rss_many = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(few, many, rss_few, rss_many)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_examples():
    """Five times the examples are 31 MB more of states; numpy's peak and the process' grow by a few MB at most."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    few, many, rss_few, rss_many = map(int, done.stdout.split())
    assert many < 1.1 * few + 1e6
    assert (rss_many - rss_few) * 1024 < 10e6
