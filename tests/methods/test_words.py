"""Words in arrays against Python's own regular expressions."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.methods.tokens import UNKNOWN, Dictionary

PATTERN = re.compile(r"(?u)\b\w\w+\b")
anything = st.text(st.characters(exclude_categories=()) | st.sampled_from("aB_9 \n.İς²ा\u200d\u202e\ud800"))


@settings(deadline=None)
@given(st.lists(anything, max_size=6))
def test_words_are_those_of_scikit_learn_s_pattern_whatever_the_text(texts):
    dictionary = Dictionary(grows=True)
    coded = dictionary.code(texts)
    expected = [PATTERN.findall(text.lower()) for text in texts]
    assert [dictionary.words[c] for c in coded.codes] == [w for words in expected for w in words]
    assert coded.sizes.tolist() == [len(words) for words in expected]


@settings(deadline=None)
@given(st.lists(st.text("abc", min_size=2, max_size=3), max_size=30), st.lists(st.text("abc ", max_size=9), max_size=5))
def test_a_fixed_dictionary_knows_its_words_and_no_others(known, texts):
    words = list(dict.fromkeys(known))
    coded = Dictionary(words, grows=False).code(texts)
    expected = [words.index(w) if w in words else UNKNOWN for t in texts for w in PATTERN.findall(t)]
    assert coded.codes.tolist() == expected


def test_words_that_share_a_slot_are_told_apart():
    """More words than slots answer at once."""
    words = [f"w{i:x}" for i in range(30_000)]
    dictionary = Dictionary(grows=True)
    first = dictionary.code([" ".join(words)]).codes
    assert len(set(first.tolist())) == len(words)
    assert dictionary.code([" ".join(reversed(words))]).codes.tolist() == first[::-1].tolist()
