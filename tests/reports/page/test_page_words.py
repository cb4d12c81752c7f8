"""Numbers, verdicts and untrusted text in words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.reports.page.words import clipped, digits_for, number, sentence, span, status_words, verdict_kind, visible

ROW = {
    "signal": "real_win", "control": "random_label", "signal_value": 0.31, "control_value": 0.22, "difference": 0.09,
    "low": 0.02, "high": 0.16, "verdict": "survives",
}  # fmt: skip


def test_an_evidence_row_reads_as_a_sentence():
    assert (
        sentence(ROW, {})
        == "Internal win rate .31 against .22 with shuffled labels: difference .09 [.02, .16], survives"
    )


def test_words_of_the_page_stand_before_our_own():
    assert sentence(ROW, {"real_win": "XRay Score"}).startswith("XRay Score .31")


def test_a_control_that_was_not_measured_has_no_numbers():
    row = ROW | dict.fromkeys(("signal_value", "control_value", "difference", "low", "high")) | {
        "verdict": "undecided (phase not run)"
    }  # fmt: skip
    assert sentence(row, {}).endswith("not measured, undecided (phase not run)")
    assert not any(c.isdigit() for c in sentence(row, {}))


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.314, ".31"), (-0.04, "−.04"), (-0.0001, ".00"), (1.0, "1.00"), (12, "12"), (12000, "12,000"), (-3, "−3"),
     (None, "–"), (math.nan, "–"), (math.inf, "–"), (True, "yes"), (10.5, "10.50"), (0.999, "1.00")],
)  # fmt: skip
def test_a_number_is_short_and_undefined_is_a_dash(value, said):
    assert number(value) == said


def test_an_interval_that_is_not_known_is_nothing():
    assert span(None, None) == ""
    assert span(-0.1, 0.2) == "[−.10, .20]"


@pytest.mark.parametrize("verdict", ["survives", "fails", "undecided", "undecided (few_clusters)", "anything"])
def test_a_verdict_has_one_of_three_shapes(verdict):
    first = verdict.split()[0]
    assert verdict_kind(verdict) == (first if first in ("survives", "fails") else "undecided")


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=50))
def test_nothing_invisible_is_left_and_what_is_visible_stays(text):
    shown = visible(text)
    assert all(c.isprintable() or c in "\n\t\u200c\u200d" or c.isspace() for c in shown)
    assert not set(shown) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\x00\x1b\u2028"
    )
    shown.encode("utf-8")
    if text.isprintable():
        assert shown == text


def test_a_long_text_says_how_much_is_left_out():
    assert clipped("a" * 1_000_000, 100) == "a" * 100 + " … (999,900 more characters)"


@pytest.mark.parametrize(("values", "digits"), [((0.3, 0.001), 2), ((0.004, None), 4), ((0.0, None), 2), ((3e-18,), 2)])
def test_small_numbers_get_the_digits_that_tell_them_from_zero(values, digits):
    assert digits_for(*values) == digits


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("undefined: no_threshold", "undefined: validation gives no threshold"),
        ("undefined: undefined on made, other", "undefined: it is so on made, other"),
        ("undefined: one class", "undefined: one class"),
        ("few_clusters", "few groups"),
        ("ok", "ok"),
    ],
)
def test_a_status_is_said_once_and_without_a_code(status, said):
    assert status_words(status) == said
