"""What a reply says is read or not; it is never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.cot.build.replies import letter, score

ABCD = ("A", "B", "C", "D")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("B", "B"), (" (B). ", "B"), ("**B**", "B"), ("B. Paris", "B"), ("B) Paris", "B"), ("B: Paris, A is wrong", "B"),
        ("The answer is B", "B"), ("the correct answer is **(C)**.", "C"), ("Answer: D\n", "D"), ("My choice: A", "A"),
        ("Answer: A\n\nSo the answer is A.", "A"), ("I choose option C because of A", "C"),
        ("", None), ("E", None), ("A or B", None), ("Answer: A. Or the answer is B.", None), ("A. no, the answer is C", None),
        ("A man walks in", None), ("Because B and C both hold", None), ("b", None), ("AB", None), ("The answer is Apple", None),
    ],
)  # fmt: skip
def test_a_letter_is_read_where_one_is_given(reply, said):
    assert letter(reply, ABCD) == said


@given(st.text())
def test_a_letter_is_one_of_those_offered(text):
    assert letter(text, ABCD) in (*ABCD, None)


@pytest.mark.parametrize(
    ("reply", "value"),
    [("7", 7), ("8/10", 8), ("I'd say 10.", 10), ("0", None), ("11", None), ("7.5", None), ("seven", None), ("", None)],
)
def test_a_score_is_the_first_whole_number_from_1_to_10(reply, value):
    assert score(reply) == value
