"""``lmassay cot leaderboard``, ``export`` and ``score``: runs side by side, and work done elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.finished import default_out, show_run
from lmassay.cli.options import Json, Layout, Regime, Source, Task
from lmassay.cli.progress import shown


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(leaderboard)
    app.command()(export)
    app.command()(score)


def leaderboard(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished cot runs, of one layout.")],
    with_published: Annotated[
        Path | None, typer.Option(help="results_summary.csv of the published repository, to stand beside the runs.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every figure as CSV.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the figure as .svg or .png.")] = None,
    as_json: Json = False,
) -> None:
    """Put runs side by side, ordered by median OOD; refused when layouts, regimes or data differ."""
    from lmassay.cot.leaderboard import leaderboard as made
    from lmassay.reports.figure_file import check_suffix, save_chart
    from lmassay.storage.atomic import write_text

    if figure is not None:
        check_suffix(figure)
    board = made(runs, with_published=with_published)
    if csv is not None:
        write_text(csv, board.table.write_csv())
    if figure is not None:
        from lmassay.reports.cot_charts import leaderboard_chart

        save_chart(leaderboard_chart(board), figure)
    if as_json:
        typer.echo(json.dumps(board.to_dict(), indent=1))
    else:
        from lmassay.reports.leaderboard import print_leaderboard

        print_leaderboard(board)


def export(
    task: Task,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    layout: Layout = "head",
    regime: Regime = None,
    source: Source = None,
    train_labels: Annotated[
        bool, typer.Option("--train-labels", help="Also write the labels of the training rows, and of no other.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a task's visible text, and a template for answers that `cot score` takes back."""
    from lmassay.cot.export import export_task
    from lmassay.cot.load import load_task

    made = export_task(load_task(task, layout, regime, source), folder, train_labels=train_labels)
    if as_json:
        typer.echo(json.dumps({"folder": str(made.folder), "rows": made.rows, "files": list(made.files)}, indent=1))
        return
    for name, n in made.rows.items():
        typer.echo(f"{name}: {n:,} examples")
    typer.echo(f"{folder}: {', '.join(made.files)}")


def score(
    task: Task,
    predictions: Annotated[Path, typer.Argument(help="Parquet, CSV or JSONL with split, key and score.")],
    name: Annotated[str, typer.Option(help="What the predictions are called in tables.")],
    llm: Annotated[bool, typer.Option("--llm", help="They are a language model's replies.")] = False,
    layout: Layout = "head",
    regime: Regime = None,
    source: Source = None,
    seed: Annotated[int, typer.Option(help="Of the controls and the intervals.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Run folder; resumed if it holds this run unfinished.")] = None,
    as_json: Json = False,
) -> None:
    """Score predictions made anywhere, with the controls, threshold and evidence of a method of ours."""
    from lmassay.cot.external import check_name, score_predictions
    from lmassay.cot.load import load_task

    check_name(name)
    path = out or default_out("cot", task, layout, regime or "", "external", name)
    data = load_task(task, layout, regime, source)
    with shown("methods") as progress:
        result = score_predictions(
            data,
            predictions,
            name=name,
            llm=llm,
            seed=seed,
            out=path,
            command=" ".join(["lmassay", *sys.argv[1:]]),
            progress=progress,
        )
    show_run(path, result.document, as_json=as_json)
