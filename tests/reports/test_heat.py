"""Heat maps read without colour: each cell's sign says its value, and no line is too long."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.reports.heat import HeatMap, diverging_sign, drawn, legend, print_maps, share_sign
from lmassay.reports.style import ascii_only, console


@pytest.mark.parametrize(
    ("value", "sign"),
    [(0.0, "."), (1.0, "#"), (0.001, "0"), (0.04, "0"), (0.06, "1"), (0.5, "5"), (0.999, "9"), (np.nan, " ")],
)
def test_a_share_is_its_tenths_and_only_none_and_all_have_signs_of_their_own(value, sign):
    assert share_sign(value) == sign


@pytest.mark.parametrize(
    ("value", "sign"), [(0.0, " ."), (2.0, "+9"), (-2.0, "-9"), (-1.0, "-5"), (0.05, " ."), (0.2, "+1"), (np.nan, "  ")]
)
def test_a_change_is_its_sign_and_its_ninths_of_the_largest(value, sign):
    assert diverging_sign(value, 2.0) == sign


@given(st.floats(-5, 5), st.floats(0.1, 5))
def test_a_changes_sign_is_that_of_the_value(value, top):
    text = diverging_sign(value, top)
    assert len(text) == 2
    assert text[0] in (" " if text[1] == "." else "+" if value > 0 else "-")


def test_every_cell_stands_under_its_column_in_its_row():
    heat = HeatMap("wins", ["a", "b"], ["0", "1", "2"], np.array([[0, 0.5, 1], [np.nan, 0.2, 0.31]]))
    lines = [line.plain for line in drawn(heat, 80)]
    assert lines == ["wins", "  0 2", "a .5#", "b  23"]


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 90),
    st.integers(1, 130),
    st.sampled_from(["share", "diverging"]),
    st.integers(20, 120),
    st.text(max_size=60),
)
def test_no_line_is_longer_than_the_console(n_rows, n_columns, scale, width, name):
    values = np.linspace(-1 if scale == "diverging" else 0, 1, n_rows * n_columns).reshape(n_rows, n_columns)
    heat = HeatMap(name, [f"{name} {i}" for i in range(n_rows)], [str(i) for i in range(n_columns)], values, scale)
    lines = drawn(heat, width)
    assert max(len(line) for line in lines) <= width
    assert len(lines) <= 2 + 40


def test_columns_that_do_not_fit_stand_together_as_their_mean_and_the_title_says_so():
    values = np.tile([0.0, 1.0], 50)[None]
    lines = [line.plain for line in drawn(HeatMap("m", ["row"], [str(i) for i in range(100)], values), 60)]
    assert "2 columns a cell" in lines[0]
    assert lines[2] == "row " + "5" * 50


def test_what_was_not_measured_takes_no_part_in_a_mean():
    values = np.array([[np.nan, 1.0] * 50])
    assert drawn(HeatMap("m", ["r"], [""] * 100, values), 60)[2].plain == "r " + "#" * 50


def test_maps_stand_side_by_side_only_where_they_fit(capsys):
    heat = HeatMap("left", ["row"], list("abcdefghij"), np.full((1, 10), 0.5))
    print_maps(console(), [heat, heat])
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["left", "left"]
    assert out[2].split() == ["row", "5" * 10, "row", "5" * 10]
    assert "0-9 tenths" in out[3]


def test_a_map_of_nothing_is_not_drawn(capsys):
    print_maps(console(), [HeatMap("none", [], [], np.zeros((0, 0)))])
    assert capsys.readouterr().out == ""


def test_untrusted_names_are_shown_and_not_obeyed(capsys):
    heat = HeatMap("a\x1b[31m\u202e", ["\x07row [bold]é"], ["x"], np.array([[0.2]]))
    with ascii_only():
        print_maps(console(), [heat])
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert r"a\x1b[31m\u202e" in out


def test_a_legend_says_what_the_largest_change_is():
    assert "+9 and -9 stand for 0.25 nats" in legend(
        HeatMap("", ["r"], ["c"], np.array([[-0.25]]), "diverging", "nats")
    )
