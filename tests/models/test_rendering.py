"""How prompts are written: thinking markers found, prefixes continued exactly, rewritten turns detected."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.errors import LmassayError
from lmassay.models.rendering import Renderer
from lmassay.models.sampling import Message, Prompt
from lmassay.models.thinking import STEP_BY_STEP, Thinking, read_thinking, step_by_step
from lmassay.models.tokens import view
from tiny_models import tiny_tokenizer

PLAIN = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
THINKS = PLAIN.replace(
    "{{ m.content }}", "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}"
)
# As templates of models that always think: they open the thinking themselves.
OPENS = THINKS.replace("<s>assistant\n{% endif %}", "<s>assistant\n<think>\n{% endif %}")


def _tokens(template=None, bos="none"):
    return view(tiny_tokenizer(bos, template))


@pytest.mark.parametrize(
    ("template", "pair", "source"),
    [
        (THINKS, None, "step by step"),
        (OPENS, ("<think>", "</think>"), "template"),
        (PLAIN + "{# [THINK] [/THINK] #}", ("[THINK]", "[/THINK]"), "template"),
        (PLAIN + "{# <seed:think> </seed:think> #}", ("<seed:think>", "</seed:think>"), "template"),
        (PLAIN + "{# <my_thoughts> </my_thoughts> #}", ("<my_thoughts>", "</my_thoughts>"), "template"),
        (PLAIN, None, "step by step"),
        (None, None, "step by step"),
    ],
)
def test_markers_are_read_from_the_template(template, pair, source):
    found = read_thinking(_tokens(template))
    assert found.source == source
    assert ((found.open, found.close) if found.marked else None) == pair
    assert bool(found.instruction) == (pair is None)


def test_markers_are_read_from_the_vocabulary_where_the_template_writes_none():
    hf = tiny_tokenizer(chat_template=PLAIN)
    hf.add_tokens(["<think>", "</think>"])
    found = read_thinking(view(hf))
    assert (found.open, found.close, found.source) == ("<think>", "</think>", "vocabulary")


def test_markers_may_be_named_or_done_without():
    tokens = _tokens(OPENS)
    assert read_thinking(tokens, "none") == step_by_step()
    asked = read_thinking(tokens, "<a>, </a>")
    assert (asked.open, asked.close, asked.source) == ("<a>", "</a>", "asked")
    assert read_thinking(None).source == "step by step"
    for wrong in ("", "<a>", "a,b,c", ",b"):
        with pytest.raises(LmassayError, match="thinking format"):
            read_thinking(tokens, wrong)


def test_a_reply_is_parted_at_the_closing_marker():
    marked = Thinking("<think>", "</think>", "template")
    assert marked.parted("<think>\nso\n</think>\n\nA") == ("so", "A")
    assert marked.parted("so\n</think>\n\nA") == ("so", "A")
    assert marked.parted("<think>\nso and so") == ("so and so", None)
    assert marked.parted("<think>\n</think>") == ("", "")
    assert step_by_step().parted(" so. A ") == ("so. A", "so. A")


def test_the_beginning_of_a_turn_holds_the_markers():
    marked = Thinking("<think>", "</think>", "template")
    assert marked.begun("so") == "<think>\nso"
    assert marked.ended("so") == "<think>\nso\n</think>\n\n"
    assert marked.asking("Why?") == "Why?"
    assert step_by_step().begun("so") == "so"
    assert step_by_step().ended("so") == "so\n\n"
    assert step_by_step().asking("Why?") == f"Why?\n\n{STEP_BY_STEP}"


def test_a_prefix_stands_right_after_the_generation_prompt():
    tokens = _tokens(PLAIN)
    text = Renderer(tokens, step_by_step()).text(Prompt.of("Why?", "Since", system="s"))
    assert text == "<s>system\ns</s>\n<s>user\nWhy?</s>\n<s>assistant\nSince"


def test_a_template_that_opens_the_thinking_and_a_prefix_that_does_write_it_once():
    tokens = _tokens(OPENS)
    thinking = read_thinking(tokens)
    renderer = Renderer(tokens, thinking)
    head = "<s>user\nWhy?</s>\n<s>assistant\n<think>\n"
    assert renderer.text(Prompt.of("Why?")) == head
    assert renderer.text(Prompt.of("Why?", thinking.begun("so"))) == f"{head}so"


def test_a_turn_that_the_template_rewrites_is_an_error():
    """I-50: templates strip earlier thinking, so a prefix is no prefix."""
    tokens = _tokens(THINKS)
    turns = (Message("user", "a"), Message("assistant", "<think>\nso\n</think>\n\nB"), Message("user", "c"))
    renderer = Renderer(tokens, Thinking("<think>", "</think>", "asked"))
    with pytest.raises(LmassayError, match="assistant's turn .* differently") as error:
        renderer.text(Prompt(turns))
    assert error.value.code == "tokenizer-not-usable"
    kept = (turns[0], Message("assistant", "B"), turns[2])
    assert "B</s>" in renderer.text(Prompt(kept))
    with pytest.raises(LmassayError, match="no turns"):
        renderer.text(Prompt(()))


def test_a_template_that_refuses_a_role_is_an_error():
    tokens = _tokens(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
    )
    with pytest.raises(LmassayError, match="refuses turns of the roles system, user"):
        Renderer(tokens, step_by_step()).text(Prompt.of("a", system="s"))


def test_without_a_template_turns_are_plain_text_after_the_tokenizer_s_own_tokens():
    renderer = Renderer(_tokens(bos="adds"), step_by_step())
    assert renderer.text(Prompt.of("Why?", "Since")) == "Why?\n\nSince"
    assert renderer.ids(Prompt.of("Why?"))[0] == 1
    turns = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    assert renderer.text(Prompt(turns, "d")) == "user: a\n\nassistant: b\n\nuser: c\n\nassistant:\nd"


def test_a_template_s_bos_is_not_written_twice():
    renderer = Renderer(_tokens(PLAIN, bos="adds"), step_by_step())
    assert renderer.ids(Prompt.of("Why?")).count(1) == 2  # one a turn, as the template writes it


def test_whether_a_prefix_is_continued_exactly_is_told():
    renderer = Renderer(_tokens(PLAIN), step_by_step())
    prompt = Prompt.of("Why?")
    assert renderer.continues(prompt.begun("The result"), prompt.begun("The result is 12."))
    # "result" is one token, so the tokens of its beginning are not among the first ones of the whole.
    assert not renderer.continues(prompt.begun("The res"), prompt.begun("The result is 12."))
    assert renderer.joins(prompt.begun("The"), " result") == (renderer.tokens.encode(" result"), True)
    assert not renderer.joins(prompt.begun("The res"), "ult")[1]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_new_tokens_are_the_text_they_add(before, after):
    tokens = _TOKENS
    renderer = Renderer(tokens, step_by_step())
    assert renderer.written(tokens.encode(before), tokens.encode(after)) == after.encode("utf-8", "replace").decode()


_TOKENS = _tokens()


def test_what_ends_a_turn_is_read_from_the_template():
    assert Renderer(_tokens(PLAIN), step_by_step()).end_of_turn() == {2}
    assert Renderer(_tokens(), step_by_step()).end_of_turn() == set()
