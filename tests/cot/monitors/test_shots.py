"""Examples shown with their answers: balanced, of other questions, by seed, and recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from made_monitor import DISTRIBUTION, PLAIN, example, small_data

from lmassay.cot.monitors.asking import SHOT_CHARS, Asking
from lmassay.cot.monitors.shots import Shots
from lmassay.errors import LmassayError
from lmassay.examples import Column, VisibleExamples

DATA = small_data(n=120)
TRAIN = DATA["train"]


def of(example_, group, n=4, seed=0, train=TRAIN):
    return Shots(train, PLAIN, Asking(shots=n, seed=seed)).of(example_, group)


@pytest.mark.parametrize("seed", range(5))
def test_i43_no_shot_is_of_the_items_question(seed):
    for row in range(len(TRAIN)):
        shots = of(TRAIN.examples[row], int(TRAIN.groups[row]), seed=seed)
        assert TRAIN.groups[row] not in [s.group for s in shots]
        assert TRAIN.examples.keys[row] not in [s.example.key for s in shots]


def test_i43_nor_of_another_question_with_the_same_prompt():
    prompts = ["the same"] * len(TRAIN)
    prompts[0] = "another"
    columns = [Column("prompt", pl.Series(prompts)), TRAIN.examples.columns[1]]
    train = replace(TRAIN, examples=VisibleExamples(TRAIN.examples.keys, columns))
    with pytest.raises(LmassayError, match="only [01] of other questions"):
        of(train.examples[1], -1, n=2, train=train)


@pytest.mark.parametrize("n", [2, 4, 6])
def test_shots_are_half_of_each_class_and_of_different_questions(n):
    shots = of(example(), -1, n=n)
    assert sum('"yes"' in s.reply for s in shots) == n / 2
    assert len({s.group for s in shots}) == n
    truth = dict(zip(TRAIN.examples.keys.tolist(), TRAIN.y.tolist(), strict=True))
    assert all(('"yes"' in s.reply) == (truth[s.example.key] == 1) for s in shots)


def test_the_seed_chooses_and_the_order_of_rows_does_not():
    chosen = {seed: tuple(s.example.key for s in of(example(), -1, seed=seed)) for seed in range(6)}
    assert len(set(chosen.values())) == 6
    turned = np.arange(len(TRAIN))[::-1]
    train = replace(
        TRAIN, examples=TRAIN.examples.take(turned), y=TRAIN.y[turned], groups=TRAIN.groups[turned],
        status=TRAIN.status[turned], hidden=TRAIN.hidden[turned],
    )  # fmt: skip
    assert tuple(s.example.key for s in of(example(), -1, train=train)) == chosen[0]


def test_nearly_all_items_get_the_same_shots():
    usual = [s.example.key for s in of(example(), -1)]
    shots = Shots(TRAIN, PLAIN, Asking(shots=4))
    assert shots.keys == [str(k) for k in usual]
    test = DATA["test"]
    assert all([s.example.key for s in shots.of(test.examples[i], int(test.groups[i]))] == usual for i in range(20))


def test_long_examples_are_not_shown_and_without_short_ones_nothing_is():
    texts = ["x" * SHOT_CHARS] * len(TRAIN)
    train = replace(TRAIN, examples=VisibleExamples(TRAIN.examples.keys, [Column("cot", pl.Series(texts))]))
    assert of(example(), -1, train=train)
    longer = replace(
        train, examples=VisibleExamples(train.examples.keys, [Column("cot", pl.Series([t + "x" for t in texts]))])
    )
    with pytest.raises(LmassayError, match="no training example of every class"):
        of(example(), -1, train=longer)


def test_a_confidence_is_shown_as_certain():
    replies = {s.reply for s in Shots(TRAIN, PLAIN, Asking(shots=2, confidence=True)).of(example(), -1)}
    assert replies == {'{"probability": 1.0}', '{"probability": 0.0}'}


def test_distributions_are_shown_where_the_data_has_them():
    with pytest.raises(LmassayError, match="answer_distribution"):
        Shots(TRAIN, DISTRIBUTION, Asking(shots=2))
    cells = [[{"key": "A", "value": 0.75}, {"key": "B", "value": 0.25}]] * len(TRAIN)
    train = replace(TRAIN, hidden=TRAIN.hidden.with_columns(answer_distribution=pl.Series(cells)))
    shots = Shots(train, DISTRIBUTION, Asking(shots=3)).of(example(), -1)
    assert [s.reply for s in shots] == ['{"A": 0.75, "B": 0.25}'] * 3
