"""HTML for notebooks: escaped whatever comes, and cut where there is much of it."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.markup import LONGEST, MOST_ROWS, escaped, evidence_html, gathered, html_table, number, survival, verdicts


class Seen(HTMLParser):
    """The tags that a browser would see."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


@given(st.text())
def test_no_text_becomes_a_tag(text):
    assert set(Seen(escaped(text)).tags) <= {"bdi"}


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=LONGEST))
def test_printable_text_stays_what_it_is(text):
    assert unescape(escaped(text)) == text


def test_what_shows_nothing_is_made_visible():
    assert escaped("\x1b[31m\u202e\ud800") == r"\x1b[31m\u202e\ud800"


def test_a_long_text_is_cut_and_says_so():
    assert "(5 more characters)" in escaped("x" * (LONGEST + 5))


def test_of_many_rows_the_first_are_shown_and_the_rest_counted():
    html = html_table("t", ("a", "b"), [(i, "<i>") for i in range(MOST_ROWS + 3)])
    assert Seen(html).tags.count("tr") == 1 + MOST_ROWS
    assert "i" not in Seen(html).tags
    assert "3 more rows" in html


def test_a_verdict_has_a_sign_beside_its_colour():
    row = dict.fromkeys(("signal_value", "control_value", "difference", "low", "high", "p_holm"))
    rows = [
        row | {"signal": "s", "control": "c", "n": 3, "verdict": v}
        for v in ("survives", "fails", "undecided (few_clusters)")
    ]
    text = "".join(Seen(evidence_html(rows)).text)
    assert "✓ survives" in text
    assert "✗ fails" in text
    assert "○ undecided (few_clusters)" in text


def test_numbers():
    assert [number(v) for v in (None, 3, 1234, 0.5, -0.0001)] == ["–", "3", "1,234", "0.500", "0.000"]


def test_verdicts_are_counted_for_a_line():
    assert verdicts(["survives", "undecided (few_clusters)", "fails", "undecided"]) == "1 survive, 1 fail, 2 undecided"


@pytest.mark.parametrize(
    ("survives", "said"), [(True, "yes"), (False, "no"), (None, "undecided (nothing could be measured)")]
)
def test_a_run_without_any_figure_is_undecided_and_does_not_fail(survives, said):
    assert survival(survives) == said


def test_a_notice_stands_once_with_its_count_and_in_its_order():
    assert gathered(["b", "a", "b", "b"]) == ["b (3 times)", "a"]


def test_what_is_not_held_against_several_controls_is_one_line():
    one = [f"{s} is not held against {c}: one class" for s in ("x.auroc", "y.auroc") for c in ("length", "random")]
    other = "y.auroc is not held against agreement: no_threshold"
    assert gathered(["first", *one, other, "last"]) == [
        "first",
        "x.auroc, y.auroc are not held against length, random: one class",
        other,
        "last",
    ]


@given(st.lists(st.tuples(st.sampled_from("stu"), st.sampled_from("abc"), st.sampled_from("xy")), unique=True))
def test_no_pair_is_lost_or_made_when_notices_are_gathered(triples):
    said = set()
    for line in gathered(f"{s} is not held against {c}: {why}" for s, c, why in triples):
        signals, controls, why = re.fullmatch(r"(.+) (?:is|are) not held against (.+): (.+)", line).groups()
        said |= {(s, c, why) for s in signals.split(", ") for c in controls.split(", ")}
    assert said == set(triples)
