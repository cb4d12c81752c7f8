"""Activations in memory: the plainest reading of what a probe may ask of a store."""

from __future__ import annotations

import numpy as np
import pytest

from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.methods.activations import Activations, asked_of, given, keys_of
from lmassay.methods.held_activations import HeldActivations

RNG = np.random.default_rng(0)
STATES = {7: RNG.normal(size=(3, 4)).astype(np.float32), 9: RNG.normal(size=(1, 4)).astype(np.float32)}


@pytest.fixture
def store():
    return HeldActivations("reader", {k: {2: s, 5: -s} for k, s in STATES.items()})


def test_it_is_an_activations(store):
    assert isinstance(store, Activations)
    assert (store.blocks, store.token_blocks, store.width) == ((2, 5), (2, 5), 4)
    assert store.spans(7) == [("cot", 0, 3)]
    assert store.token_ids(7).tolist() == [-1, -1, -1]


def test_pooling_is_of_the_example_s_own_tokens(store):
    keys = np.array([9, 7, 8])
    for pooling, by_hand in (("last", lambda s: s[-1]), ("mean", lambda s: s.mean(0)), ("max", lambda s: s.max(0))):
        found = store.pooled(keys, 5, pooling)
        assert found.dtype == np.float32
        for row, key in zip(found[:2], (9, 7), strict=True):
            np.testing.assert_allclose(row, by_hand(-STATES[key]), rtol=1e-6)
        assert np.isnan(found[2]).all()


def test_an_example_that_is_not_there_has_no_tokens(store):
    assert store.lengths(np.array([7, 8, 9])).tolist() == [3, 0, 1]
    assert store.states(8, 2).shape == (0, 4)
    assert store.spans(8) == []
    assert store.token_ids(8).shape == (0,)


def test_the_fingerprint_follows_every_number_and_no_order(store):
    same = HeldActivations("reader", {k: store.held[k] for k in (9, 7)})
    assert same.fingerprint == store.fingerprint
    for changed in (
        HeldActivations("another", store.held),
        HeldActivations("reader", {**store.held, 9: {2: STATES[9] + 1e-3, 5: -STATES[9]}}),
        HeldActivations("reader", {7: store.held[7]}),
        HeldActivations("reader", store.held, {9: np.array([4], np.int32)}),
        HeldActivations("reader", store.held, {}, {9: [("answer", 0, 1)]}),
    ):
        assert changed.fingerprint != store.fingerprint


@pytest.mark.parametrize(
    "held",
    [
        {1: {0: np.zeros((2, 3))}, 2: {0: np.zeros((2, 4))}},
        {1: {0: np.zeros((2, 3))}, 2: {1: np.zeros((2, 3))}},
        {1: {0: np.zeros((2, 3)), 1: np.zeros((3, 3))}},
        {1: {}},
    ],
)
def test_arrays_that_do_not_go_together_are_refused(held):
    with pytest.raises(LmassayError, match="bad-request"):
        HeldActivations("reader", held)


def test_keys_are_taken_from_any_sequence_of_examples():
    assert keys_of([VisibleExample(5, ()), VisibleExample(2, ())]).tolist() == [5, 2]
    assert keys_of([]).shape == (0,)


def test_what_is_not_there_is_named(store):
    assert asked_of(store.blocks, None, "block", store) == (2, 5)
    assert asked_of(store.blocks, 5, "block", store) == (5,)
    with pytest.raises(LmassayError, match=r"do not have block 3; they have 2, 5"):
        asked_of(store.blocks, (2, 3), "block", store)
    with pytest.raises(LmassayError, match=r"do not have any block; they have none"):
        asked_of((), None, "block", store)


def test_a_probe_without_activations_names_both_commands():
    class Probe:
        id = "probe"

    with pytest.raises(LmassayError, match=r"cot activations TASK.*--activations DIR"):
        given(Probe())
