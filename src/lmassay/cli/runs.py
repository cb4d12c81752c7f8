"""Commands on finished runs: show, rescore, bundle, cite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.finished import rescored_of, show_run
from lmassay.cli.options import Json, Plain

Run = Annotated[Path, typer.Argument(help="A run folder.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(show)
    app.command()(rescore)
    app.command()(bundle)
    app.command()(cite)


def show(run: Run, plain: Plain = False, as_json: Json = False) -> None:
    """Print a run: evidence first, then heat maps, scores, families and counts."""
    from lmassay.storage.runs import check_tables, read_record, read_scores

    document = read_scores(run)
    # Before anything is printed: figures above an error would be taken for the run's.
    check_tables(run, read_record(run))
    show_run(run, document, as_json=as_json, plain=plain, maps=True)


def rescore(run: Run, as_json: Json = False) -> None:
    """Compute every score again from the run's tables, without a model, and compare.

    Exit status 4 when one differs from what stood in scores.json, which is then rewritten.
    """
    from lmassay.errors import FINDING
    from lmassay.storage.rescore import rescore_run
    from lmassay.storage.runs import SCORES, read_record

    suite = read_record(run)["identity"].get("suite")
    absent = not (run / SCORES).exists()
    document, differing = rescore_run(run, rescored_of(suite))
    show_run(run, document, as_json=as_json)
    if differing is not None:
        what = f"{SCORES} was not there, and was written" if absent else f"{SCORES} was rewritten: {differing} differed"
        typer.echo(what, err=True)
        raise typer.Exit(FINDING)
    if not as_json:
        typer.echo("all scores are as before")


def bundle(
    run: Annotated[Path, typer.Argument(help="A run folder, or with --verify a bundle.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check a bundle: hashes, and scores computed again.")
    ] = False,
) -> None:
    """Pack a run with its hashes, so that another machine can verify it."""
    from lmassay.errors import LmassayError
    from lmassay.storage.bundle import verify_bundle, write_bundle

    if verify and run.is_dir():
        raise LmassayError("bad-request", f"{run} is a folder", "name the bundle's file, or leave --verify out")
    if out is not None and out.is_dir():
        raise LmassayError("bad-request", f"{out} is a folder", "name a file for the bundle")
    if verify:
        typer.echo(f"{run}: hashes hold and all scores come out again ({verify_bundle(run, rescored_of)})")
        return
    path = out or run.parent / f"{run.name}.lmassay.tar.gz"
    typer.echo(f"{path}  sha256 {write_bundle(run, path)}")


def cite(run: Run) -> None:
    """Print a LaTeX table row, a BibTeX entry and the run's content hash."""
    from lmassay.reports.cite import citation

    typer.echo(citation(run))
