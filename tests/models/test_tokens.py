"""Exactly the special tokens a tokenizer adds by itself, and never a lost one of the text's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from lmassay.errors import LmassayError
from lmassay.models.tokens import view
from tiny_models import tiny_tokenizer

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
BOS, EOS = 1, 2


def _adds_eos_too():
    fast = tiny_tokenizer()
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    return fast


@pytest.mark.parametrize(
    ("tokenizer", "prefix"),
    [
        (tiny_tokenizer("none"), ()),
        (tiny_tokenizer("adds"), (BOS,)),
        (tiny_tokenizer("none", TEMPLATE), ()),
        (tiny_tokenizer("adds", TEMPLATE), (BOS,)),
        (_adds_eos_too(), (BOS,)),
    ],
    ids=["no BOS", "adds BOS", "template adds BOS", "both add BOS", "adds BOS and EOS"],
)
def test_prefix_is_what_the_tokenizer_puts_before_a_text(tokenizer, prefix):
    """I-23: one BOS or none, as recorded, and the text's first token is never lost."""
    seen = view(tokenizer)
    assert seen.prefix == prefix
    ids = seen.encode("Start with 7.")
    assert BOS not in ids
    assert EOS not in ids
    assert tokenizer.decode(ids) == "Start with 7."
    assert tokenizer.encode("Start with 7.")[: len(prefix) + len(ids)] == [*prefix, *ids]


@pytest.mark.parametrize("bos", ["none", "adds"])
def test_a_rendered_template_that_begins_with_bos_is_encoded_with_one(bos):
    """I-45."""
    tokenizer = tiny_tokenizer(bos, TEMPLATE)
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "Add 5."}], tokenize=False)
    ids = view(tokenizer).encode(rendered)
    assert ids[0] == BOS
    assert ids.count(BOS) == 1


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back_whole(text):
    tokenizer = tiny_tokenizer("adds")
    if any(special in text for special in tokenizer.all_special_tokens):
        return
    assert tokenizer.decode(view(tokenizer).encode(text)) == text


def test_a_tokenizer_that_changes_the_text_s_own_tokens_is_refused():
    class Drops:
        def encode(self, text, add_special_tokens=True):
            return [BOS, 8] if add_special_tokens else [7, 8]

    with pytest.raises(
        LmassayError, match=r"Drops encodes 'a b' to \[1, 8\] with special tokens and \[7, 8\]"
    ) as caught:
        view(Drops())
    assert caught.value.code == "tokenizer-not-usable"


def test_a_tokenizer_without_a_vocabulary_is_refused():
    class Empty:
        def encode(self, text, add_special_tokens=True):
            return []

    with pytest.raises(LmassayError, match="tokenizer-not-usable"):
        view(Empty())
