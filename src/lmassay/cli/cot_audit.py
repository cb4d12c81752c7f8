"""``lmassay cot audit``: what gives a data set's labels away, and what its splits share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.options import Json, Layout, Regime
from lmassay.cli.progress import shown


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(audit)


def audit(
    target: Annotated[
        str, typer.Argument(metavar="TASK|FILE", help="A task of the store, or a Parquet, JSONL or CSV file.")
    ],
    task: Annotated[str | None, typer.Option(help="The task a FILE is of: its label words and their order.")] = None,
    layout: Layout = "head",
    regime: Regime = None,
    max_auroc: Annotated[
        float, typer.Option(help="What a visible feature may reach: its corrected lower bound.")
    ] = 0.6,
    seed: Annotated[int, typer.Option(help="Of the bootstrap and the folds.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="Print every feature and every name.")] = False,
    as_json: Json = False,
) -> None:
    """Audit a data set, worst finding first; exit status 4 when what a method sees gives the label away."""
    from lmassay.cot.audit.read import SUFFIXES
    from lmassay.cot.audit.run import audit_file, audit_task
    from lmassay.errors import FINDING, LmassayError
    from lmassay.reports.cot_audit import print_audit

    path = Path(target)
    is_file = path.suffix in SUFFIXES or path.exists()
    if is_file and (layout != "head" or regime is not None):
        raise LmassayError("bad-request", "a file has no layout and no regime", "leave --layout and --regime out")
    if task is not None and not is_file:
        raise LmassayError("bad-request", "--task says what a file is of", f"leave it out, or is {target!r} a file?")
    with shown("features") as progress:
        if is_file:
            report = audit_file(path, task, max_auroc=max_auroc, seed=seed, progress=progress)
        else:
            report = audit_task(target, layout, regime, max_auroc=max_auroc, seed=seed, progress=progress)
    if as_json:
        # ASCII, so that nothing a text holds reaches the terminal.
        typer.echo(json.dumps(report.to_dict(), indent=1, ensure_ascii=True))
    else:
        print_audit(report, full=full)
    if report.leaks:
        raise typer.Exit(FINDING)
