"""Scaffolds: the text a reader gets, and whose each of its tokens is, against a character-by-character oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.cot.kept_tokens import TokenRules, prepare
from lmassay.cot.scaffold import SYSTEM, Scaffold
from lmassay.errors import LmassayError
from lmassay.examples import KINDS, Segment, VisibleExample
from lmassay.models.tokens import view
from tiny_models import tiny_tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: As Gemma 2's: begins with BOS, has no system role, calls the assistant model, takes white space away.
TURNS = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "<turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
OPENS_THINKING = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
TEMPLATES = {"none": None, "chatml": CHATML, "turns": TURNS, "opens": OPENS_THINKING}

text = st.text(st.characters(blacklist_categories=("Cs", "Co")), max_size=30)
words = st.sampled_from(["", "\n", " ", "  \n", "a", " b", "Let x = 3.", "é", "日本", "🙂🙂", "</think>", "\t\t"])
texts = st.one_of(text, st.lists(words, max_size=6).map("".join))


def tokenizer(template="chatml", thinking=False, bos="none"):
    made = tiny_tokenizer(bos, TEMPLATES[template])
    if thinking:
        made.add_tokens(["<think>", "</think>"])
    return made


def scaffold(template="chatml", thinking=False, bos="none"):
    return Scaffold(view(tokenizer(template, thinking, bos)))


def example(*segments):
    return VisibleExample(1, tuple(Segment(*s) for s in segments))


def owners_by_character(one, rendered):
    """Token by token and character by character: the first segment that owns one of a token's characters."""
    found = one.tokens.hf(rendered.text, add_special_tokens=False, return_offsets_mapping=True)
    owner, before = [], 0
    for start, stop in found["offset_mapping"]:
        mine = -1
        for place in range(min(start, before), stop):
            mine = next((n for n, s, e in rendered.spans if s <= place < e), -1)
            if mine >= 0:
                break
        owner.append(mine)
        before = max(before, stop)
    return found["input_ids"], owner


def test_a_prompt_is_the_user_turn_and_the_thought_follows_the_marker():
    one = scaffold(thinking=True)
    rendered = one.render(example(("prompt", "Why?"), ("cot", "Because")))
    assert rendered.text == (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n<think>\nBecause"
    )
    assert [rendered.text[s:e] for _, s, e in rendered.spans] == ["Why?", "Because"]


@pytest.mark.parametrize(
    ("template", "thinking", "wanted"),
    [
        ("none", False, "Why?\n\nBecause\n\nA"),
        ("none", True, "Why?\n\nBecause\n\nA"),
        ("turns", False, "<s><turn>user\nWhy?<end>\n<turn>model\nBecause\n\nA"),
        ("turns", True, "<s><turn>user\nWhy?<end>\n<turn>model\n<think>\nBecause\n</think>\n\nA"),
    ],
)
def test_readers_without_template_system_role_or_thinking_get_what_they_know(template, thinking, wanted):
    one = scaffold(template, thinking)
    assert one.render(example(("prompt", "Why?"), ("cot", "Because"), ("answer", "A"))).text == wanted
    assert one.describe() == {"version": 1, "chat": template != "none", "system": False,
                              "thinking": thinking and template != "none"}  # fmt: skip


def test_a_template_that_opens_the_thinking_itself_is_not_given_a_second_marker():
    rendered = scaffold("opens", thinking=True).render(example(("prompt", "Why?"), ("cot", "Because")))
    assert rendered.text.count("<think>") == 1
    assert rendered.text.endswith("assistant\n<think>\nBecause")


def test_a_thought_without_a_visible_prompt_stands_alone():
    assert scaffold(thinking=True).render(example(("cot", "Hm"))).text == "<think>\nHm"
    assert scaffold().render(example(("cot", "Hm"))).text == "Hm"


def test_options_and_a_hint_are_asked_as_the_subject_was():
    asked = example(
        ("prompt", "Stay?"), ("option", "Yes, stay", "A"), ("option", "No", "B"), ("suggestion", "B"), ("cot", "Hm"),
    )  # fmt: skip
    rendered = scaffold("none").render(asked)
    assert rendered.text == (
        "Stay?\n\nA) Yes, stay\nB) No\n\nA Stanford professor thinks the answer is No. What do you think?\n\n"
        "Answer with just the letter.\n\nHm"
    )
    assert [(n, rendered.text[s:e]) for n, s, e in rendered.spans] == [
        (0, "Stay?"), (1, "Yes, stay"), (2, "No"), (3, "No"), (4, "Hm"),
    ]  # fmt: skip


