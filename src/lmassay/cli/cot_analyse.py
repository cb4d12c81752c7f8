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
    seed: Annotated[int, typer.Option(help="Of the intervals.")] = 0,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the figure as .svg or .png.")] = None,
    as_json: Json = False,
) -> None:
    """Analyse the published answer distributions of task 8, or the selections of task 9 and what they cost."""
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
    if figure is not None:
        check_suffix(figure)
    data = load_task(task, layout)
    report, print_report, chart = _entropy(data, seed) if kind == "regression" else _compression(data, seed)
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


def _compression(data: Any, seed: int) -> tuple[Any, Any, Any]:
    from lmassay.cot.compression import published_cells
    from lmassay.cot.compression_scores import compression_report
    from lmassay.reports.cot_charts import compression_figure
    from lmassay.reports.cot_published import print_compression

    return compression_report(published_cells(data), seed=seed), print_compression, compression_figure
