"""Small made examples: texts in which some words go with the positive class, in questions of their own."""

from __future__ import annotations

import numpy as np
import polars as pl

from lmassay.examples import Column, VisibleExamples

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "wait", "so", "the", "answer", "is", "sum", "of", "two", "x1"]
NONE = np.zeros(0)


def column(kind, values):
    return Column(kind, pl.Series(values, dtype=pl.String))


def examples(texts, *, keys=None, **more):
    """Chains of thought, and other kinds of segment by name."""
    columns = [column(kind, values) for kind, values in more.items()] + [column("cot", texts)]
    return VisibleExamples(np.arange(len(texts)) * 7919 + 11 if keys is None else np.asarray(keys), columns)


def made(n=120, n_questions=12, seed=0, signal=0.6):
    """(examples, y, groups): positives say *wait* more often; nothing else differs."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2).astype(np.float64)
    groups = rng.integers(0, n_questions, n).astype(np.int64)
    texts, prompts = [], []
    for label, group in zip(y, groups, strict=True):
        words = list(rng.choice(WORDS, size=rng.integers(8, 30)))
        if label and rng.random() < signal:
            words[int(rng.integers(len(words)))] = "hmm wait"
        texts.append(" ".join(words) + rng.choice([".", ""]))
        prompts.append(f"question {group} asks what")
    return examples(texts, prompt=prompts), y, groups
