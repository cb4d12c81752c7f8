"""Control labels: wrong, matched in length, drawn by hash."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import task

from lmassay.xray.relabel import MATCHED_TOKEN, RANDOM_LABEL, labels_of

lengths = st.lists(st.integers(1, 4), min_size=2, max_size=6)


def _task(n_tokens, answer=0, name="t"):
    return task(np.zeros((len(n_tokens), 3)), n_tokens=n_tokens, answer=answer, name=name)


@given(lengths, st.data(), st.integers(0, 5))
def test_both_labels_are_wrong_options_and_the_matched_one_is_of_nearest_length(n_tokens, data, seed):
    answer = data.draw(st.integers(0, len(n_tokens) - 1))
    found = labels_of(_task(n_tokens, answer), seed)
    others = [n for i, n in enumerate(n_tokens) if i != answer]
    assert found.real == answer
    assert found.random_label != answer
    assert found.matched_token != answer
    assert abs(found.length_difference) == min(abs(n - n_tokens[answer]) for n in others)
    assert found.length_difference == n_tokens[found.matched_token] - n_tokens[answer]
    assert found.exact == (n_tokens[answer] in others)


@given(lengths, st.data())
def test_order_of_options_changes_no_label(n_tokens, data):
    first = _task(n_tokens)
    order = data.draw(st.permutations(range(len(n_tokens))))
    moved = replace(
        first,
        options=tuple(first.options[i] for i in order),
        n_tokens=first.n_tokens[list(order)],
        answer=order.index(0),
    )
    one, other = labels_of(first, 7), labels_of(moved, 7)
    assert first.options[one.random_label] == moved.options[other.random_label]
    assert first.options[one.matched_token] == moved.options[other.matched_token]
    assert one.length_difference == other.length_difference


def test_the_label_is_the_smallest_sha256_of_seed_task_condition_and_text():
    one = _task([1, 1, 1, 1], name="x")
    found = labels_of(one, 3)
    for condition, label in ((RANDOM_LABEL, found.random_label), (MATCHED_TOKEN, found.matched_token)):
        hashes = {
            i: hashlib.sha256(f"3\x1fx\x1f{condition}\x1f{text}".encode()).hexdigest()
            for i, text in enumerate(one.options)
            if i != one.answer
        }
        assert label == min(hashes, key=hashes.__getitem__)


def test_the_two_conditions_share_no_draw_and_each_option_is_drawn_alike():
    drawn = [labels_of(_task([1, 1, 1, 1], name=f"task {i}"), 0) for i in range(900)]
    same = np.mean([d.random_label == d.matched_token for d in drawn])
    assert same == pytest.approx(1 / 3, abs=0.06)
    for label in (1, 2, 3):
        assert np.mean([d.random_label == label for d in drawn]) == pytest.approx(1 / 3, abs=0.06)


def test_seed_and_task_change_the_draw():
    by_seed = {labels_of(_task([1] * 6), seed).random_label for seed in range(30)}
    by_task = {labels_of(_task([1] * 6, name=f"t{i}"), 0).random_label for i in range(30)}
    assert by_seed == by_task == {1, 2, 3, 4, 5}
