"""Methods side by side over tasks: runs of ours, predictions made elsewhere and, from a file, the published scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from lmassay.cot.board_aggregates import AGGREGATES, Cell, Cells, aggregates_of, best_of, common_tasks
from lmassay.cot.board_runs import CONTROL, PUBLISHED, BoardRun, read_runs
from lmassay.cot.predictions import ABSTAINED
from lmassay.cot.published_results import POST_ONLY, UNSETTLED, PublishedCell, read_published
from lmassay.cot.task import OK
from lmassay.cot.tasks import tasks
from lmassay.errors import LmassayError
from lmassay.markup import estimate as figure_text
from lmassay.markup import html_table, noted
from lmassay.measures.intervals import Estimate, exact, undefined

if TYPE_CHECKING:
    from lmassay.cot.compared import Measured
    from lmassay.cot.evaluate import Evaluation

#: By kind of task: the figure that stands beside published ones and orders the rows, and all that are shown.
HEADLINE = {"binary": "g_mean2", "interventional": "g_mean2_mc", "regression": "r2"}
SHOWN = {
    "binary": ("g_mean2", "auroc", "within_auroc"),
    "interventional": ("g_mean2_mc", "chance_mc", "g_mean2", "auroc"),
    "regression": ("r2", "within_r2", "within_spearman"),
}
PARTS = ("id", "ood")
#: Share of a test set's usable rows that a method must have scored for its figures to stand on the leaderboard.
LEAST_SCORED = 0.95

CELLS: dict[str, Any] = {
    "row": pl.String, "kind": pl.String, "llm": pl.Boolean, "layout": pl.String, "task": pl.String,
    "regime": pl.String, "part": pl.String, "figure": pl.String, "headline": pl.Boolean, "value": pl.Float64,
    "low": pl.Float64, "high": pl.Float64, "n": pl.Int64, "n_questions": pl.Int64, "status": pl.String,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the leaderboard.

    Attributes
    ----------
    label : str
        The method's id; in brackets ``external`` or ``published`` where it is that, the reader of its activations,
        ``train_cap=…`` and ``test_cap=…`` where rows were capped, and its options.
    kind : {"method", "control", "external", "published"}
    llm : bool
        Whether it is a language model that was asked.
    """

    label: str
    kind: str
    llm: bool


@dataclass(frozen=True)
class Leaderboard:
    """Everything the leaderboard shows.

    Attributes
    ----------
    layout : str
    rows : tuple of Row
        By median OOD, highest first; rows without one last.
    cells : polars.DataFrame
        Columns `CELLS`: a row for each figure in (``id``) and out of distribution (``ood``). ``g_mean2`` and
        ``g_mean2_mc`` have intervals that draw the validation questions too; published figures have none.
    aggregates : polars.DataFrame
        ``row``, ``figure`` (`AGGREGATES`), ``part`` and an estimate's fields.
    best : polars.DataFrame
        By task and part: the best method that is no LLM, the best LLM, the gain in per cent, the best control.
    common : tuple of str
        The tasks of ``median_ood``: those that every row but the controls has.
    notices : tuple of str
    """

    layout: str
    rows: tuple[Row, ...]
    cells: pl.DataFrame
    aggregates: pl.DataFrame
    best: pl.DataFrame
    common: tuple[str, ...]
    notices: tuple[str, ...]

    def __repr__(self) -> str:
        tasks = self.cells["task"].n_unique()
        return f"<Leaderboard layout {self.layout}: {len(self.rows)} rows, {tasks} tasks>"

    def _repr_html_(self) -> str:
        """Rows in order, for a notebook."""
        wide = self.wide
        return html_table("Leaderboard", wide.columns, wide.fill_null("").rows(), left=2) + noted(self.notices)

    @property
    def wide(self) -> pl.DataFrame:
        """The rows as text: ``median OOD``, and each task's headline figure in (ID) and out of distribution."""
        return self.written(figure_text)

    def written(self, figure: Callable[[dict[str, Any]], str]) -> pl.DataFrame:
        """As `wide`, with figures as `figure` writes them."""
        medians = {r["row"]: r for r in self.aggregates.filter(figure="median_ood").to_dicts()}
        cells = {(c["row"], c["task"], c["part"]): c for c in self.cells.filter(pl.col("headline")).to_dicts()}
        tasks = self.cells["task"].unique(maintain_order=True).to_list()
        made = []
        for row in self.rows:
            found = {"median OOD": medians.get(row.label)}
            found |= {f"{task} {part.upper()}": cells.get((row.label, task, part)) for task in tasks for part in PARTS}
            shown = {name: None if cell is None else figure(cell) for name, cell in found.items()}
            made.append({"row": row.label, "kind": f"{row.kind}, LLM" if row.llm else row.kind, **shown})
        return pl.DataFrame(made, schema_overrides=dict.fromkeys(made[0], pl.String) if made else None)

    @property
    def table(self) -> pl.DataFrame:
        """Cells and aggregates in one table, rows in order: what ``--csv`` writes."""
        about = pl.DataFrame([{"row": r.label, "kind": r.kind, "llm": r.llm} for r in self.rows])
        extra = self.aggregates.join(about, on="row", how="left").with_columns(
            layout=pl.lit(self.layout), headline=pl.lit(False)
        )
        whole = pl.concat([self.cells, extra], how="diagonal").select(list(CELLS))
        place = {row.label: i for i, row in enumerate(self.rows)}
        order = pl.col("row").replace_strict(list(place), list(place.values()), return_dtype=pl.Int64)
        return whole.sort(order, maintain_order=True)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "layout": self.layout,
            "rows": [{"row": r.label, "kind": r.kind, "llm": r.llm} for r in self.rows],
            "aggregates": self.aggregates.to_dicts(),
            "cells": self.cells.to_dicts(),
            "best": self.best.to_dicts(),
            "common": list(self.common),
            "notices": list(self.notices),
        }


