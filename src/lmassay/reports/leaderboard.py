"""The leaderboard in a terminal: aggregates in order, then every task, then the best of two kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from lmassay.cot.board_aggregates import AGGREGATES, TITLES
from lmassay.reports.style import clean, console, interval, number, table

#: The same for every row of a task: a line of its own instead of a column.
CHANCE = "chance_mc"

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.leaderboard import Leaderboard


def print_leaderboard(board: Leaderboard) -> None:
    """Aggregates, tasks, best, notices. A cell without an interval is a published one or says why."""
    out = console()
    out.print(Text.assemble(("lmassay cot leaderboard  ", "bold"), clean(f"layout {board.layout}")))
    out.print()
    out.print(_summary(board))
    for task in board.cells["task"].unique(maintain_order=True):
        out.print()
        out.print(_task(board, task))
    out.print()
    out.print(_best(board))
    for name in AGGREGATES:
        if board.aggregates.filter(figure=name)["value"].null_count() < len(board.rows):
            out.print(f"{name}: {TITLES[name]}")
    for notice in board.notices:
        out.print(clean(f"note: {notice}"))


def _summary(board: Leaderboard) -> Any:
    """Rows in order; an aggregate that no row has is left out."""
    shown = [
        (figure, part)
        for figure in AGGREGATES
        for part in ("id", "ood")
        if board.aggregates.filter(figure=figure, part=part)["value"].drop_nulls().len()
    ]
    rows = []
    for row in board.rows:
        cells = [_found(board.aggregates.filter(row=row.label, figure=f, part=p)) for f, p in shown]
        rows.append((row.label, _kind(row.kind, row.llm), *map(_both, cells)))
    names = [figure if figure == "median_ood" else f"{figure} {part.upper()}" for figure, part in shown]
    made = table("Leaderboard", ("row", "kind", *names), rows)
    made.columns[1].justify = "left"
    return made


def _task(board: Leaderboard, task: str) -> Any:
    mine = board.cells.filter(task=task)
    figures = mine["figure"].unique(maintain_order=True).to_list()
    headline = mine.filter(headline=True)["figure"][0]
    figures = [headline, *(f for f in figures if f not in (headline, CHANCE))]
    rows = []
    for row in board.rows:
        own = mine.filter(row=row.label)
        if own.height:
            cells = [_found(own.filter(figure=f, part=p)) for f in figures for p in ("id", "ood")]
            rows.append((row.label, *map(_both, cells)))
    chance = [_found(mine.filter(figure=CHANCE, part=p)) for p in ("id", "ood")]
    if any(chance):
        rows.append((f"guessing at best ({headline})", *map(_both, chance), *[""] * (2 * len(figures) - 2)))
    return table(task, ("row", *(f"{f} {p.upper()}" for f in figures for p in ("id", "ood"))), rows)


def _best(board: Leaderboard) -> Any:
    rows = [
        (
            r["task"], r["part"].upper(), r["best_non_llm"] or "–", number(r["non_llm_value"]), r["best_llm"] or "–",
            number(r["llm_value"]),
            r["status"] if r["gain_percent"] is None else f"{r['gain_percent']:+.0f} % {interval(r)}".rstrip(),
            r["best_control"] or "–", number(r["control_value"]),
        )
        for r in board.best.to_dicts()
    ]  # fmt: skip
    columns = ("task", "part", "best non-LLM", "", "best LLM", "", "gain", "best control", "")
    made = table("Best method that is no LLM against best LLM, headline figure", columns, rows)
    for i in (1, 2, 4, 6, 7):
        made.columns[i].justify = "left"
    return made


def _kind(kind: str, llm: bool) -> str:
    return f"{kind}, LLM" if llm else kind


def _found(cells: pl.DataFrame) -> dict[str, Any] | None:
    return cells.row(0, named=True) if cells.height else None


def _both(cell: dict[str, Any] | None) -> str:
    """A value and its interval, short enough for six of them on a line."""
    if cell is None:
        return ""
    bounds = "" if cell["low"] is None else f" [{cell['low']:.2f}, {cell['high']:.2f}]"
    return f"{number(cell['value'])}{bounds}"
