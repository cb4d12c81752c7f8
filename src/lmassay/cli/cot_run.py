"""``lmassay cot run``: a method on a task, held against its controls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.finished import default_out, show_run
from lmassay.cli.options import Json, Layout, Regime, Source, Task
from lmassay.cli.progress import shown


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(run)


def run(
    task: Task,
    method: Annotated[str, typer.Option(help="tfidf, tfidf_all, a control, or a method of an installed package.")],
    layout: Layout = "head",
    regime: Regime = None,
    validation: Annotated[
        str | None, typer.Option(help="published or held_out; by default the task's own choice.")
    ] = None,
    source: Source = None,
    seed: Annotated[int, typer.Option(help="Of the method and the intervals.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Run folder; resumed if it holds this run unfinished.")] = None,
    as_json: Json = False,
) -> None:
    """Fit a method on a task's training rows and score its test sets, with every control the task allows beside it."""
    from lmassay.cot.evaluate import evaluate

    path = out or default_out("cot", task, source.stem if source else layout, regime or "", validation or "", method)
    with shown("methods") as progress:
        result = evaluate(
            task,
            method,
            layout=layout,
            regime=regime,
            validation=validation,
            source=source,
            seed=seed,
            out=path,
            command=" ".join(["lmassay", *sys.argv[1:]]),
            progress=progress,
        )
    show_run(path, result.document, as_json=as_json)
