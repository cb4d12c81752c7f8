"""Records are checked column by column; what does not fit is named."""

from __future__ import annotations

import pytest

from lmassay.cot.schema import Field, columns

FIELDS = (
    Field("id", "str"),
    Field("n", "int"),
    Field("rate", "float"),
    Field("label", "str", values=("yes", "no")),
    Field("kl", "float", optional=True),
    Field("thinking", "thinking"),
    Field("choices", "options"),
    Field("p", "distribution"),
)
GOOD = {
    "id": "q", "n": 3, "rate": 0, "label": "yes", "thinking": "hm", "choices": {"A": "Yes"}, "p": {"A": 1},
}  # fmt: skip


def test_a_record_that_fits_becomes_columns_of_the_stores_types():
    found, misfits = columns([GOOD, GOOD | {"kl": 0.0}], FIELDS)
    assert misfits == {}
    assert found["n"] == [3, 3]
    assert found["rate"] == [0.0, 0.0]
    assert found["choices"] == [[{"label": "A", "text": "Yes"}]] * 2
    assert found["p"] == [[{"key": "A", "value": 1.0}]] * 2


def test_absent_is_not_zero():
    found, _ = columns([GOOD, GOOD | {"kl": 0}], FIELDS)
    assert found["kl"] == [None, 0.0]


def test_thinking_is_the_same_text_as_a_string_and_as_a_list_of_one_block():
    block = {"type": "reasoning.text", "text": "hm", "format": "unknown", "index": 0}
    found, misfits = columns([GOOD, GOOD | {"thinking": [block]}], FIELDS)
    assert misfits == {}
    assert found["thinking"] == ["hm", "hm"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"label": "maybe"}, "'maybe' is none of yes, no"),
        ({"n": True}, "bool where int"),
        ({"n": "3"}, "str where int"),
        ({"n": 2**63}, "beyond 64 bits"),
        ({"n": None}, "NoneType where int"),
        ({"rate": float("inf")}, "no finite number"),
        ({"kl": None}, "kl: null"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"thinking": [{"text": "a"}, {"text": "b"}]}, "one block"),
        ({"choices": {"A": 1}}, "not a string"),
        ({"p": {"A": -0.1}}, "from 0 up"),
    ],
)
def test_a_record_that_does_not_fit_is_named_and_the_others_are_taken(change, why):
    found, misfits = columns([GOOD, GOOD | change, GOOD], FIELDS)
    assert list(misfits) == [1]
    assert why in misfits[1]
    assert len(found["id"]) == 2


def test_a_missing_key_and_what_is_no_object_are_named():
    _, misfits = columns([{k: v for k, v in GOOD.items() if k != "n"}, ["a"], GOOD, None], FIELDS)
    assert misfits == {0: "no key 'n'", 1: "not a JSON object", 3: "not a JSON object"}