def leaderboard(runs: Sequence[Path | str | Evaluation], *, with_published: Path | str | None = None) -> Leaderboard:
    """Finished runs (folders, or evaluations in memory) side by side.

    Parameters
    ----------
    with_published : path, optional
        ``results_summary.csv`` of the published repository. Its rows then stand beside ours where the data is the
        same; and tasks 1 and 2 of the layout post become one row as there: ID trained in the regime ``id``, OOD in
        the regime ``ood``.

    Raises
    ------
    LmassayError
        ``runs-not-comparable`` naming what differs; ``bad-run-folder``; ``bad-request``.
    """
    published = read_published(Path(with_published)) if with_published is not None else []
    read = read_runs(runs, paired_regimes=with_published is not None)
    layout = str(read[0].task["layout"])
    if published and layout not in ("head", "post"):
        raise LmassayError(
            "bad-request",
            f"published figures are of the published data, these runs are of the layout {layout}",
            "leave out --with-published",
        )
    found, notices = _of_runs(read)
    _add_published(found, published, layout, notices)
    numbers = {task.id: task.number for task in tasks() if task.number}
    kinds = dict(
        sorted({r.task["id"]: r.task["kind"] for r in read}.items(), key=lambda kv: (numbers.get(kv[0], 99), kv[0]))
    )
    common = common_tasks(found, [t for t, k in kinds.items() if k != "regression"] or list(kinds))
    aggregates = aggregates_of(found, kinds, common, HEADLINE)
    notices += _about_order(found, kinds, common)
    median = {a["row"]: a["value"] for a in aggregates if a["figure"] == "median_ood"}
    rows = sorted(found.rows.values(), key=lambda r: (median[r.label] is None, -(median[r.label] or 0.0), r.label))
    place = {row.label: i for i, row in enumerate(rows)}
    return Leaderboard(
        layout=layout,
        rows=tuple(rows),
        cells=_cells_frame(found, layout, kinds, place),
        aggregates=pl.DataFrame(
            sorted(aggregates, key=lambda a: (place[a["row"]], AGGREGATES.index(a["figure"]), a["part"])),
            infer_schema_length=None,
        ),
        best=best_of(found, kinds, HEADLINE),
        common=tuple(common),
        notices=tuple(dict.fromkeys(notices)),
    )


def _of_runs(runs: Sequence[BoardRun]) -> tuple[Cells, list[str]]:
    found, notices = Cells({}, {}), []
    for run in runs:
        drawn = run.draws()
        label = run.label
        row = found.rows.setdefault(label, Row(label, run.kind, run.llm))
        if run.parts["id"] is None and run.task["regime"] != "ood":
            notices.append(f"{run.task['id']} has no single test set in distribution")
        _add(found, row, run, run.document["scores"], drawn[run.method["id"]])
        for name, scores in run.document["controls"].items():
            called = run.control_label(name)
            control = found.rows.setdefault(called, Row(called, CONTROL, llm=False))
            differing = _add(found, control, run, scores, drawn[name])
            if differing:
                notices.append(f"{called} on {run.task['id']} differs between runs (another seed?); the first is shown")
    return found, notices


