"""``lmassay cot run``: a method on a task, held against its controls."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lmassay.cli.options import Json
from lmassay.cli.progress import shown


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(run)


def show_cot_run(path: Path, document: dict[str, Any], *, as_json: bool) -> None:
    """Print a finished run and where it is."""
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    from lmassay.reports.cot_run import print_cot_run
    from lmassay.storage.runs import read_record

    print_cot_run(read_record(path), document)
    typer.echo(f"\nrun folder: {path}")


def run(
    task: Annotated[str, typer.Argument(help="A task's id or number, as `lmassay cot tasks` lists them.")],
    method: Annotated[str, typer.Option(help="tfidf, tfidf_all, a control, or a method of an installed package.")],
    layout: Annotated[str, typer.Option(help="head, or post: the data as of April 2026.")] = "head",
    regime: Annotated[
        str | None, typer.Option(help="id or ood: the training set, for tasks 1 and 2 of the layout post.")
    ] = None,
    validation: Annotated[
        str | None, typer.Option(help="published or held_out; by default the task's own choice.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="A Parquet or JSONL file of your own instead of the imported data.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the method and the intervals.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Run folder; resumed if it holds this run unfinished.")] = None,
    as_json: Json = False,
) -> None:
    """Fit a method on a task's training rows and score its test sets, with every control the task allows beside it."""
    from lmassay.cot.evaluate import evaluate

    words = (task, source.stem if source else layout, regime or "", validation or "", method)
    names = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", word).strip("_.") for word in words if word)
    path = out or Path("runs") / f"cot-{names}"
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
    show_cot_run(path, result.document, as_json=as_json)
