"""The paper's figures beside ours, in a terminal."""

from __future__ import annotations

from typing import Any

from lmassay.reports.style import clean, console, interval, number, table

COLUMNS = ("figure", "ours", "95 % interval", "n", "paper", "difference", "status")


def print_reproduction(document: dict[str, Any]) -> None:
    """A table per checkpoint, what was not measured, and what a difference may mean."""
    out = console()
    for notice in document["notices"]:
        out.print(clean(f"note: {notice}"))
    for row in document["checkpoints"]:
        if row["figures"]:
            out.print()
            blocks = f"{row['n_blocks']} blocks, {row['n_parameters']:,} parameters"
            title = clean(f"{row['name']} on {row['battery']}, {row['protocol']} ({blocks})").plain
            out.print(table(title, COLUMNS, [_cells(figure) for figure in row["figures"]]))
    out.print()
    patterns = document["patterns"]
    if patterns["figures"]:
        title = "Patterns over distilgpt2, gpt2 and gpt2-medium"
        out.print(table(title, COLUMNS, [_cells(figure) for figure in patterns["figures"]]))
    else:
        out.print(clean(f"patterns: {patterns['status']}"))
    for row in document["checkpoints"]:
        if row["error"] is not None:
            out.print(clean(f"{row['status']}: {row['name']} on {row['battery']}: {row['error']}"))


def _cells(figure: dict[str, Any]) -> tuple[object, ...]:
    difference = figure["difference"]
    inside = {True: "", False: "paper's is outside the interval", None: ""}[figure["paper_in_interval"]]
    status = "" if figure["status"] == "ok" else figure["status"]
    return (
        figure["figure"], number(figure["value"]), interval(figure), figure["n"], number(figure["paper"]),
        "–" if difference is None else f"{difference:+.3f}", "; ".join(filter(None, (status, inside))),
    )  # fmt: skip
