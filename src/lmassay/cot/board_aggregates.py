"""What a leaderboard sums up: means over the seven classification tasks, the median OOD, and the best of two kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.board_runs import CONTROL, PUBLISHED
from lmassay.cot.tasks import tasks
from lmassay.measures.bootstrap import interval_of
from lmassay.measures.intervals import FEW, Estimate, undefined

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.leaderboard import Row

Floats = NDArray[np.float64]

TITLES = {
    "median_ood": "median OOD of the headline figure over the tasks every row has",
    "mean7_plain": "mean of plain g-mean² over tasks 1 to 7",
    "mean7_published_convention": "the same with the minimal criterion in tasks 4 and 5, as published",
    "mean7_auroc": "mean AUROC over tasks 1 to 7",
}
AGGREGATES = tuple(TITLES)
NO_INTERVAL = "ok"


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one row on one task.

    Attributes
    ----------
    estimate : Estimate
    regime : str or None
    draws : (n_draws,) float64 or None
        None for published figures.
    """

    estimate: Estimate
    regime: str | None
    draws: Floats | None


@dataclass(frozen=True)
class Cells:
    """Rows by label, and cells by (label, task, figure, part)."""

    rows: dict[str, Row]
    cells: dict[tuple[str, str, str, str], Cell]

    def get(self, label: str, task: str, figure: str, part: str) -> Cell | None:
        """A cell, or None where the row was not measured there."""
        return self.cells.get((label, task, figure, part))


def common_tasks(found: Cells, asked: Sequence[str]) -> list[str]:
    """Those of the tasks asked for that have an OOD figure in every row, controls and rows of other tasks aside."""
    by_row: dict[str, set[str]] = {}
    for label, task, _, part in found.cells:
        if part == "ood" and task in asked:
            by_row.setdefault(label, set()).add(task)
    methods = [t for label, t in by_row.items() if found.rows[label].kind != CONTROL] or list(by_row.values())
    return [t for t in asked if methods and all(t in those for those in methods)]


