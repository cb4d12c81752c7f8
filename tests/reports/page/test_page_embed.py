"""Data in the page comes back as it went in, and cannot be taken for markup."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_page import unpacked

from lmassay.reports.page.embed import columns_of, packed


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, (3, 4), elements=st.floats(-1e6, 1e6) | st.just(np.nan)))
def test_floats_come_back_to_one_part_in_thirty_thousand_of_the_largest(values):
    _, found = unpacked(packed({}, {"a": values}))
    assert (np.isnan(found["a"]) == np.isnan(values)).all()
    known = ~np.isnan(values)
    largest = np.abs(values[known]).max(initial=0)
    assert np.allclose(found["a"][known], values[known], rtol=0, atol=largest / 32767 + 1e-300)


def test_bytes_come_back_exactly_and_255_is_undefined():
    values = np.array([[0, 1, 255]], np.uint8)
    _, found = unpacked(packed({}, {"odd": values, "b": np.array([1.0])}))
    assert found["odd"][0, :2].tolist() == [0, 1]
    assert np.isnan(found["odd"][0, 2])
    assert found["b"].tolist() == [1.0]


@given(st.text(max_size=200))
def test_packed_data_holds_no_character_of_markup(text):
    letters = packed({"text": text.encode("utf-8", "replace").decode()})
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", letters)
    assert unpacked(letters)[0]["text"] == text.encode("utf-8", "replace").decode()


def test_columns_hold_no_nan_and_lists_are_texts():
    frame = pl.DataFrame({"a": [1.5, float("nan"), None], "b": ["x", None, "y"], "c": [["p", "q"], [], None]})
    assert columns_of(frame) == {
        "names": ["a", "b", "c"], "decimal": [True, False, False], "n": 3, "columns": [[1.5, None, None], ["x", None, "y"], ["p, q", "", None]],
    }  # fmt: skip
