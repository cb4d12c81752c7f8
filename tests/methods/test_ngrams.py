"""Counts and vocabulary against scikit-learn's CountVectorizer."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from lmassay.methods import ngrams
from lmassay.methods.ngrams import NGramCounts

word = st.sampled_from(["aa", "bb", "cc", "dd", "Ee", "e", "f1", "ümlaut", "日本"])
texts = st.lists(st.lists(word, max_size=12).map(" ".join), min_size=1, max_size=14)


def _blocks(data, size=3):
    return (data[i : i + size] for i in range(0, len(data), size))


def _plain(data):
    vectorizer = CountVectorizer(ngram_range=(1, 2), min_df=2)
    try:
        counts = vectorizer.fit_transform(data)
    except ValueError:
        return None, None
    return list(vectorizer.get_feature_names_out()), counts.toarray()


@settings(deadline=None)
@given(texts)
def test_without_a_limit_vocabulary_and_counts_are_scikit_learn_s(data):
    names, counts = _plain(data)
    mine = NGramCounts()
    found = mine.fit_transform(_blocks(data))
    assert mine.names == (names or [])
    if names:
        assert (found.toarray() == counts).all()


@settings(deadline=None)
@given(texts, st.integers(1, 12))
def test_a_limit_keeps_the_most_frequent_and_of_equals_the_first_in_the_alphabet(data, limit):
    tf, df = Counter(), Counter()
    for text in data:
        words = re.findall(r"(?u)\b\w\w+\b", text.lower())
        terms = words + [f"{a} {b}" for a, b in itertools.pairwise(words)]
        tf.update(terms)
        df.update(set(terms))
    expected = sorted(sorted((t for t in tf if df[t] >= 2), key=lambda t: (-tf[t], t))[:limit])
    mine = NGramCounts(limit)
    found = mine.fit_transform(_blocks(data))
    assert mine.names == expected
    assert found.sum(0).tolist() == [tf[t] for t in expected]


@settings(deadline=None)
@given(texts, texts, st.integers(1, 12))
def test_new_texts_are_counted_over_the_fitted_vocabulary(data, more, limit):
    mine = NGramCounts(limit)
    fitted = mine.fit_transform(_blocks(data))
    assert (mine.transform(_blocks(data)).toarray() == fitted.toarray()).all()
    if mine.names:
        plain = CountVectorizer(ngram_range=(1, 2), vocabulary=mine.names)
        assert (mine.transform(_blocks(more)).toarray() == plain.transform(more).toarray()).all()


@pytest.mark.parametrize("block", [1, 5, 100])
def test_blocks_and_threads_change_nothing(monkeypatch, block):
    rng = np.random.default_rng(0)
    data = [" ".join(rng.choice(["aa", "bb", "cc", "dd", "ee"], rng.integers(0, 40))) for _ in range(60)]
    whole = NGramCounts(20)
    expected = whole.fit_transform([data]).toarray()
    monkeypatch.setattr(ngrams, "_BLOCK", block)
    parts = NGramCounts(20)
    assert (parts.fit_transform(_blocks(data, 7)).toarray() == expected).all()
    assert parts.names == whole.names


def test_no_text_and_no_word_give_an_empty_vocabulary():
    assert NGramCounts().fit_transform([]).shape == (0, 0)
    assert NGramCounts().fit_transform([["", "a b c", "…"]]).shape == (3, 0)
