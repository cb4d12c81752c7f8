"""A small made task with all its splits, and hidden fields that must stay hidden."""

from __future__ import annotations

import hashlib

import numpy as np
import polars as pl

from lmassay.cot.task import CotTask, SplitData, TaskData
from lmassay.examples import Column, VisibleExamples

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "so", "the", "answer", "is", "sum", "of", "two", "x1"]


def made_split(name, n, n_questions, first_question, seed, *, kind="binary", signal=0.7, agree=True, canary=None):
    """Positives say *wait* more often than negatives; sizes and questions are chance."""
    rng = np.random.default_rng([seed, *name.encode()])
    label = rng.permutation(np.arange(n) % 2).astype(np.float64)
    groups = first_question + rng.integers(0, n_questions, n)
    texts = []
    for value in label:
        words = list(rng.choice(WORDS, size=rng.integers(8, 30)))
        if value and rng.random() < signal:
            words[int(rng.integers(len(words)))] = "hmm wait"
        texts.append(" ".join(words))
    y = label if kind != "regression" else label + rng.normal(size=n) * 0.3
    ids = [f"{name}/{i}" for i in range(n)]
    columns = [
        Column("prompt", pl.Series([f"question {g} asks what" for g in groups])),
        Column("cot", pl.Series(texts)),
    ]
    hidden = {"example_id": ids, "question_id": [f"q{g}" for g in groups], "label": label, "y": y}
    if kind == "interventional":
        suggestion = rng.choice(["A", "B"], n)
        answer = np.where(label == 1, suggestion, rng.choice(["A", "B"], n)) if agree else suggestion
        columns += [Column("suggestion", pl.Series(suggestion)), Column("answer", pl.Series(answer))]
        hidden |= {"p1": np.where(label == 1, 0.8, np.nan), "p0": np.where(label == 1, 0.2, np.nan)}
    if kind == "regression":
        hidden["n_options"] = np.full(n, 4)
    if canary is not None:
        hidden = {k: v if k == "y" else [canary] * n for k, v in hidden.items()} | {"published": [canary] * n}
        hidden["example_id"] = [f"{canary}{i}" for i in range(n)]
    keys = np.array([int.from_bytes(hashlib.sha256(i.encode()).digest()[:7], "big") for i in ids], np.int64)
    return SplitData(
        name=name,
        examples=VisibleExamples(keys, columns),
        y=y,
        groups=groups.astype(np.int64),
        status=np.array(["ok"] * n),
        hidden=pl.DataFrame(hidden),
    )


def made_data(kind="binary", *, n=120, n_questions=12, seed=0, ood=("ood_test",), agree=True, canary=None, **more):
    """A task from elsewhere; questions differ between splits."""
    splits = ["train", "validation", "test", *ood]
    segments = ("prompt", "suggestion", "cot", "answer") if kind == "interventional" else ("prompt", "cot")
    task = CotTask(
        number=0,
        id="made",
        question="Does the text hesitate?",
        subject="nobody",
        kind=kind,
        segments=segments,
        metric="r2" if kind == "regression" else "gmean2",
        positive="yes",
        negative="no",
    )
    return TaskData(
        task=task,
        layout="head",
        regime=None,
        splits={
            name: made_split(name, n, n_questions, 100 * i, seed, kind=kind, agree=agree, canary=canary, **more)
            for i, name in enumerate(splits)
        },
        fingerprint=hashlib.sha256(repr((kind, n, seed, ood)).encode()).hexdigest(),
    )
