"""``lmassay cot analyse``: tasks 8 and 9 from what was published, without the text of any chain of thought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lmassay.cli.options import Json, Layout


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(analyse)


def analyse(
    task: Annotated[str, typer.Argument(help="answer_entropy (8) or compression (9).")],
    layout: Layout = "head",
    source: Annotated[Path | None, typer.Option(help="For compression: the cells.parquet of your own subject.")] = None,
    seed: Annotated[int, typer.Option(help="Of the intervals.")] = 0,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the figure as .svg or .png.")] = None,
    as_json: Json = False,
) -> None:
    """Analyse the published answer distributions of task 8, or selections of task 9 and what they cost."""
    from lmassay.cot.load import load_task
    from lmassay.cot.tasks import find_task
    from lmassay.errors import LmassayError
    from lmassay.reports.figure_file import check_suffix, save_chart
    from lmassay.storage.atomic import write_text

    kind = find_task(task).kind
    if kind not in ("regression", "selection"):
        raise LmassayError(
            "bad-request", f"{task} is a task for methods", "analyse answer_entropy or compression; others: cot run"
        )
    if source is not None and (kind == "regression" or layout != "head"):
        raise LmassayError(
            "bad-request", "only cells of task 9 are read from a file, and they have no layout",
            "leave --source out, or --layout with compression",
        )  # fmt: skip
    if figure is not None:
        check_suffix(figure)
    if kind == "regression":
        report, print_report, chart = _entropy(load_task(task, layout), seed)
    else:
        report, print_report, chart = _compression(_cells(task, layout, source), seed)
    if csv is not None:
        write_text(csv, (report.table if kind == "regression" else report.summary).write_csv())
    if figure is not None:
        save_chart(chart(report), figure)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=1))
    else:
        print_report(report)


def _entropy(data: Any, seed: int) -> tuple[Any, Any, Any]:
    from lmassay.cot.entropy import entropy_report
    from lmassay.reports.cot_charts import entropy_chart
    from lmassay.reports.cot_published import print_entropy

    return entropy_report(data, seed=seed), print_entropy, entropy_chart


def _cells(task: str, layout: str, source: Path | None) -> Any:
    if source is None:
        from lmassay.cot.compression import published_cells
        from lmassay.cot.load import load_task

        return published_cells(load_task(task, layout))
    from lmassay.cot.demo import DEMO, demo_file
    from lmassay.cot.own_cells import read_cells

    return read_cells(demo_file("compression") if str(source) == DEMO else source)


def _compression(cells: Any, seed: int) -> tuple[Any, Any, Any]:
    from lmassay.cot.compression_scores import compression_report
    from lmassay.reports.cot_charts import compression_figure
    from lmassay.reports.cot_published import print_compression

    return compression_report(cells, seed=seed), print_compression, compression_figure
