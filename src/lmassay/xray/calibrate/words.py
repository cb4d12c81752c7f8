"""A word-level tokenizer made of the battery's own text: numbers, words and marks are one token each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from lmassay.xray.batteries.paraphrases import paraphrase_groups
from lmassay.xray.calibrate.skills import BOTH, OTHER_QUESTIONS, chosen_templates, n_usable
from lmassay.xray.options import NEUTRAL_PROMPT
from lmassay.xray.semantics_break import TAILS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PATTERN = r"\d+|[A-Za-z]+|[^\w\s]"
UNKNOWN = "<unk>"
#: Every number up to here is a word of its own: operands, sums, and operands shifted by the broken prompt.
LARGEST_NUMBER = 60


@cache
def vocabulary() -> dict[str, int]:
    """Word -> id, over every prompt the templates can pose and every text the controls put in their place."""
    words = {UNKNOWN: 0}
    for text in _texts():
        for word in re.findall(PATTERN, text):
            words.setdefault(word, len(words))
    return words


def _texts() -> Iterator[str]:
    yield " ".join(map(str, range(LARGEST_NUMBER + 1)))
    yield NEUTRAL_PROMPT
    for tail in TAILS:
        yield f"{tail} {tail[0].upper()}{tail[1:]}"
    yield " ".join((*OTHER_QUESTIONS, *OTHER_QUESTIONS.values()))
    # Names come from menus by seed: all of them, whichever seed is used.
    yield " ".join("abcdefghijklmnopqrstuvwxyz")
    for template in chosen_templates(BOTH):
        for index in range(n_usable(template)):
            for question in template.pose(index, 0):
                yield f"{question.prompt} {question.answer}"
    for group in paraphrase_groups():
        yield " ".join((*group.wordings, *group.options))


@cache
def word_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer over `vocabulary`; it adds no special token."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(vocabulary(), unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN)


def encoded(text: str) -> list[int]:
    """Word ids of a text, as the tokenizer gives them."""
    words = vocabulary()
    return [words.get(word, 0) for word in re.findall(PATTERN, text)]
