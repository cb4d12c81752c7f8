"""``lmassay demo``: the main job on the bundled model."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

MODEL, BATTERY = "smollm2-135m", "core50"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(demo)


def demo(out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo")) -> None:
    """Run the xray suite on SmolLM2-135M-Instruct and core50: about two minutes on two cores, plus one at first."""
    from lmassay.cli.xray import run

    run([MODEL], battery=BATTERY, out=out)
    # `make demo` leaves the command in an environment that is not on the path.
    program = "lmassay" if shutil.which("lmassay") else sys.argv[0]
    typer.echo(f"again, and by hand: {program} xray run {MODEL} --battery {BATTERY}; {program} show {out}")
