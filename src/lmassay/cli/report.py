"""``lmassay report``: run folders as one HTML page."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(report)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, of either suite.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="HTML file to write.")] = Path("report.html"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    battery: Annotated[
        list[Path] | None, typer.Option(help="Battery file of an xray run, for its prompts; may be repeated.")
    ] = None,
) -> None:
    """Turn run folders into one HTML page that opens from disk: evidence first, then figures with their data."""
    from lmassay.cli.progress import shown
    from lmassay.reports.page.write import check_out, write_report
    from lmassay.xray.batteries import load_battery

    check_out(out, force=force)
    batteries = [load_battery(str(path)) for path in battery or ()]
    with shown("runs") if len(runs) > 1 else nullcontext() as progress:
        write_report(runs, out, force=force, batteries=batteries, progress=progress)
    typer.echo(f"{out}  {out.stat().st_size / 1e6:.1f} MB")
