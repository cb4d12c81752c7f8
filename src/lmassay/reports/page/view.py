"""Parts as the template takes them: texts made visible and short enough, drawings made, data packed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from lmassay.reports.page.draw import drawn
from lmassay.reports.page.embed import columns_of, packed
from lmassay.reports.page.parts import Chart, Example, Grid, Part, RunPage, Section, Table, Texts
from lmassay.reports.page.words import (
    clipped,
    digits_for,
    held,
    number,
    sentence,
    span,
    verdict_kind,
    verdict_reason,
    visible,
)

if TYPE_CHECKING:
    import polars as pl

#: Rows of a table that stand in the page without its script; the rest is in its data.
ROWS_SHOWN = 50
#: Letters of a cell, of a heading, of an example's text.
CELL, LABEL, TEXT = 600, 160, 20_000


def run_view(run: RunPage, prefix: str) -> dict[str, Any]:
    """A run for the template; `prefix` makes its ids the page's own."""
    kind = "undecided" if run.survives is None else "survives" if run.survives else "fails"
    words = {"survives": "survives its controls", "fails": "does not survive every control"}
    words["undecided"] = "undecided: nothing could be measured" if run.status == "done" else "no verdict"
    if run.survives is False and not any(verdict_kind(str(r["verdict"])) == "fails" for r in run.evidence):
        # Nothing failed, so the shape of failure would say too much.
        kind, words["undecided"] = "undecided", "not shown to survive its controls"
    return {
        "id": prefix,
        "name": clipped(run.name, LABEL),
        "folder": clipped(run.folder, LABEL),
        "suite": run.suite,
        "status": clipped(run.status),
        "headline": clipped(run.headline),
        "kind": kind,
        "words": words[kind],
        "evidence": _evidence(run),
        "notices": [clipped(notice) for notice in run.notices],
        "about": [(visible(name), clipped(value, CELL)) for name, value in run.about],
        "sections": [section_view(section, prefix) for section in run.sections],
    }


def section_view(section: Section, prefix: str) -> dict[str, Any]:
    """A section with its parts."""
    return {
        "id": _id(prefix, section.id),
        "title": visible(section.title),
        "intro": clipped(section.intro),
        "parts": [_part(part, prefix) for part in section.parts],
    }


def _id(prefix: str, name: str) -> str:
    return f"{prefix}-{re.sub(r'[^A-Za-z0-9-]+', '-', name)}"


