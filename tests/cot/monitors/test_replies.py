"""Every form of reply is read as what it says, or as nothing; nothing is guessed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_monitor import ASKED

from lmassay.cot.monitors.replies import EMPTY, SEVERAL, parse

FORMS = json.loads((Path(__file__).parent / "replies.json").read_text())


def said(reply, ask="label"):
    template, asking = ASKED[ask]
    return parse(reply, template, asking, letters=("A", "B", "C"), n_region=8)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f['ask']}: {f['reply'][:40]!r}")
def test_i86_a_reply_is_what_it_says_or_unparsed_with_the_reason(form):
    found = said(form["reply"], form["ask"])
    assert found.why == form.get("why", "")
    assert found.told == ("why" not in form)
    assert found.value == (None if "value" not in form else pytest.approx(form["value"], abs=1e-12))
    assert list(found.sentences) == form.get("sentences", [])


def test_the_forms_are_many_and_most_kinds_have_forms_that_say_nothing():
    kinds = Counter(form["ask"] for form in FORMS)
    assert sum(kinds.values()) >= 40
    assert all(any("why" in f for f in FORMS if f["ask"] == kind) for kind in kinds)


@pytest.mark.parametrize("ask", list(ASKED))
@given(text=st.text(max_size=200))
def test_no_text_breaks_the_parser(ask, text):
    found = said(text, ask)
    assert found.told == (found.value is not None or bool(found.sentences))


@given(
    p=st.floats(0, 1), around=st.sampled_from(["{}", "Sure: {}", "{} done", "```json\n{}\n```", "<think>0.1</think>{}"])
)
def test_a_probability_comes_back_as_it_was_given(p, around):
    assert said(around.replace("{}", json.dumps({"probability": p})), "probability").value == p


@given(word=st.sampled_from(["yes", "no"]), other=st.sampled_from(["yes", "no"]))
def test_two_objects_count_only_when_they_agree(word, other):
    found = said(f'{{"answer": "{word}"}} and {{"answer": "{other}"}}')
    assert (found.value is not None) == (word == other)
    assert found.why == ("" if word == other else SEVERAL)


def test_a_reply_of_a_million_brackets_is_given_up():
    assert not said("{" * 1_000_000).told
    assert not said('{"a":' * 20_000).told


def test_thinking_is_left_out_and_an_end_without_a_beginning_too():
    assert said('<think>{"answer": "no"}</think>{"answer": "yes"}').value == 1.0
    assert said('{"answer": "no"}</think>{"answer": "yes"}').value == 1.0
    assert said("<think></think>").why == EMPTY