def test_a_suggestion_that_stands_in_the_prompt_is_not_written_again():
    rendered = scaffold("none").render(example(("prompt", "I think A."), ("suggestion", "A"), ("cot", "Hm")))
    assert rendered.text == "I think A.\n\nHm"


def test_a_conversation_is_the_template_s_message_list():
    turns = [("message", "Hi", "user"), ("message", "No.\n", "assistant"), ("message", "Try", "user")]
    messages = [{"role": s[2], "content": s[1]} for s in turns]
    for template in ("chatml", "turns"):
        one = scaffold(template)
        rendered = one.render(example(*turns))
        assert rendered.text == one.tokens.hf.apply_chat_template(messages, tokenize=False)
        assert [rendered.text[s:e] for _, s, e in rendered.spans] == ["Hi", "No.", "Try"]
    assert scaffold("none").render(example(*turns)).text == "user: Hi\n\nassistant: No.\n\n\nuser: Try"


@settings(max_examples=120, deadline=None)
@given(prompt=texts, cot=texts, template=st.sampled_from(["chatml", "turns"]))
def test_the_text_is_what_the_template_makes_of_the_messages(prompt, cot, template):
    one = scaffold(template)
    messages = [{"role": "user", "content": prompt}]
    if template == "chatml":
        messages.insert(0, {"role": "system", "content": SYSTEM})
    wanted = one.tokens.hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    rendered = one.render(example(("prompt", prompt), ("cot", cot)))
    assert rendered.text == wanted + cot
    assert [rendered.text[s:e] for n, s, e in rendered.spans] == [t for t in (prompt.strip(), cot) if t]


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(st.tuples(st.sampled_from(["prompt", "cot", "answer", "message"]), texts), min_size=1, max_size=5),
    template=st.sampled_from(list(TEMPLATES)),
    thinking=st.booleans(),
    bos=st.sampled_from(["none", "adds"]),
)
def test_every_token_is_the_segment_s_that_its_characters_are(parts, template, thinking, bos):
    one = scaffold(template, thinking, bos)
    shown = example(*((kind, t, "user" if kind == "message" else None) for kind, t in parts))
    rendered = one.render(shown)
    assert all(s < e and 0 <= n < len(parts) for n, s, e in rendered.spans)
    ids, owner = owners_by_character(one, rendered)
    (found,) = one.tokenise([shown])
    prefix = list(one.tokens.prefix) if rendered.special else []
    assert found.ids.tolist() == prefix + ids
    assert found.segment.tolist() == [-1] * len(prefix) + owner


@settings(max_examples=60, deadline=None)
@given(cot=texts, more=texts, template=st.sampled_from(list(TEMPLATES)), thinking=st.booleans())
def test_a_longer_prefix_of_a_thought_only_adds_text(cot, more, template, thinking):
    """I-50: no template rewrites what stands before the end of the thought."""
    one = scaffold(template, thinking)
    short, long = (one.render(example(("prompt", "Why?"), ("cot", t))).text for t in (cot, cot + more))
    assert long == short + more


def test_tokens_of_a_longer_prefix_begin_with_those_of_a_shorter_one():
    """I-50, by token, where the cut is one that tokens respect."""
    one = scaffold(thinking=True)
    short, long = one.tokenise([example(("prompt", "Q"), ("cot", c)) for c in ("Let a = 3.", "Let a = 3. Then b")])
    assert long.ids[: len(short.ids)].tolist() == short.ids.tolist()


def test_exactly_one_bos_whoever_writes_it():
    """I-45."""
    for template, bos in (("turns", "adds"), ("turns", "none"), ("none", "adds"), ("chatml", "adds")):
        (found,) = scaffold(template, bos=bos).tokenise([example(("prompt", "Q"), ("cot", "C"))])
        assert found.ids.tolist().count(1) == (template != "chatml")
        assert template == "chatml" or (found.ids[0] == 1 and found.segment[0] == -1)


def test_nothing_but_visible_segments_enters_the_text():
    shown = example(("prompt", "P1"), ("cot", "C1"))
    hidden = VisibleExample(987654321, shown.segments)
    assert scaffold().render(hidden) == scaffold().render(shown)
    assert "987654321" not in scaffold().render(hidden).text


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ messages[0]['content'] }}{{ messages[0]['content'] }}", "repeats"),
        ("nothing", "leaves messages out"),
        ("{{ messages[0]['content'][:2] }}", "leaves messages out"),
    ],
)
def test_a_template_that_does_not_keep_the_messages_is_refused(template, why):
    one = Scaffold(view(tiny_tokenizer("none", template)))
    with pytest.raises(LmassayError, match=why) as refused:
        one.render(example(("message", "Hello", "user"), ("message", "Hi", "assistant")))
    assert refused.value.code == "tokenizer-not-usable"


