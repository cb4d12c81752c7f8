"""Several cot runs of one page side by side: the leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from lmassay.cot.leaderboard import leaderboard
from lmassay.errors import LmassayError
from lmassay.reports.cot_charts import leaderboard_chart
from lmassay.reports.cot_figures import SELECTION
from lmassay.reports.page.parts import Chart, Section, Table
from lmassay.reports.page.words import counted, figure

if TYPE_CHECKING:
    from lmassay.cot.leaderboard import Leaderboard
    from lmassay.reports.page.opened import OpenedRun

TITLE = "Methods side by side"
#: Figures whose intervals on a leaderboard are those of the threshold chosen anew in every draw.
RETUNED = ("g_mean2", "g_mean2_mc")
DRAWN_ANEW = (
    "Intervals of g-mean² here draw the validation questions too, and choose the threshold anew in every draw: they "
    "differ from those in a run's own section, which keep its threshold, and stand among All scores as "
    "g_mean2_retuned. Differences of g-mean² in the Evidence are drawn in this way too."
)


def cot_overview(runs: Sequence[OpenedRun], names: Sequence[str]) -> Section | None:
    """Finished runs side by side; why not, where they were measured differently; None where fewer than two can be."""
    # Selections of sentences have no predictions, and their costs are not better when they are higher.
    of_methods = [run.path for run in runs if run.record["identity"]["task"]["kind"] != SELECTION]
    if len(of_methods) < 2:
        return None
    try:
        return section_of(leaderboard(of_methods))
    except LmassayError as error:
        return Section("board", TITLE, f"These runs do not stand in one table: {error.what}.")


def section_of(board: Leaderboard) -> Section:
    """The same of a leaderboard."""
    figures = board.cells.filter(pl.col("headline"))
    drawn_anew = figures["figure"].is_in(list(RETUNED)).any()
    note = DRAWN_ANEW if drawn_anew else ""
    parts: list[Any] = [Table("leaderboard", "Leaderboard", _reading(board), board.written(figure), note=note)]
    if figures["value"].drop_nulls().len():
        drawn = figures.drop("headline")
        survey = "; ".join(_of_task(drawn.filter(task=task)) for task in drawn["task"].unique(maintain_order=True))
        parts.append(
            Chart(
                "leaderboard-figures", "Headline figures by task", f"{survey}.", leaderboard_chart(board), drawn, note
            )
        )
    if board.best["best_llm"].drop_nulls().len():
        parts.append(Table("leaderboard-best", "Best method that is no LLM against best LLM", _best(board), board.best))
    return Section("board", TITLE, " ".join(f"{n}." for n in board.notices), parts)


def _of_task(cells: pl.DataFrame) -> str:
    """The best row of a task in and out of distribution."""
    said = []
    for part in ("id", "ood"):
        known = cells.filter(pl.col("value").is_not_null(), part=part).sort("value", descending=True)
        if known.height:
            best = known.row(0, named=True)
            about = [] if best["n"] is None else [f"n = {best['n']:,}"]
            if best["low"] is None:
                about.append(best["status"] if "no interval" in best["status"] else "no interval")
            n = f" ({', '.join(about)})" if about else ""
            said.append(f"{best['row']} is best {part.upper()} with {figure(best)}{n}")
    return f"{cells['task'][0]}: {', '.join(said) or 'no figure'}"


def _reading(board: Leaderboard) -> str:
    medians = {r["row"]: r for r in board.aggregates.filter(figure="median_ood").to_dicts()}
    ranked = [r for r in board.rows if (medians.get(r.label) or {}).get("value") is not None]
    if not ranked:
        return f"{counted(len(board.rows), 'row')}; no task has an OOD figure in every one, so none leads."
    tasks = f"the median over {counted(len(board.common), 'task')} out of distribution"
    first = medians[ranked[0].label]
    said = f"By {tasks} {ranked[0].label} leads with {figure(first)} (n = {first['n']:,})"
    controls = [r for r in ranked if r.kind == "control"]
    if controls and controls[0] is not ranked[0]:
        said += f"; the best control, {controls[0].label}, has {figure(medians[controls[0].label])}"
    return f"{said}."


def _best(board: Leaderboard) -> str:
    known = board.best.filter(pl.col("gain_percent").is_not_null())
    if not known.height:
        return "No task has figures of both kinds."
    ahead = known.filter(pl.col("gain_percent") > 0).height
    return f"In {ahead} of {counted(known.height, 'comparison')} the best method that is no LLM is ahead."
