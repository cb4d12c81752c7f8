"""Figures of patterns over runs: the trees, and PSI by family against the number of parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmassay.errors import LmassayError, nearest
from lmassay.reports.drawing import altair
from lmassay.storage.atomic import write_bytes

SUFFIXES = (".svg", ".png")
#: Colours told apart by people who do not see red and green as two.
POSITIVE, NEGATIVE, NEUTRAL = "#0072b2", "#d55e00", "#666666"
TREE_TITLES = {"all": "Tree on all features", "without_wins": "Tree without anything computed from wins"}
PIXELS_PER_POINT = 2.0


#: Levels of a tree; a line between two of them leaves room for the texts at its ends.
ROOM = 0.22


def check_suffix(path: Path) -> None:
    """Refuse a figure file of an unknown kind, or in a folder that is not there, before anything is computed.

    Raises
    ------
    LmassayError
        ``bad-request``, ``out-folder-unwritable``.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise LmassayError(
            "bad-request", f"a figure cannot be written as {path.name!r}", nearest(path.suffix.lower(), SUFFIXES)
        )
    if not path.parent.is_dir():
        raise LmassayError("out-folder-unwritable", f"there is no folder {path.parent}", "make it, or name another")


def write_figure(comparison: dict[str, Any], path: Path) -> None:
    """Draw what a comparison found; neither a browser nor a network is needed.

    Raises
    ------
    LmassayError
        ``bad-request`` for another suffix, or where neither a tree nor a parameter count is known.
    """
    check_suffix(path)
    import vl_convert

    alt = altair()

    trees = comparison["patterns"]["trees"]
    drawn = [tree_chart(trees[name]["nodes"], title) for name, title in TREE_TITLES.items() if trees[name]["nodes"]]
    if (points := psi_points(comparison)) is not None:
        drawn.append(psi_chart(points))
    if not drawn:
        raise LmassayError(
            "bad-request",
            "there is nothing to draw: no tree, and no run whose parameter count is known",
            "compare runs of models, some of whose tasks have PSI > 0",
        )
    chart = alt.vconcat(*drawn).resolve_scale(color="independent", x="independent", y="independent")
    spec = chart.configure_view(stroke=None).to_json()
    if path.suffix.lower() == ".svg":
        write_bytes(path, vl_convert.vegalite_to_svg(spec).encode())
    else:
        write_bytes(path, vl_convert.vegalite_to_png(spec, scale=PIXELS_PER_POINT))


def tree_chart(nodes: list[dict[str, Any]], title: str) -> Any:
    """A tree with its root on top: splits, how many rows come by, and which side they are on."""
    alt = altair()
    places = _places(nodes)
    boxes, edges = [], []
    for i, node in enumerate(nodes):
        x, y = places[i]
        split = node["answer"] if node["feature"] is None else f"{node['feature']} ≤ {node['threshold']:.3g}"
        boxes.append({
            "x": x, "y": -y, "split": split, "rows": f"{node['n_positive']} of {node['n']} have PSI > 0",
            "kind": node["answer"] if node["feature"] is None else "split",
        })  # fmt: skip
        for side, word in (("left", "yes"), ("right", "no")):
            if node[side] is not None:
                there, below = places[node[side]]
                edges.append({"x": x, "y": -y - ROOM, "x2": there, "y2": ROOM - below, "mx": (x + there) / 2,
                              "my": -(y + below) / 2, "word": word})  # fmt: skip
    plain = {"axis": None, "scale": alt.Scale(zero=False, nice=False, padding=60)}
    at = {"x": alt.X("x:Q", **plain), "y": alt.Y("y:Q", **plain)}
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=["PSI > 0", "PSI <= 0", "split"], range=[POSITIVE, NEGATIVE, NEUTRAL]),
        legend=None,
    )
    base = alt.Chart(alt.Data(values=boxes))
    layers = []
    if edges:
        lines = alt.Chart(alt.Data(values=edges))
        layers.append(lines.mark_rule(color="#bbbbbb").encode(**at, x2="x2:Q", y2="y2:Q"))
        middle = {"x": alt.X("mx:Q", **plain), "y": alt.Y("my:Q", **plain)}
        layers.append(lines.mark_text(color="#888888", fontSize=10).encode(**middle, text="word:N"))
    layers.append(base.mark_text(dy=-7, fontSize=11, fontWeight="bold").encode(**at, text="split:N", color=colour))
    layers.append(base.mark_text(dy=7, fontSize=10, color="#444444").encode(**at, text="rows:N"))
    width = max(400, 150 * sum(node["feature"] is None for node in nodes))
    height = 80 * (1 + int(max(y for _, y in places)))
    return alt.layer(*layers).properties(title=title, width=width, height=height)


def _places(nodes: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """(x, depth) of each node: leaves in a row from left to right, a split halfway between its two sides."""
    places: list[tuple[float, float]] = [(0.0, 0.0)] * len(nodes)
    leaves = 0

    def place(i: int, depth: int) -> float:
        nonlocal leaves
        node = nodes[i]
        if node["feature"] is None:
            x = float(leaves)
            leaves += 1
        else:
            x = (place(node["left"], depth + 1) + place(node["right"], depth + 1)) / 2
        places[i] = (x, float(depth))
        return x

    place(0, 0)
    return places


def psi_points(comparison: dict[str, Any]) -> list[dict[str, Any]] | None:
    """A row per run and family with a defined PSI and a known parameter count; None where there is none."""
    rows = [
        {
            "model": run["model"], "battery": run["battery"], "family": family, "parameters": run["n_parameters"],
            "psi": estimates[i]["value"], "low": estimates[i]["low"], "high": estimates[i]["high"],
        }
        for i, run in enumerate(comparison["runs"])
        for family, estimates in comparison["families"].items()
        if run["n_parameters"] and estimates[i] is not None and estimates[i]["value"] is not None
    ]  # fmt: skip
    return rows or None


def psi_chart(points: list[dict[str, Any]]) -> Any:
    """PSI against the number of parameters, a panel per family, 95 % intervals, a colour per battery."""
    alt = altair()
    x = alt.X("parameters:Q", scale=alt.Scale(type="log"), title="parameters", axis=alt.Axis(format="~s", tickCount=4))
    colour = alt.Color("battery:N", title=None, scale=alt.Scale(range=[POSITIVE, NEGATIVE, "#009e73", "#cc79a7"]))
    panels = []
    for family in dict.fromkeys(p["family"] for p in points):
        base = alt.Chart(alt.Data(values=[p for p in points if p["family"] == family]))
        known = base.transform_filter("isValid(datum.low)")
        panels.append(
            alt.layer(
                alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color="#bbbbbb").encode(y=alt.Y("zero:Q")),
                base.mark_line(opacity=0.4).encode(x=x, y=alt.Y("psi:Q", title="PSI"), color=colour),
                known.mark_rule(opacity=0.6).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
                base.mark_point(filled=True, size=40).encode(x=x, y=alt.Y("psi:Q", title="PSI"), color=colour),
            ).properties(title=family, width=150, height=150)
        )
    return alt.hconcat(*panels, title="PSI by family, 95 % intervals over templates").resolve_scale(
        y="shared", color="shared"
    )
