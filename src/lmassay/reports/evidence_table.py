"""The evidence in a terminal: a column of everything, or less where it is too narrow for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from lmassay.markup import EVIDENCE, survival
from lmassay.reports.style import NARROW, clean, console, interval, number, table

VERDICT_STYLE = {"survives": "bold green", "fails": "bold red"}
#: Above the columns of the narrow table.
_HEAD = ("signal", "control", "diff.", "95 % interval", "p", "n", "verdict")


def verdict_line(survives: bool | None) -> Text:
    """The headline of a run."""
    word = survival(survives)
    return Text("survives its controls: ").append(word, {"yes": "bold green", "no": "bold red"}.get(word, "bold"))


def narrow() -> bool:
    """Whether standard output is too narrow for the wide tables."""
    return console().width < NARROW


def wide_evidence(rows: Iterable[dict[str, Any]], columns: Sequence[str] = EVIDENCE) -> Table:
    """A row for each signal and control."""
    cells = [
        (
            row["signal"], row["control"], number(row["signal_value"]), number(row["control_value"]),
            number(row["difference"]), interval(row), number(row["p_holm"]), row["n"],
            Text(row["verdict"], VERDICT_STYLE.get(row["verdict"], "")),
        )
        for row in rows
    ]  # fmt: skip
    return table("Evidence", columns, cells)


def fitting_evidence(
    rows: Sequence[dict[str, Any]], wide: Callable[[Sequence[dict[str, Any]]], Table] = wide_evidence
) -> Table | Text:
    """The table that fits standard output (`wide` where there is room), or a line where there is no row."""
    if not rows:
        return Text("no row of evidence: nothing was held against a control")
    return narrow_evidence(rows, console().width) if narrow() else wide(rows)


def narrow_evidence(rows: Iterable[dict[str, Any]], width: int) -> Text:
    """Each signal on a line of its own, its controls under it, with every number of the wide table.

    A control whose name does not fit beside its numbers has a line of its own, and so has the reason of a verdict.
    """
    held = list(rows)
    cells = [
        [
            number(r["signal_value"]), number(r["control_value"]), number(r["difference"]), interval(r),
            number(r["p_holm"]), str(r["n"]), str(r["verdict"]).partition(" ")[0],
        ]
        for r in held
    ]  # fmt: skip
    sizes = [max(len(line[i]) for line in [_HEAD, *cells]) for i in range(len(_HEAD))]
    room = max(1, width - sum(sizes) - len(sizes))
    lines = [Text("Evidence", "bold"), _line(Text(), _HEAD, sizes, room)]
    signal = None
    for row, cell in zip(held, cells, strict=True):
        if row["signal"] != signal:
            signal = row["signal"]
            lines.append(clean(signal))
            lines[-1].stylize("bold")
        name = clean(f"  {row['control']}")
        if name.cell_len > room:
            lines.append(name)
            name = Text()
        lines.append(_line(name, cell, sizes, room))
        if reason := str(row["verdict"]).partition(" ")[2]:
            lines.append(clean(f"    {reason}"))
    return Text("\n").join(lines)


def _line(name: Text, cells: Iterable[str], sizes: list[int], room: int) -> Text:
    line = name.append(" " * (room - name.cell_len))
    *numbers, verdict = [cell.rjust(size) for cell, size in zip(cells, sizes, strict=True)]
    line.append("".join(f" {cell}" for cell in numbers))
    return line.append(f" {verdict.strip()}", VERDICT_STYLE.get(verdict.strip(), ""))
