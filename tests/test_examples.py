"""What a method may see, in columns and one by one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from lmassay.errors import LmassayError
from lmassay.examples import Column, Segment, Texts, VisibleExample, VisibleExamples, texts

PROMPTS = pl.Series(["Who?", "Why? שלום \u202e"])
OPTIONS = pl.Series([[{"label": "A", "text": "I"}, {"label": "B", "text": "you"}], [], None])
THOUGHTS = "Well, … so.Hm".encode()


@pytest.fixture
def examples():
    # The third thought is the beginning of the first; the second example has none.
    thoughts = Texts([THOUGHTS], np.zeros(3, int), np.array([0, 0, 0]), np.array([len("Well, … so.".encode()), -1, 4]))
    columns = (
        Column("prompt", PROMPTS, np.array([1, 0, -1])),
        Column("option", OPTIONS),
        Column("cot", thoughts),
    )
    return VisibleExamples(np.array([30, 10, 20]), columns)


def test_an_example_has_its_segments_in_order_and_its_key(examples):
    assert examples[0] == VisibleExample(
        30,
        (
            Segment("prompt", "Why? שלום \u202e"),
            Segment("option", "I", "A"),
            Segment("option", "you", "B"),
            Segment("cot", "Well, … so."),
        ),
    )
    assert examples[1] == VisibleExample(10, (Segment("prompt", "Who?"),))
    assert examples[2] == VisibleExample(20, (Segment("cot", "Well"),))
    assert list(examples) == [examples[i] for i in range(3)]
    assert examples[-1] == examples[2]
    with pytest.raises(IndexError):
        examples[3]


def test_a_selection_is_the_same_examples(examples):
    assert list(examples.take([2, 0])) == [examples[2], examples[0]]
    assert list(examples.take(np.array([False, True, True]))) == [examples[1], examples[2]]
    assert list(examples[1:]) == [examples[1], examples[2]]
    assert list(examples.take([2, 0]).take([1])) == [examples[0]]
    assert len(examples.take([])) == 0
    assert list(examples.take([])) == []


def test_texts_are_the_same_from_columns_and_from_a_list(examples):
    for kinds in (("cot",), ("prompt", "cot"), ("option",), ()):
        assert texts(examples, *kinds) == texts(list(examples), *kinds)
    assert texts(examples, "cot") == ["Well, … so.", "", "Well"]
    assert examples[0].text("option", separator="/") == "I/you"


def test_a_damaged_text_is_an_error_and_not_another_text():
    damaged = Texts([b"ab\xffcd"], np.zeros(2, int), np.array([0, 0]), np.array([5, 2]))
    assert damaged.pick(np.array([1])) == ["ab"]
    with pytest.raises(LmassayError, match="cot-data-broken"):
        damaged.pick(np.array([0]))