def _evidence(run: RunPage) -> list[dict[str, Any]]:
    rows = list(run.evidence)
    # One axis for all rows of a run, so that their intervals can be compared.
    known = [float(row[name]) for row in rows for name in ("low", "high", "difference") if row[name] is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    width = (high - low) or 1.0

    def at(value: float) -> float:
        return round(4 + 192 * (value - low) / width, 1)

    found = []
    for row in rows:
        difference = row["difference"]
        bounded = row["low"] is not None and row["high"] is not None
        plot = None if difference is None else {
            "zero": at(0.0), "at": at(difference),
            "low": at(row["low"]) if bounded else None, "high": at(row["high"]) if bounded else None,
        }  # fmt: skip
        found.append({
            "short": clipped(held(row, run.signals), CELL),
            "sentence": clipped(sentence(row, run.signals), CELL),
            "plot": plot,
            "difference": number(difference), "interval": span(row["low"], row["high"]), "p": number(row["p_holm"], 3),
            "n": number(row["n"]), "kind": verdict_kind(str(row["verdict"])),
            "verdict": verdict_kind(str(row["verdict"])), "reason": clipped(verdict_reason(str(row["verdict"])), LABEL),
        })  # fmt: skip
    return found


def _part(part: Part, prefix: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": _id(prefix, part.id),
        "file": _id("lmassay", part.id),
        "title": visible(part.title),
        "reading": clipped(part.reading),
        "note": clipped(part.note),
    }
    if isinstance(part, Chart):
        svg = drawn(part.chart, made["id"])
        return made | {"kind": "chart", "svg": Markup(svg), "data": packed(columns_of(part.rows))}
    if isinstance(part, Table):
        return made | _table(part)
    if isinstance(part, Grid):
        return made | _grid(part)
    return made | _texts(part)


def _table(part: Table) -> dict[str, Any]:
    rows = part.rows
    notes = [part.note] if part.note else []
    if part.n_total is not None and part.n_total > rows.height:
        where = f"; all stand in {part.whole}" if part.whole else ""
        notes.append(f"{rows.height:,} of {part.n_total:,} rows are kept here{where}.")
    return {
        "kind": "table",
        "columns": [{"name": visible(name), "numeric": rows[name].dtype.is_numeric()} for name in rows.columns],
        "rows": [[_cell(value) for value in row] for row in rows.head(ROWS_SHOWN).iter_rows()],
        "n": rows.height,
        "note": clipped(" ".join(notes)),
        "data": packed(columns_of(rows)),
    }


def _cell(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return number(value, 3)
    return clipped(", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value, CELL)


def _grid(part: Grid) -> dict[str, Any]:
    hover = part.hover
    header = {
        "rows": [clipped(label, LABEL) for label in part.row_labels],
        "columns": [clipped(label, LABEL) for label in part.column_labels],
        "layers": [clipped(name, LABEL) for name in part.layers],
        "scale": part.scale,
        "row_name": part.row_name, "column_name": part.column_name, "value_name": part.value_name,
        "sort_by": {clipped(name, LABEL): [_sortable(v) for v in values] for name, values in part.sort_by.items()},
        "texts": [clipped(text, CELL * 4) for text in hover.texts] if hover else [],
        "lines": [[clipped(line, CELL * 4) for line in lines] for lines in hover.lines] if hover else [],
        "unit": visible(hover.unit) if hover else "",
    }  # fmt: skip
    arrays = {f"layer{i}": array for i, array in enumerate(part.layers.values())}
    if hover is not None and hover.values is not None:
        arrays["values"] = hover.values
    return {
        "kind": "grid",
        "layers": header["layers"],
        "sorts": ["", *header["sort_by"]],
        "scale": part.scale,
        "largest": "1" if part.scale == "share" else _largest(part),
        "n_rows": len(part.row_labels),
        "n_columns": len(part.column_labels),
        "row_name": part.row_name,
        "column_name": part.column_name,
        "data": packed(header, arrays),
    }


def _sortable(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return clipped(value, LABEL)


def _largest(part: Grid) -> str:
    found = [np.abs(a[np.isfinite(a)]).max() for a in part.layers.values() if np.isfinite(a).any()]
    largest = float(max(found, default=0.0))
    return number(largest, digits_for(largest))


def _texts(part: Texts) -> dict[str, Any]:
    largest = max(
        (abs(w) for e in part.examples for _, w in e.pieces if w is not None and math.isfinite(w)), default=0.0
    )
    return {
        "kind": "texts",
        "examples": [
            {"heading": clipped(e.heading, LABEL), "facts": clipped(e.facts, CELL), "pieces": _pieces(e, largest)}
            for e in part.examples
        ],
        "data": packed(columns_of(_weights(part.examples))),
    }


def _pieces(example: Example, largest: float) -> list[dict[str, Any]]:
    """Pieces up to `TEXT` letters in all, with a class for how much each weighs."""
    found: list[dict[str, Any]] = []
    left = TEXT
    for i, (text, weight) in enumerate(example.pieces):
        if left <= 0:
            rest = sum(len(t) for t, _ in example.pieces[i:])
            found.append({"text": f" … ({rest:,} more characters)", "kind": "", "weight": ""})
            break
        known = weight is not None and math.isfinite(weight) and largest > 0
        share = weight / largest if known and weight is not None else 0.0
        step = min(3, math.ceil(abs(share) * 3)) if abs(share) > 0.05 else 0
        kind = f"{'p' if share > 0 else 'm'}{step}" if step else ""
        shown = clipped(text, left)
        # Neighbours without a weight are one text, or a long one would be thousands of elements.
        if not kind and found and not found[-1]["kind"]:
            found[-1]["text"] += shown
        else:
            found.append({"text": shown, "kind": kind, "weight": number(weight, 3)})
        left -= len(text)
    return found


def _weights(examples: Sequence[Example]) -> pl.DataFrame:
    import polars as pl

    rows: list[Mapping[str, Any]] = [
        {"example": e.heading, "piece": i, "text": text[:TEXT], "weight": weight}
        for e in examples
        for i, (text, weight) in enumerate(e.pieces)
    ]
    schema = {"example": pl.String, "piece": pl.Int64, "text": pl.String, "weight": pl.Float64}
    return pl.DataFrame(rows, schema=schema)
