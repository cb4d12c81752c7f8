"""Balance and splits: what must hold whatever the order of candidates."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lmassay.cot.build.balance import drawn, equal_classes, pairs_of_like_length, splits_of
from lmassay.cot.build.sentences import joined, sentences

ITEMS = st.lists(
    st.tuples(st.sampled_from("qrs"), st.sampled_from(["yes", "no"]), st.integers(0, 3000)), max_size=40, unique=True
)


def _name(item):
    return " ".join(map(str, item))


def _question(item):
    return item[0]


def _label(item):
    return item[1]


def _length(item):
    return item[2]


@given(ITEMS, st.integers(0, 1), st.randoms())
def test_classes_are_equal_in_every_stratum_and_order_chooses_nothing(items, apart, random):
    kept = equal_classes(items, 0, label=_label, name=_name, within=_question, most_apart=apart)
    for question in "qrs":
        of = Counter(_label(x) for x in kept if _question(x) == question)
        before = Counter(_label(x) for x in items if _question(x) == question)
        assert abs(of["yes"] - of["no"]) <= apart
        assert min(of["yes"], of["no"]) == min(before["yes"], before["no"]) or len({_label(x) for x in items}) < 2
    shuffled = random.sample(items, len(items))
    assert set(equal_classes(shuffled, 0, label=_label, name=_name, within=_question, most_apart=apart)) == set(kept)


@given(ITEMS)
def test_pairs_have_like_lengths(items):
    kept = pairs_of_like_length(items, 0, label=_label, name=_name, length=_length, bin=500)
    bins = Counter((_length(x) // 500, _label(x)) for x in kept)
    assert all(bins[b, "yes"] == bins[b, "no"] for b, _ in bins)


@given(ITEMS, st.integers(0, 50))
def test_so_many_are_drawn_in_their_order(items, n):
    kept = drawn(items, n, 0, "draw", name=_name)
    assert len(kept) == min(n, len(items))
    assert kept == [x for x in items if x in kept]


@given(st.sets(st.text(max_size=5), max_size=40), st.integers(0, 3))
def test_every_question_has_one_split_and_every_split_a_question_if_there_are_enough(questions, seed):
    shares = (("train", 0.65), ("validation", 0.15), ("test", 0.2))
    found = splits_of(sorted(questions), shares, seed)
    assert found == splits_of(sorted(questions, reverse=True), shares, seed)
    assert set(found) == questions
    if len(questions) >= 3:
        assert set(found.values()) == {"train", "validation", "test"}
    if len(questions) == 40:
        assert Counter(found.values()) == {"train": 26, "validation": 6, "test": 8}


def test_sentences_end_at_punctuation_before_white_space_and_at_blank_lines():
    text = " One. Two!  Three?\nfour\nfive\n\nsix 7.5 e.g.x\n \n\n Seven."
    assert sentences(text) == ["One.", "Two!", "Three?", "four\nfive", "six 7.5 e.g.x", "Seven."]
    assert joined(sentences(text)[:2]) == "One. Two!"
    assert sentences("  ") == []


@given(st.text(alphabet="ab.!? \n", max_size=60))
def test_no_word_is_lost_between_sentences(text):
    assert " ".join(sentences(text)).split() == text.split()
