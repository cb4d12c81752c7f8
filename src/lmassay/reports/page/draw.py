"""An Altair chart as SVG that fits the page: text in the page's colour, ids of its own, and nothing active in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from lmassay.reports.page.words import visible

#: Stand for the page's text colour, so that one drawing serves light, dark and paper.
INK, FAINT = "#010203", "#010204"
#: Elements a drawing may hold; anything else is dropped, whatever made it.
_ELEMENTS = frozenset({
    "svg", "g", "path", "text", "tspan", "rect", "line", "circle", "defs", "clipPath", "title", "linearGradient",
    "stop", "use", "symbol",
})  # fmt: skip
_SVG = "http://www.w3.org/2000/svg"
_REFERENCE = re.compile(r"url\(['\"]?#([^)'\"]+)['\"]?\)")
#: Characters that no XML may hold.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_FONT = "sans-serif"
#: A drawing of over so many pixels is scrolled in a narrow window, and never made smaller than this share of its width.
WIDE, LEAST = 380, 0.88
#: Least widths that the sheet knows, in pixels: every so many up to the most.
STEP, MOST = 80, 1600
#: Fonts differ between the machine that lays a drawing out and the one that shows it: room for longer texts.
PADDING = {"left": 24, "right": 24, "top": 6, "bottom": 6}


def drawn(chart: Any, prefix: str) -> str:
    """The chart as an SVG element.

    Parameters
    ----------
    chart : altair chart
    prefix : str
        Put before every id in the drawing, since ids of several drawings share one page.
    """
    import vl_convert

    spec = _clean(chart.to_dict())
    spec.setdefault("padding", PADDING)
    spec["config"] = _merged(_config(), spec.get("config") or {})
    return safe_svg(vl_convert.vegalite_to_svg(json.dumps(spec)), prefix)


def _config() -> dict[str, Any]:
    axis = {
        "labelColor": INK, "titleColor": INK, "tickColor": FAINT, "domainColor": FAINT, "gridColor": FAINT,
        "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "labelFont": _FONT, "titleFont": _FONT,
    }  # fmt: skip
    return {
        "background": "transparent",
        "font": _FONT,
        "view": {"stroke": None},
        "axis": axis,
        "legend": {
            "labelColor": INK, "titleColor": INK, "labelFontSize": 11, "labelFont": _FONT, "titleFont": _FONT,
            "labelLimit": 260,
        },
        "header": {"labelColor": INK, "titleColor": INK, "labelFont": _FONT, "titleFont": _FONT},
        "title": {"color": INK, "font": _FONT, "fontSize": 13, "fontWeight": 600, "anchor": "start"},
        "text": {"color": INK, "font": _FONT},
        "rule": {"color": INK},
        "tick": {"color": INK},
    }  # fmt: skip


def _merged(under: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` where it says something; Altair's own defaults of a view's size are kept."""
    found = dict(under)
    for name, value in over.items():
        mine = found.get(name)
        found[name] = _merged(mine, value) if isinstance(mine, dict) and isinstance(value, Mapping) else value
    return found


def _clean(value: Any) -> Any:
    """Characters an SVG cannot hold, or that turn the order of text, made visible in every string of a chart."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(name): _clean(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(inner) for inner in value]
    # JSON has no word for them; to a drawing they are values that are not there.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def safe_svg(text: str, prefix: str) -> str:
    """The drawing with the page's colours, ids of its own, and only elements and attributes that draw."""
    # Vega unescapes what it puts into labels, so that a character made visible may come back as itself.
    root = ElementTree.fromstring(_ILLEGAL.sub(lambda found: visible(found[0]), text))
    _strip(root)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text = visible(element.text) if element.text else None
        found = {}
        for name, value in element.attrib.items():
            plain = name.rpartition("}")[2]
            if plain.lower().startswith("on") or plain in ("style", "xmlns", "src"):
                continue
            if plain == "href" and not value.startswith("#"):
                continue
            found[plain] = _attribute(plain, visible(value), prefix)
        for paint in ("fill", "stroke"):
            if found.get(paint) == FAINT:
                found[paint], found[f"{paint}-opacity"] = "currentColor", ".18"
        element.attrib.clear()
        element.attrib.update(found)
    width = float(root.get("width", "0"))
    wide = f" least{min(MOST, int(LEAST * width // STEP) * STEP)}" if width > WIDE else ""
    root.attrib.update({"xmlns": _SVG, "class": f"marks{wide}", "focusable": "false"})
    return ElementTree.tostring(root, encoding="unicode")


def _strip(element: ElementTree.Element) -> None:
    for child in list(element):
        name = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else ""
        whole = name == "rect" and child.get("fill") == "white" and child.get("width") == element.get("width")
        if name not in _ELEMENTS or whole:
            element.remove(child)
        else:
            _strip(child)


def _attribute(name: str, value: str, prefix: str) -> str:
    if value.lower() in (INK, "black", "#000", "#000000"):
        return "currentColor"
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href":
        return f"#{prefix}-{value[1:]}"
    return _REFERENCE.sub(lambda found: f"url(#{prefix}-{found[1]})", value)
