"""How everything in a terminal looks: tables, numbers, and untrusted text made harmless."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Off a terminal, tables are as wide as they need to be, so that nothing is cut.
PLAIN_WIDTH = 160


def console() -> Console:
    """Standard output: as wide as it is on a terminal, wide and plain off one."""
    terminal = sys.stdout.isatty()
    return Console(
        width=None if terminal else PLAIN_WIDTH,
        # Said outright, for variables such as FORCE_COLOR would put escape codes into files.
        force_terminal=terminal,
        no_color=None if terminal else True,
        markup=False,
        highlight=False,
        emoji=False,
    )


def clean(text: object) -> Text:
    """Untrusted text: no markup, control characters made visible."""
    return Text("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)))


def table(title: str, columns: Sequence[str | Text], rows: Iterable[Sequence[object]]) -> Table:
    """A table whose first column is aligned left; a cell that is not Text is untrusted."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else clean(cell) for cell in row))
    return made


def number(value: float | int | None) -> str:
    """Three decimals, an integer as it is, a dash for what is undefined."""
    if value is None:
        return "–"
    # Rounded first: a tiny negative number would print as -0.000.
    return str(value) if isinstance(value, int) else f"{round(value, 3) + 0.0:.3f}"


def interval(row: dict[str, Any]) -> str:
    """The bounds of a figure with ``low`` and ``high``, or nothing where it has none."""
    return "" if row["low"] is None else f"[{row['low']:.3f}, {row['high']:.3f}]"