def _add(found: Cells, row: Row, run: BoardRun, scores: Any, drawn: Measured) -> bool:
    """Put a method's figures on one task down; whether another run had given other ones."""
    differing = False
    for part, at in run.parts.items():
        if at is None:
            continue
        for figure in SHOWN[run.task["kind"]]:
            if f"{at}.{figure}" not in scores:
                continue
            shown = scores.get(f"{at}.{figure}_retuned", scores[f"{at}.{figure}"])
            draws = drawn.figures[at].draws
            key = row.label, run.task["id"], figure, part
            estimate = Estimate(**{**shown, "title": figure})
            of_figure = draws.get(f"{figure}_retuned", draws.get(figure))
            # A median over several sets is a figure of none of them.
            statuses = run.document["counts"].get(at, {}).get("statuses", {})
            usable = statuses.get(OK, 0) + statuses.get(ABSTAINED, 0)
            if estimate.value is not None and estimate.n < LEAST_SCORED * usable:
                # Whoever may choose what to answer answers what is easy.
                estimate = undefined(figure, f"abstained on {usable - estimate.n} of {usable}", estimate.n)
                of_figure = None
            cell = Cell(estimate, run.task["regime"], of_figure)
            held = found.cells.setdefault(key, cell)
            differing |= held.estimate.value != cell.estimate.value
    return differing


def _add_published(found: Cells, published: Sequence[PublishedCell], layout: str, notices: list[str]) -> None:
    """Published figures of the tasks there are runs of, where they were measured on the layout's data."""
    there = {task for _, task, _, _ in found.cells}
    for cell in published:
        if cell.task not in there:
            continue
        if cell.number in POST_ONLY and layout != "post":
            notices.append(f"published figures of {cell.task} are of the layout post, and are left out")
            continue
        label = f"{cell.method} (published)"
        found.rows.setdefault(label, Row(label, PUBLISHED, cell.llm))
        found.cells[label, cell.task, cell.figure, cell.part] = Cell(exact(cell.figure, cell.value, 0), None, None)
        if cell.number in UNSETTLED:
            notices.append(UNSETTLED[cell.number])
    if any(row.kind == PUBLISHED for row in found.rows.values()):
        notices.append("published figures have no interval; those of tasks 4 and 5 are the minimal criterion's")
        if layout == "post" and there & {t.id for t in tasks() if t.number in POST_ONLY}:
            notices.append(
                "tasks 1 and 2 as published: one test set; ID is trained in the regime id, OOD in the regime ood"
            )


def _about_order(found: Cells, kinds: Mapping[str, str], common: Sequence[str]) -> list[str]:
    if not common:
        return ["no task has an OOD figure in every row, so rows are in the order of their names"]
    left = [t for t in kinds if t not in common]
    said = f"ordered by the median OOD over {', '.join(common)}"
    if not left:
        return [said]
    lacking = sorted(
        {
            row.label
            for row in found.rows.values()
            for t in left
            if row.kind != CONTROL and found.get(row.label, t, HEADLINE[kinds[t]], "ood") is None
        }
    )
    if not lacking:
        return [said]
    return [f"{said}, which every row but controls has; {', '.join(left)}: missing from {', '.join(lacking)}"]


def _cells_frame(found: Cells, layout: str, kinds: Mapping[str, str], place: dict[str, int]) -> pl.DataFrame:
    order = list(kinds)
    rows = []
    for (label, task, figure, part), cell in sorted(
        found.cells.items(),
        key=lambda kv: (
            order.index(kv[0][1]), PARTS.index(kv[0][3]), place[kv[0][0]], SHOWN[kinds[kv[0][1]]].index(kv[0][2])
        ),
    ):  # fmt: skip
        row, e = found.rows[label], cell.estimate
        rows.append(
            {
                "row": label, "kind": row.kind, "llm": row.llm, "layout": layout, "task": task, "regime": cell.regime,
                "part": part, "figure": figure, "headline": figure == HEADLINE[kinds[task]], "value": e.value,
                "low": e.low, "high": e.high, "n": e.n or None, "n_questions": e.n_clusters or None, "status": e.status,
            }
        )  # fmt: skip
    return pl.DataFrame(rows, schema=CELLS)
