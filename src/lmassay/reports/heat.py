"""Small heat maps in a terminal: a character a cell, so that they read without colour, and colour where there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from lmassay.reports.style import clean

if TYPE_CHECKING:
    from rich.console import Console

Floats = NDArray[np.float64]

#: The ends of the scales; told apart by people who do not see red and green as two, and by their lightness.
PALE, DEEP, WARM = (234, 241, 248), (0, 74, 128), (178, 78, 0)
#: Of a cell's colour: brighter ones carry dark signs.
_BRIGHT = 140
#: Signs of no share, of a share of one, and of what was not measured.
NONE, WHOLE, UNDEFINED = ".", "#", " "
LEGEND = {
    "share": f"0-9 tenths (rounded), {NONE} none, {WHOLE} all, blank: not measured",
    "diverging": f"+9 and -9 stand for {{top}}, {NONE} is less than half a ninth of it, blank: not measured",
}
#: Most rows of a map; more are drawn several to a row.
MOST_ROWS = 40
_GAP = 3


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A map.

    Attributes
    ----------
    title : str
    rows, columns : (n_rows,) and (n_columns,) str
    values : (n_rows, n_columns) float64
        NaN where nothing was measured.
    scale : {"share", "diverging"}
        From 0 to 1, a digit a cell; or around 0, a sign and a digit.
    unit : str
        Of diverging values.
    largest : float
        Of maps that stand beside each other, so that they share a scale.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Floats
    scale: Literal["share", "diverging"] = "share"
    unit: str = ""
    largest: float = 0.0

    @property
    def cell(self) -> int:
        """Characters of a cell."""
        return 1 if self.scale == "share" else 2

    @property
    def top(self) -> float:
        """The largest size of a diverging value, here or in a map beside it."""
        known = np.abs(self.values[np.isfinite(self.values)])
        return max(self.largest, float(known.max()) if known.size else 0.0)


def share_sign(value: float) -> str:
    """A share as one character; only a true 0 and a true 1 have the signs of none and all."""
    if not np.isfinite(value):
        return UNDEFINED
    if value <= 0:
        return NONE
    return WHOLE if value >= 1 else str(min(9, int(10 * value + 0.5)))


def diverging_sign(value: float, top: float) -> str:
    """A value as its sign and the ninths of `top` it is."""
    if not np.isfinite(value):
        return UNDEFINED * 2
    ninths = int(9 * abs(value) / top + 0.5) if top > 0 else 0
    return f" {NONE}" if not ninths else f"{'+' if value > 0 else '-'}{min(9, ninths)}"


def share_style(value: float) -> str:
    """Colours of a cell for a share."""
    return "" if not np.isfinite(value) else _style(_mixed(PALE, DEEP, min(max(value, 0.0), 1.0)))


def diverging_style(value: float, top: float) -> str:
    """Colours of a cell for a value around zero."""
    if not np.isfinite(value):
        return ""
    share = min(abs(value) / top, 1.0) if top > 0 else 0.0
    return _style(_mixed(PALE, DEEP if value > 0 else WARM, share))


def _mixed(one: tuple[int, int, int], other: tuple[int, int, int], share: float) -> tuple[int, int, int]:
    r, g, b = (round(a + (z - a) * share) for a, z in zip(one, other, strict=True))
    return r, g, b


def _style(colour: tuple[int, int, int]) -> str:
    r, g, b = colour
    light = 0.3 * r + 0.59 * g + 0.11 * b > _BRIGHT
    return f"{'black' if light else 'white'} on #{r:02x}{g:02x}{b:02x}"


def drawn(heat: HeatMap, width: int) -> list[Text]:
    """The map's lines, none longer than `width`: title, what its columns are, a line a row.

    Neighbouring rows and columns that do not fit stand together, as their mean; the title then says how many.
    """
    widest = max((clean(r).cell_len for r in heat.rows), default=1)
    label = max(1, min(widest, max(width // 3, width - 1 - heat.cell * len(heat.columns))))
    across = _together(len(heat.columns), max(1, (width - label - 1) // heat.cell))
    down = _together(len(heat.rows), MOST_ROWS)
    values = _means(_means(heat.values, across, 1), down, 0)
    notes = [f"{n} {what} a {cell}" for n, what, cell in ((across, "columns", "cell"), (down, "rows", "line")) if n > 1]
    title = clean(heat.title + (f" (means of {' and '.join(notes)})" if notes else ""))
    title.stylize("bold")
    title.truncate(width, overflow="ellipsis")
    lines = [title, _ruler(heat.columns[::across], label, heat.cell)]
    top = heat.top
    for name, row in zip(heat.rows[::down], values, strict=True):
        shown = clean(name)
        shown.truncate(label, overflow="crop")
        line = shown.append(" " * (label - shown.cell_len + 1))
        for value in row:
            if heat.scale == "share":
                line.append(share_sign(value), share_style(value))
            else:
                line.append(diverging_sign(value, top), diverging_style(value, top))
        lines.append(line)
    return lines


def legend(heat: HeatMap) -> str:
    """What the characters mean."""
    return LEGEND[heat.scale].format(top=f"{heat.top:.3g} {heat.unit}".rstrip())


def _together(n: int, room: int) -> int:
    return -(-n // room) if n > room else 1


def _means(values: Floats, size: int, axis: int) -> Floats:
    """Means of `size` neighbours along an axis, over those that were measured."""
    if size == 1:
        return values
    starts = np.arange(0, values.shape[axis], size)
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts, axis=axis)
    counts = np.add.reduceat(known.astype(np.float64), starts, axis=axis)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _ruler(columns: Sequence[str], label: int, cell: int) -> Text:
    """Names of columns above their cells, as many as have room."""
    line, free = " " * (label + 1), label + 1
    for i, name in enumerate(columns):
        at = label + 1 + i * cell
        text = clean(name).plain
        # The last one must not stand out over the map's edge.
        if at >= free and at + len(text) <= label + 1 + len(columns) * cell:
            line = line.ljust(at) + text
            free = at + len(text) + 1
    return Text(line, "dim")


def print_maps(out: Console, maps: Sequence[HeatMap]) -> None:
    """Maps of one scale, side by side as far as the console is wide, and what their characters mean."""
    maps = [m for m in maps if m.values.size]
    if not maps:
        return
    room: Any = out.width
    for line in _rows_of_maps(maps, int(room)):
        line.rstrip()
        out.print(line, no_wrap=True, crop=True)
    for text in dict.fromkeys(legend(m) for m in maps):
        out.print(clean(text), style="dim")


def _rows_of_maps(maps: Sequence[HeatMap], width: int) -> list[Text]:
    lines: list[Text] = []
    held: list[list[Text]] = []

    def wide(block: list[Text]) -> int:
        return max(len(line) for line in block)

    def flush() -> None:
        if not held:
            return
        sizes = [wide(block) for block in held]
        for i in range(max(len(block) for block in held)):
            line = Text()
            for block, size in zip(held, sizes, strict=True):
                part = block[i] if i < len(block) else Text()
                line.append_text(part).append(" " * (size - len(part) + _GAP))
            lines.append(line)
        held.clear()

    for heat in maps:
        block = drawn(heat, width)
        if held and sum(wide(b) + _GAP for b in held) + wide(block) > width:
            flush()
        held.append(block)
    flush()
    return lines
