"""Made activations with a planted direction, for probes: what differs between the classes, where, and nothing else."""

from __future__ import annotations

import numpy as np

from lmassay.examples import Segment, VisibleExample
from lmassay.methods.held_activations import HeldActivations
from lmassay.methods.method import Validation

WIDTH = 6


def example(key):
    return VisibleExample(int(key), (Segment("cot", f"example {key}"),))


def planted(n=120, *, n_questions=15, seed=0, width=WIDTH, where="all", block=1, strength=1.5, first=0, tokens=(3, 12)):
    """(examples, y, groups, states by key): at `block`, positives are moved along one direction.

    `where`: ``all`` tokens, the ``last`` one, or ``one`` token drawn for each example.
    """
    rng = np.random.default_rng([seed, first])
    direction = np.random.default_rng(99).normal(size=width)
    direction /= np.linalg.norm(direction)
    y = rng.permutation(np.arange(n) % 2).astype(np.float64)
    groups = first + rng.integers(0, n_questions, n).astype(np.int64)
    held = {}
    for i in range(n):
        length = int(rng.integers(*tokens))
        states = {b: rng.normal(size=(length, width)) for b in (0, 1, 2)}
        moved = {"all": slice(None), "last": slice(-1, None), "one": rng.integers(length)}[where]
        states[block][moved] += strength * y[i] * direction
        held[1000 * (first + 1) + 7 * i] = {b: s.astype(np.float32) for b, s in states.items()}
    return [example(k) for k in held], y, groups, held


def made(n=120, *, regression=False, **how):
    """A store with training, validation and test rows: (store, train, validation, test), questions apart."""
    parts = [planted(n, first=first, **how) for first in (0, 100, 200)]
    if regression:
        rng = np.random.default_rng(3)
        parts = [(x, 4 + 3 * y + 0.05 * rng.normal(size=len(y)), g, held) for x, y, g, held in parts]
    store = HeldActivations("made reader", {k: s for _, _, _, held in parts for k, s in held.items()})
    train, validation, test = ((x, y, g) for x, y, g, _ in parts)
    return store, train, Validation(*validation), test


def pooled(store, examples, block, pooling):
    """(n, width) float64, example by example."""
    by_hand = {"last": lambda s: s[-1], "mean": lambda s: s.mean(0), "max": lambda s: s.max(0)}
    return np.array([by_hand[pooling](store.held[x.key][block].astype(np.float64)) for x in examples])


def fitted(cls, store, train, validation, seed=0, kind="binary", **options):
    method = cls(kind, **options)
    method.activations = store
    method.fit(*train, validation, seed)
    return method