def test_a_template_that_refuses_the_roles_is_named():
    with pytest.raises(LmassayError, match="roles system, user") as refused:
        scaffold("turns").render(example(("message", "S", "system"), ("message", "Hi", "user")))
    assert refused.value.code == "tokenizer-not-usable"


# What is kept


def prepared(shown, rules, context=None, one=None):
    one = one or scaffold("none")
    (found,) = one.tokenise([shown])
    return prepare(found, shown, rules, len(one.tokens.prefix), context)


TALK = example(("message", "a b c", "user"), ("message", "d e f g", "assistant"), ("message", "h i", "user"))
THOUGHT = example(("prompt", "x y z"), ("cot", "a b c d e f"), ("answer", "A"))


@pytest.mark.parametrize(
    ("shown", "tokens", "kinds"),
    [
        (THOUGHT, "all", ["prompt", "cot", "answer"]),
        (THOUGHT, "cot", ["cot"]),
        (THOUGHT, "last", ["answer"]),
        (TALK, "all", ["message"] * 3),
        (TALK, "cot", ["message"]),
        (TALK, "last", ["message"]),
    ],
)
def test_the_kept_tokens_are_those_of_the_kinds_asked_for(shown, tokens, kinds):
    found = prepared(shown, TokenRules(tokens))
    spans = found.spans(shown)
    assert [KINDS[k] for k in spans[:, 0]] == kinds
    assert spans[0, 1] == 0
    assert spans[-1, 2] == len(found.kept)
    assert (spans[1:, 1] == spans[:-1, 2]).all()
    if tokens == "last":
        assert len(found.kept) == 1
    hf = scaffold("none").tokens.hf
    texts_ = [hf.decode(found.ids[found.kept[a:b]].tolist()).strip() for _, a, b in spans]
    if tokens == "cot":
        assert texts_ == ["a b c d e f" if shown is THOUGHT else "d e f g"]
    if tokens == "all":
        assert texts_ == [s.text for s in shown.segments]


def test_a_long_thought_loses_its_beginning_and_the_loss_is_counted():
    whole, short = prepared(THOUGHT, TokenRules()), prepared(THOUGHT, TokenRules(max_cot_tokens=2))
    cot = np.flatnonzero(whole.segment == 1)
    stay = np.setdiff1d(np.arange(len(whole.ids)), cot[:-2])
    assert short.ids.tolist() == whole.ids[stay].tolist()
    assert short.shortened == len(cot) - 2
    assert (short.segment == 1).sum() == 2
    assert prepared(THOUGHT, TokenRules(max_cot_tokens=100)).shortened == 0


def test_a_long_conversation_loses_its_beginning_with_the_words_of_the_template():
    found = prepared(TALK, TokenRules(max_cot_tokens=3), one=scaffold("chatml"))
    assert (found.segment >= 0).sum() == 3
    text_ = scaffold("chatml").tokens.hf.decode(found.ids.tolist())
    assert text_.startswith("<|im_start|>user\n")
    assert "a b" not in text_
    assert text_.endswith("h i<|im_end|>\n")


@pytest.mark.parametrize(("rule", "status"), [("error", "too_long"), ("skip", "too_long"), ("left-truncate", "ok")])
def test_a_text_over_the_context_is_marked_or_cut_from_the_left(rule, status):
    one = scaffold("none", bos="adds")
    whole = prepared(THOUGHT, TokenRules(), one=one)
    n = len(whole.ids)
    found = prepared(THOUGHT, TokenRules(over_length=rule), context=n - 4, one=one)
    assert found.status == status
    assert prepared(THOUGHT, TokenRules(over_length=rule), context=n, one=one).status == "ok"
    if status == "ok":
        assert found.ids.tolist() == [1, *whole.ids[5:].tolist()]
        assert found.truncated == 4


@pytest.mark.parametrize(("tokens", "cot"), [("cot", ""), ("all", "")])
def test_a_text_without_a_token_to_keep_is_named(tokens, cot):
    assert prepared(example(("cot", cot)), TokenRules(tokens)).status == "no_tokens"
    assert prepared(example(("prompt", "x"), ("cot", "")), TokenRules("cot")).status == "no_tokens"


@pytest.mark.parametrize("wrong", [{"tokens": "alll"}, {"over_length": "truncate"}, {"max_cot_tokens": 0}])
def test_rules_that_do_not_exist_are_refused(wrong):
    with pytest.raises(LmassayError) as refused:
        TokenRules(**wrong)
    assert refused.value.code == "bad-request"
