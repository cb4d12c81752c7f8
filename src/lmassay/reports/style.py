"""How everything in a terminal looks: tables, numbers, and untrusted text made harmless."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO, Any, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmassay.markup import interval as bounds
from lmassay.markup import visible

#: Off a terminal, tables are as wide as they need to be, so that nothing is cut.
PLAIN_WIDTH = 160
#: On a terminal under so many columns, tables that need more are laid out anew.
NARROW = 110

#: Whether everything is put into ASCII, for logs.
_ASCII: ContextVar[bool] = ContextVar("ascii", default=False)
#: What becomes of our own signs there; of any other character its escape is left.
_SIGNS = str.maketrans({
    "–": "-", "−": "-", "—": "-", "…": "...", "²": "2", "×": "x", "·": "*", "±": "+-", "≤": "<=", "‖": "||",
    "«": "<<", "»": ">>", "’": "'", "“": '"', "”": '"',
})  # fmt: skip


@contextmanager
def ascii_only() -> Iterator[None]:
    """Everything printed inside is ASCII, without colour: for logs."""
    token = _ASCII.set(True)
    try:
        yield
    finally:
        _ASCII.reset(token)


def in_ascii(text: str) -> str:
    """Our signs as ASCII, what else is not ASCII as its escape."""
    return text.translate(_SIGNS).encode("ascii", "backslashreplace").decode()


class _AsciiOutput(io.TextIOBase):
    """Standard output for what was not put into ASCII before it was laid out."""

    def write(self, text: str) -> int:
        sys.stdout.write(in_ascii(text))
        return len(text)

    def flush(self) -> None:
        sys.stdout.flush()


def console() -> Console:
    """Standard output: as wide as it is on a terminal, wide and plain off one; without colour inside `ascii_only`."""
    terminal = sys.stdout.isatty()
    if _ASCII.get():
        return Console(
            file=cast("IO[str]", _AsciiOutput()),
            width=Console().width if terminal else PLAIN_WIDTH,
            force_terminal=False,
            no_color=True,
            markup=False,
            highlight=False,
            emoji=False,
        )
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
    shown = visible(str(text))
    return Text(in_ascii(shown) if _ASCII.get() else shown)


def table(title: str, columns: Sequence[str | Text], rows: Iterable[Sequence[object]]) -> Table:
    """A table whose first column is aligned left; a cell that is not Text is untrusted."""
    heading = clean(title)
    heading.stylize("bold")
    made = Table(title=heading, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        header = column if isinstance(column, Text) else clean(column)
        made.add_column(header, justify="left" if index == 0 else "right", overflow="fold")
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
    return bounds(row["low"], row["high"])