def aggregates_of(
    found: Cells, kinds: Mapping[str, str], common: Sequence[str], headline: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A dictionary for each row, aggregate and part."""
    seven = [t.id for t in tasks() if 1 <= t.number <= 7]
    kind_of = {t.id: t.kind for t in tasks()} | dict(kinds)
    figures: dict[str, Callable[[str], str]] = {
        "mean7_plain": lambda task: "g_mean2",
        "mean7_published_convention": lambda task: headline[kind_of[task]],
        "mean7_auroc": lambda task: "auroc",
    }
    made = []
    for label, row in found.rows.items():
        e = _over(found, label, common, lambda task: headline[kind_of[task]], "ood", "median_ood", np.median)
        made.append({"row": label, "figure": "median_ood", "part": "ood", **_fields(e)})
        for name, figure in figures.items():
            for part in ("id", "ood"):
                if row.kind == PUBLISHED and name == "mean7_plain":
                    e = undefined(TITLES[name], "published figures of tasks 4 and 5 are the minimal criterion's")
                else:
                    e = _over(found, label, seven, figure, part, name, np.mean)
                made.append({"row": label, "figure": name, "part": part, **_fields(e)})
    return made


def _fields(e: Estimate) -> dict[str, Any]:
    return {
        "value": e.value,
        "low": e.low,
        "high": e.high,
        "n": e.n or None,
        "n_questions": e.n_clusters or None,
        "status": e.status,
    }


def _over(
    found: Cells,
    label: str,
    wanted: Sequence[str],
    figure: Callable[[str], str],
    part: str,
    name: str,
    summed: Callable[..., Any],
) -> Estimate:
    """A mean or median over tasks, in every draw of their questions; tasks are drawn independently of each other."""
    title = TITLES[name]
    if not wanted:
        return undefined(title, "no task is common to all rows")
    cells = [found.get(label, task, figure(task), part) for task in wanted]
    there = [cell for cell in cells if cell is not None]
    if len(there) < len(wanted):
        return undefined(title, f"{len(there)} of {len(wanted)} tasks")
    values = [cell.estimate.value for cell in there]
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        where = [task for task, v in zip(wanted, values, strict=True) if v is None]
        return undefined(title, f"undefined on {', '.join(where)}")
    n, k = sum(c.estimate.n for c in there), sum(c.estimate.n_clusters for c in there)
    low, high, status = _bounds(there, summed)
    return Estimate(float(summed(known)), low, high, n, title, k, status)


def _bounds(cells: Sequence[Cell], summed: Callable[..., Any]) -> tuple[float | None, float | None, str]:
    draws = [cell.draws for cell in cells if cell.draws is not None]
    if len(draws) < len(cells):
        return None, None, NO_INTERVAL
    if any(len(d) != len(draws[0]) or not len(d) for d in draws):
        return None, None, "undefined: a task has too few questions to be drawn"
    fewest = min(cell.estimate.n_clusters for cell in cells)
    low, high, status = interval_of(summed(np.stack(draws), axis=0), max(fewest, FEW))
    return low, high, "few_clusters" if status == "ok" and fewest < FEW else status


def best_of(found: Cells, kinds: Mapping[str, str], headline: Mapping[str, str]) -> pl.DataFrame:
    """By task and part: the best row that is no LLM, the best LLM, the gain of the first over it, the best control."""
    import polars as pl

    schema = {
        "task": pl.String, "part": pl.String, "figure": pl.String, "best_non_llm": pl.String,
        "non_llm_value": pl.Float64, "best_llm": pl.String, "llm_value": pl.Float64, "gain_percent": pl.Float64,
        "low": pl.Float64, "high": pl.Float64, "best_control": pl.String, "control_value": pl.Float64,
        "status": pl.String,
    }  # fmt: skip
    rows = []
    for task in kinds:
        figure = headline[kinds[task]]
        for part in ("id", "ood"):
            plain = _highest(found, task, figure, part, lambda row: row.kind != CONTROL and not row.llm)
            asked = _highest(found, task, figure, part, lambda row: row.kind != CONTROL and row.llm)
            control = _highest(found, task, figure, part, lambda row: row.kind == CONTROL)
            gain, low, high, status = _gain(plain, asked)
            rows.append(
                {
                    "task": task, "part": part, "figure": figure,
                    "best_non_llm": plain and plain[0], "non_llm_value": plain and plain[1].estimate.value,
                    "best_llm": asked and asked[0], "llm_value": asked and asked[1].estimate.value,
                    "gain_percent": gain, "low": low, "high": high,
                    "best_control": control and control[0], "control_value": control and control[1].estimate.value,
                    "status": status,
                }
            )  # fmt: skip
    return pl.DataFrame(rows, schema=schema)


def _highest(found: Cells, task: str, figure: str, part: str, wanted: Callable[[Row], bool]) -> tuple[str, Cell] | None:
    """The row with the highest figure; of equals the first by name."""
    rows = sorted(
        (-cell.estimate.value, label)
        for (label, t, f, p), cell in found.cells.items()
        if (t, f, p) == (task, figure, part) and cell.estimate.value is not None and wanted(found.rows[label])
    )
    return (rows[0][1], found.cells[rows[0][1], task, figure, part]) if rows else None


def _gain(
    plain: tuple[str, Cell] | None, asked: tuple[str, Cell] | None
) -> tuple[float | None, float | None, float | None, str]:
    """100 (a - b) / b, where there are both and b is above 0."""
    if plain is None or asked is None:
        return None, None, None, f"undefined: no row that is {'no' if plain is None else 'an'} LLM"
    first, second = plain[1], asked[1]
    assert first.estimate.value is not None
    assert second.estimate.value is not None
    if second.estimate.value <= 0:
        return None, None, None, "undefined: the best LLM is not above 0"
    gain = 100 * (first.estimate.value - second.estimate.value) / second.estimate.value
    if first.draws is None or second.draws is None or len(first.draws) != len(second.draws):
        return gain, None, None, NO_INTERVAL
    over = second.draws > 0
    draws = np.where(over, 100 * (first.draws - second.draws) / np.where(over, second.draws, 1.0), np.nan)
    low, high, status = interval_of(draws, min(first.estimate.n_clusters, second.estimate.n_clusters))
    return gain, low, high, status
