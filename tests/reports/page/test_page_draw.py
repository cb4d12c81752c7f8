"""Drawings take the page's colours, keep their ids apart, and hold nothing active."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import altair as alt
import pytest
from hostile import HOSTILE

from lmassay.reports.page.draw import FAINT, INK, drawn, safe_svg


def _chart(texts):
    rows = [{"x": i, "y": float(i), "name": text} for i, text in enumerate(texts)]
    base = alt.Chart(alt.Data(values=rows)).encode(x="x:Q", y="y:Q", color="name:N", tooltip=["name:N"])
    return alt.layer(base.mark_line(), base.mark_point(filled=True)).properties(title=texts[0])


def test_text_and_axes_have_the_page_s_colour():
    svg = drawn(_chart(["a"]), "p")
    assert "currentColor" in svg
    assert INK not in svg
    assert FAINT not in svg
    assert 'fill="white"' not in svg


def test_ids_begin_with_the_figure_s_own_and_are_referred_to_by_it():
    raw = '<svg xmlns="http://www.w3.org/2000/svg"><defs><clipPath id="c0"/></defs><g clip-path="url(#c0)"/></svg>'
    svg = safe_svg(raw, "r0-won")
    assert 'id="r0-won-c0"' in svg
    assert "url(#r0-won-c0)" in svg


def test_hostile_text_is_text_and_nothing_else():
    svg = drawn(_chart(list(HOSTILE)), "p")
    root = ElementTree.fromstring(svg)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "g", "path", "text", "line", "rect", "defs", "clipPath", "tspan", "title", "circle"}
    assert not any(name.rpartition("}")[2].startswith("on") for e in root.iter() for name in e.attrib)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08]", svg)


def test_active_elements_and_attributes_are_dropped():
    raw = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><script>1</script>'
        '<image href="http://x/y.png"/><a href="javascript:1"><text>t</text></a><g onclick="1" style="x:url(y)">'
        '<use xlink:href="http://x"/><foreignObject/></g></svg>'
    )
    svg = safe_svg(raw, "p")
    for active in ("script", "image", "javascript", "onclick", "style", "http://x", "foreignObject"):
        assert active not in svg


def test_a_value_that_is_no_number_is_left_out_of_the_drawing():
    chart = alt.Chart(alt.Data(values=[{"x": 1.0, "y": float("nan")}, {"x": 2.0, "y": 1.0}])).mark_point()
    assert "<svg" in drawn(chart.encode(x="x:Q", y="y:Q"), "p")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_titles_are_text_in_the_labels_that_vega_makes_of_them(text):
    rows = alt.Data(values=[{"x": 1, "y": 2}])
    chart = (
        alt.Chart(rows)
        .mark_point()
        .encode(x=alt.X("x:Q", title=text), y=alt.Y("y:Q", title=text))
        .properties(title=text)
    )
    root = ElementTree.fromstring(drawn(chart, "p"))
    shown = "".join(root.itertext()) + "".join(value for e in root.iter() for value in e.attrib.values())
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u2028\x00-\x08\x1b]", shown)
