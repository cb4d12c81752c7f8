"""Sections on the later phases: patching, ablation, geometry; each from what ``scores.json`` says in detail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from lmassay.reports.page.figures import curves
from lmassay.reports.page.parts import Chart, Grid, Hover, Section, Table
from lmassay.reports.page.words import counted, digits_for, figure, number, span
from lmassay.reports.page.xray_wins import CONDITIONS
from lmassay.xray.relabel import SUFFIX
from lmassay.xray.scored import REAL

ALL = "all"
#: Curves by depth: title -> figures and their names.
GEOMETRY = {
    "geometry-probe": ("Probe, logic against compute", "accuracy",
                       {"probe": "probe", "probe_shuffled": "shuffled labels"}),
    "geometry-consistency": ("Cosine of the wordings of a question, less the mean of the others", "cosine",
                             {"consistency_centred": "wordings of a question",
                              "consistency_random_centred": "random groups",
                              "consistency_family_centred": "the same family"}),
    "geometry-clustering": ("Cosine within families above between them", "difference of cosines",
                            {"clustering_gap": "families", "clustering_gap_shuffled": "shuffled families"}),
}  # fmt: skip


def patching_section(document: Mapping[str, Any], depths: Sequence[str]) -> Section | None:
    """Source × target: how often a state carried forward makes the answer win, real beside controls."""
    details = document.get("phases", {}).get("patching")
    if details is None:
        return None
    intro = (
        "Tasks won inside and lost at the end: the state of a depth they win takes the place of a later block's "
        "output. A control does the same with a wrong option in the answer's place."
    )
    cells = details["cells"]
    if not cells:
        return Section("patching", "Patching", f"{intro} No task was known and then lost with a block left to patch.")
    sources, targets = sorted({c["source_index"] for c in cells}), sorted({c["target_block"] for c in cells})
    rows = {s: i for i, s in enumerate(sources)}
    columns = {t: i for i, t in enumerate(targets)}
    flips, deltas, counts = {}, {}, np.zeros((len(sources), len(targets)))
    for condition, title in CONDITIONS.items():
        mine = [c for c in cells if c["condition"] == condition]
        if not mine:
            continue
        flips[title], deltas[title] = (np.full((len(sources), len(targets)), np.nan) for _ in range(2))
        for c in mine:
            at = rows[c["source_index"]], columns[c["target_block"]]
            flips[title][at], deltas[title][at] = c["flips"] / c["n"], c["mean_delta"]
            counts[at] = c["n"] if condition == REAL else counts[at]
    named = [depths[s] if s < len(depths) else str(s) for s in sources]
    # How many tasks a cell rests on is what tells a share of 1 of 1 from one of 20 of 20.
    hover = Hover([""] * len(sources), [["tasks, right answer"]] * len(sources), counts, "tasks")
    shared: dict[str, Any] = {
        "row_labels": named, "column_labels": [f"block.{t}" for t in targets], "row_name": "state of",
        "column_name": "put in place of", "hover": hover,
    }  # fmt: skip
    tasks = pl.DataFrame(details["tasks"], infer_schema_length=None).rename(
        {"task_id": "task", "n_cells": "patches", "flips": "made to win", "best_delta": "best gain, nats"}
    )
    tasks = tasks.with_columns(pl.col("condition").replace(dict(CONDITIONS)))
    return Section(
        "patching", "Patching", intro,
        (
            Grid("patching-flips", "Share of tasks that the patch makes win", _patching_reading(document),
                 layers=flips, scale="share", value_name="share made to win", **shared),
            Grid("patching-margin", "Margin gained at the end", _best_cell(cells, document), layers=deltas,
                 scale="diverging", value_name="nats", **shared),
            Table("patching-tasks", "Patched tasks",
                  f"{counted(tasks.height, 'row')}, one for each task and condition.", tasks, whole="patches.parquet"),
        ),
    )  # fmt: skip


def _patching_reading(document: Mapping[str, Any]) -> str:
    scores = document["scores"]
    real = scores["patching_mean_flip"]
    if real["value"] is None:
        return f"Of the right answer's tasks none could be patched: {real['status']}."
    held = [f"{figure(scores[f'patching_mean_flip{s}'])} for the {CONDITIONS[c]}" for c, s in SUFFIX.items() if s]
    said = f"A patch makes the answer win in {figure(real)} of its tries (n = {real['n']:,} tasks)"
    return f"{said}, against {', '.join(held)}."


def _best_cell(cells: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> str:
    best = document["scores"]["patching_best_delta"]
    if best["value"] is None:
        return f"Margins gained are undefined: {best['status']}."
    digits = digits_for(best["value"], best["low"], best["high"])
    real = [c["mean_delta"] for c in cells if c["condition"] == REAL]
    gained = sum(d > 0 for d in real)
    return (
        f"A task's best patch gains {figure(best, digits)} nats on average (n = {best['n']:,}); over its tasks the "
        f"mean margin rises in {gained:,} of {len(real):,} cells."
    )


def ablation_section(document: Mapping[str, Any]) -> Section | None:
    """Components × blocks: what the answer loses, and a wrong option in its place."""
    details = document.get("phases", {}).get("ablation")
    if details is None:
        return None
    intro = "What changes at the end without a component's output."
    found = details.get("components") or []
    if not found:
        return Section("ablation", "Ablation", f"{intro} No task could be ablated.")
    n_components = len({(c["block"], _kind(c)) for c in found})
    intro += (
        f" {counted(n_components, 'component')} are looked at at once, so that the largest change is large by luck too."
        if n_components > 1
        else ""
    )
    kinds = list(dict.fromkeys(_kind(c) for c in found))
    blocks = sorted({c["block"] for c in found})
    place = {kind: i for i, kind in enumerate(kinds)}, {block: i for i, block in enumerate(blocks)}
    layers: dict[str, dict[str, Any]] = {"margin": {}, "j": {}}
    for c in found:
        title = CONDITIONS[c["condition"]]
        if c["family"] != ALL:
            if c["condition"] != REAL:
                continue
            title = f"right answer, {c['family']}"
        for name, grids in layers.items():
            grid = grids.setdefault(title, np.full((len(kinds), len(blocks)), np.nan))
            grid[place[0][_kind(c)], place[1][c["block"]]] = c[name]
    # Controls stand beside the answer, its families after them.
    ordered = {
        name: {t: g[t] for t in sorted(g, key=lambda t: t not in CONDITIONS.values())} for name, g in layers.items()
    }
    named = [f"block.{b}" for b in blocks]
    shared: dict[str, Any] = {"row_labels": kinds, "column_labels": named, "scale": "diverging",
              "row_name": "component", "column_name": "block"}  # fmt: skip
    scores = document["scores"]

    def reading(name: str, unit: str) -> str:
        real, *controls = (scores[f"ablation_{name}{suffix}"] for suffix in SUFFIX.values())
        worst = min((c for c in found if c["condition"] == REAL and c["family"] == ALL), key=lambda c: c[name])
        digits = digits_for(*(e[k] for e in (real, *controls) for k in ("value", "low", "high")))
        others = list(SUFFIX)[1:]
        said = [f"{figure(e, digits)} for the {CONDITIONS[c]}" for c, e in zip(others, controls, strict=True)]
        where = f"block.{worst['block']} {_kind(worst)} ({number(worst[name], digits_for(worst[name]))})"
        return (
            f"Without a component the answer's {unit} changes by {figure(real, digits)} on average "
            f"(n = {real['n']:,} tasks), against {', '.join(said)}; it falls most without {where}."
        )

    return Section(
        "ablation", "Ablation", intro,
        (
            Grid("ablation-margin", "Change of the margin at the end", reading("margin", "margin, in nats,"),
                 layers=ordered["margin"], value_name="nats", **shared),
            Grid("ablation-j", "Change of the share of depths won", reading("j", "share of depths won"),
                 layers=ordered["j"], value_name="change of share", **shared),
        ),
    )  # fmt: skip


def _kind(component: Mapping[str, Any]) -> str:
    return str(component["kind"]) if component["head"] is None else f"head {component['head']}"


def geometry_section(document: Mapping[str, Any]) -> Section | None:
    """Probe and cosines by depth, each beside its control; groups and families at their best depth."""
    details = document.get("phases", {}).get("geometry")
    if details is None:
        return None
    rows = details.get("by_depth") or []
    parts: list[Chart | Table] = []
    for name, (title, unit, lines) in GEOMETRY.items():
        frame = _lines(rows, lines)
        if frame.filter(pl.col("value").is_not_null()).height:
            chart = curves(frame, value="value", title=unit, series="figure", low="low", high="high",
                           banded=[next(iter(lines.values()))], height=220)  # fmt: skip
            parts.append(
                Chart(name, title, _geometry_reading(frame, lines, title), chart, frame, "Band: 95 % interval.")
            )
    for name, title in (("groups", "Groups of wordings"), ("families", "Families at the best depth")):
        if details.get(name):
            frame = pl.DataFrame(details[name], infer_schema_length=None)
            of = counted(frame.height, *(("group of wordings", "groups of wordings") if name == "groups" else
                                         ("family", "families")))  # fmt: skip
            parts.append(Table(f"geometry-{name}", title, f"{of}, each with its figures.", frame))
    return Section(
        "geometry", "Geometry",
        "How residuals at the prompts' last tokens lie to each other. A best depth is best by luck too; the Evidence "
        "uses none.",
        parts,
    )  # fmt: skip


def _lines(rows: Sequence[Mapping[str, Any]], lines: Mapping[str, str]) -> pl.DataFrame:
    kept = ("value", "low", "high", "n", "n_clusters", "status")
    found = [
        {"depth": r["depth"], "depth_index": r["depth_index"], "figure": said, **{k: r[name][k] for k in kept}}
        for name, said in lines.items()
        for r in rows
        if isinstance(r.get(name), Mapping)
    ]
    schema = {"depth": pl.String, "depth_index": pl.Int64, "figure": pl.String, "value": pl.Float64, "low": pl.Float64,
              "high": pl.Float64, "n": pl.Int64, "n_clusters": pl.Int64, "status": pl.String}  # fmt: skip
    return pl.DataFrame(found, schema=schema)


def _geometry_reading(frame: pl.DataFrame, lines: Mapping[str, str], title: str) -> str:
    signal, *controls = lines.values()
    known = frame.filter(pl.col("value").is_not_null())
    best = known.filter(figure=signal).sort("value", descending=True).head(1)
    if not best.height:
        return f"{title}: undefined at every depth."
    row = best.row(0, named=True)
    held = [
        f"{number(other['value'][0])} for {name}"
        for name in controls
        if (other := known.filter(figure=name, depth=row["depth"])).height
    ]
    against = f", where it is {', '.join(held)}" if held else ""
    return (
        f"{title}: highest at {row['depth']}, {number(row['value'])} {span(row['low'], row['high'])}".strip()
        + f"{against} (n = {row['n']:,})."
    )
