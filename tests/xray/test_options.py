"""Which tokens are scored: boundary, special tokens, chat template, protocol."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lmassay.errors import LmassayError
from lmassay.models.tokens import view
from lmassay.xray.options import PROTOCOLS, PromptStyle, Tokenised, scorable, shared_prefix
from tiny_models import tiny_tokenizer

TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}{{ '' if enable_thinking else '' }}"
)
PLAIN = PromptStyle(view(tiny_tokenizer()))
WITH_BOS = PromptStyle(view(tiny_tokenizer("adds")))
CHAT = PromptStyle(view(tiny_tokenizer("adds", TEMPLATE)), chat=True)


def _text(style, ids):
    return style.tokens.hf.decode(list(ids))


def test_prompt_and_option_are_the_joint_tokens_cut_at_the_boundary():
    made = PLAIN.tokenise("The result is", ("12", "twelve"))
    for option, ids in zip(("12", "twelve"), made.options, strict=True):
        assert list(made.context + ids) == PLAIN.tokens.encode(f"The result is {option}")
        assert _text(PLAIN, ids) == f" {option}"


def test_a_bos_stands_exactly_where_the_tokenizer_adds_one():
    """I-23."""
    bos = WITH_BOS.tokens.hf.bos_token_id
    assert WITH_BOS.tokens.prefix == (bos,)
    assert PLAIN.tokens.prefix == ()
    assert WITH_BOS.tokenise("A implies", ("B",)).context == (bos, *PLAIN.tokenise("A implies", ("B",)).context)


def test_a_template_that_writes_bos_gets_no_second_one():
    """I-45."""
    context = CHAT.tokenise("A implies", ("B",)).context
    assert context[0] == CHAT.tokens.hf.bos_token_id
    assert context.count(CHAT.tokens.hf.bos_token_id) == 1


def test_in_a_chat_the_option_has_no_space_before_it():
    """I-29."""
    made = CHAT.tokenise("A implies", ("B", "C"))
    assert _text(CHAT, made.options[0]) == "B"
    assert _text(CHAT, made.context).endswith("user: A implies\nassistant:\n")


def test_chat_without_a_template_is_refused():
    with pytest.raises(LmassayError, match="no chat template"):
        PromptStyle(view(tiny_tokenizer()), chat=True)


class _Merging:
    """A tokenizer that fuses the prompt's last letter with what follows it."""

    chat_template = None

    def encode(self, text, add_special_tokens=True):
        pieces, at = [], 0
        while at < len(text):
            size = 3 if text[at : at + 3] in ("s o", "s t") else 1
            pieces.append(sum(ord(c) * 131**i for i, c in enumerate(text[at : at + size])))
            at += size
        return pieces


def test_a_token_across_the_boundary_moves_it_left_for_all_options():
    """I-27: no option may be left without tokens."""
    style = PromptStyle(view(_Merging()))
    made = style.tokenise("it is", ("one", "two", "six"))
    assert made.boundary_shift
    assert len(made.context) == 4
    assert all(len(ids) >= 2 for ids in made.options)
    assert "boundary_shift" in scorable(made, "multi-token").flags


def test_nothing_before_the_option_is_an_error_that_names_it():
    style = PromptStyle(view(_Merging()))
    with pytest.raises(LmassayError, match=r"tokenizer-not-usable.*'one'.*'s'"):
        style.tokenise("s", ("one",))


@settings(max_examples=200, deadline=None)
@given(st.text(min_size=1, max_size=20), st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=4))
def test_the_boundary_parts_the_joint_tokens_whatever_the_text(prompt, options):
    """I-28."""
    prompt = prompt.encode("utf-8", "ignore").decode()
    options = [o.encode("utf-8", "ignore").decode() for o in options]
    if not prompt:
        return
    made = WITH_BOS.tokenise(prompt, options)
    for option, ids in zip(options, made.options, strict=True):
        assert list(made.context[1:] + ids) == WITH_BOS.tokens.encode(f"{prompt} {option}")
        assert ids


TASK = Tokenised((1, 2), ((5, 6, 7), (5, 6, 8), (5, 9)), boundary_shift=False)


def test_multi_token_scores_every_token():
    made = scorable(TASK, "multi-token")
    assert made.request.targets == TASK.options
    assert not made.flags


def test_options_that_share_their_first_token_are_undecidable():
    made = scorable(TASK, "first-token")
    assert made.flags == {"undecidable: shared first token"}


def test_first_token_scores_one_token_each():
    made = scorable(Tokenised((1,), ((5, 6), (7,)), boundary_shift=False), "first-token")
    assert made.request.targets == ((5,), (7,))
    assert not made.flags


def test_first_distinct_token_moves_the_shared_tokens_into_the_context():
    made = scorable(Tokenised((1,), ((5, 6, 3), (5, 7)), boundary_shift=False), "first-distinct-token")
    assert made.request.context == (1, 5)
    assert made.request.targets == ((6,), (7,))
    assert not made.flags


@pytest.mark.parametrize("options", [((5, 6), (5, 6, 7)), ((5,), (5, 6))])
def test_an_option_that_ends_in_the_shared_tokens_is_undecidable(options):
    made = scorable(Tokenised((1,), options, boundary_shift=False), "first-distinct-token")
    assert [flag for flag in made.flags if flag.startswith("undecidable")]
    assert all(made.request.targets)


def test_first_distinct_token_can_still_be_shared_by_two_of_three():
    made = scorable(TASK, "first-distinct-token")
    assert "undecidable: shared first token" in made.flags


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=4))
def test_shared_prefix_is_the_longest_one(sequences):
    shared = shared_prefix(sequences)
    n = len(shared)
    assert all(list(s[:n]) == shared for s in sequences)
    assert any(len(s) == n for s in sequences) or len({s[n] for s in sequences}) > 1


def _words(*words, lower=False):
    """A tokenizer of whole words, as small ones are; what it does not know is ``<unk>``."""
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(("<unk>", *words))}, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase() if lower else None
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PromptStyle(view(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")))


@pytest.mark.parametrize(
    ("prompt", "options", "named"),
    [("so a", ("b", "zebra"), "option 'zebra'"), ("so quux", ("a", "b"), "the prompt 'so quux'")],
)
def test_what_the_tokenizer_has_no_piece_for_is_refused_by_name(prompt, options, named):
    with pytest.raises(LmassayError, match=f"no piece for a part of {named}") as refused:
        _words("so", "a", "b").tokenise(prompt, options)
    assert refused.value.code == "tokenizer-not-usable"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_options_with_the_same_tokens_cannot_be_decided(protocol):
    made = _words("so", "a", "b", "paris", "rome", lower=True).tokenise("so a", ("Paris", "paris", "rome"))
    assert "undecidable: options have the same tokens" in scorable(made, protocol).flags
    assert not scorable(PLAIN.tokenise("so", ("a", "b")), protocol).flags


def test_a_byte_level_tokenizer_knows_every_text():
    assert PLAIN.tokens.unknown is None
