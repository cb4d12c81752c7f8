"""Option scores made by hand or by a generator, for tests that need no model."""

from __future__ import annotations

import numpy as np

from lmassay.xray.scored import ScoredBattery, ScoredTask


def depths(n):
    """Paper depths, `n` of them."""
    return ("embed", *(f"block.{i}" for i in range(n - 2)), "final")


def task(
    score,
    *,
    answer=0,
    name="t",
    n_tokens=None,
    variant="real",
    template=None,
    set_id=None,
    family="binder_tracking",
    options=None,
    flags=(),
    n_prompt_tokens=None,
):
    """A task with these (n_options, n_depths) scores and a neutral prompt of zeros."""
    score = np.asarray(score, np.float64)
    k = len(score)
    return ScoredTask(
        task_id=name,
        family=family,
        template=template or name,
        set_id=set_id,
        variant=variant,
        options=tuple(options or (f"option {i}" for i in range(k))),
        answer=answer,
        logprob=score,
        neutral=np.zeros_like(score),
        n_tokens=np.asarray(n_tokens if n_tokens is not None else [1] * k, np.int64),
        flags=frozenset(flags),
        n_prompt_tokens=n_prompt_tokens,
    )


def battery(real, **variants):
    """A battery over the given tasks."""
    return ScoredBattery(
        depths(real[0].score.shape[1]),
        "multi-token",
        {"real": tuple(real), **{k: tuple(v) for k, v in variants.items()}},
    )


def random_battery(n=40, k=4, n_depths=8, seed=0, n_templates=12):
    """Random scores under every variant, with mixed token lengths."""
    rng = np.random.default_rng(seed)
    families = ("binder_tracking", "arithmetic_transform")

    def one(i, variant):
        return task(
            rng.normal(size=(k, n_depths)),
            answer=i % k,
            name=f"task {i}",
            n_tokens=rng.integers(1, 4, k),
            variant=variant,
            template=f"template {i % n_templates}",
            family=families[i % 2],
        )

    groups = [
        task(rng.normal(size=(k, n_depths)), name=f"g{g}/{w}", template=f"g{g}", variant="paraphrase")
        for g in range(3)
        for w in range(4)
    ]
    return battery(
        [one(i, "real") for i in range(n)],
        semantics_break=[one(i, "semantics_break") for i in range(n)],
        prompt_swap=[one(i, "prompt_swap") for i in range(n)],
        paraphrase=groups,
    )
