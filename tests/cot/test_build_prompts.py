"""A file of questions: read whole, every fault named at once."""

from __future__ import annotations

import json

import pytest

from lmassay.cot.build.prompts import read_questions
from lmassay.errors import LmassayError


def _file(tmp_path, *lines):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return path


def test_questions_are_read_with_their_options_and_splits(tmp_path):
    path = _file(tmp_path, {"question_id": "a", "prompt": "Why?"}, "", {
        "question_id": "b", "prompt": "Which?", "options": ["x", "y"], "split": "ood_test"})  # fmt: skip
    found = read_questions(path, "reasoning_termination")
    assert [q.id for q in found.items] == ["a", "b"]
    assert found.items[0].text() == "Why?"
    assert found.items[1].letters == ("A", "B")
    text = found.items[1].text("I think B.")
    assert (
        text.index("Which?") < text.index("A. x") < text.index("B. y") < text.index("I think B.") < text.index("letter")
    )


def test_every_fault_is_reported_at_once(tmp_path):
    path = _file(
        tmp_path, "{", {"question_id": "a"}, {"question_id": "b", "prompt": " ", "options": ["x"]}, "[1]",
        {"question_id": "c", "prompt": "Q", "options": ["x", "x"], "split": "dev", "answer": "x"},
        {"question_id": "d", "prompt": "Q"}, {"question_id": "d", "prompt": "Q", "options": ["x", ""]}, {"question_id": "e"},
    )  # fmt: skip
    with pytest.raises(LmassayError) as refused:
        read_questions(path, "atypical_answer")
    assert refused.value.code == "bad-prompts"
    said = refused.value.what
    for words in ("line 1: not JSON", "line 2: prompt", "line 3: prompt is empty", "a single option", "line 4: the line",
                  "the same option twice", "line 5: split is none of", "line 5: answer", "line 6: task atypical_answer"):  # fmt: skip
        assert words in said
    assert "and 1 more" in said


@pytest.mark.parametrize(("lines", "words"), [
    ([{"question_id": "d", "prompt": "Q"}] * 2, "'d' stands on more than one line"), ([""], "it holds no question"),
])  # fmt: skip
def test_a_file_without_distinct_questions_is_refused(tmp_path, lines, words):
    with pytest.raises(LmassayError, match=words):
        read_questions(_file(tmp_path, *lines), "reasoning_termination")


def test_a_missing_file_is_a_request_that_is_wrong(tmp_path):
    with pytest.raises(LmassayError, match="cannot be read") as refused:
        read_questions(tmp_path / "none.jsonl", "reasoning_termination")
    assert refused.value.code == "bad-request"
