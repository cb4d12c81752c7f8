"""``lmassay xray calibrate``: the instrument tested on models whose skill is known."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.options import Json
from lmassay.cli.progress import shown


def calibrate(
    positives: Annotated[int, typer.Option(help="Models trained to have the skill, over three groups.")] = 102,
    negatives: Annotated[int, typer.Option(help="Models untrained or following a surface cue, over five kinds.")] = 400,
    shuffled: Annotated[int, typer.Option(help="Models trained on answers shuffled over a template's tasks.")] = 24,
    apart: Annotated[int, typer.Option(help="Models that read something off the prompt and lack the skill.")] = 64,
    seed: Annotated[int, typer.Option(help="Of models, batteries and controls.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes, each with one thread.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the results; resumed.")] = Path("runs/calibrate"),
    as_json: Json = False,
) -> None:
    """Make models of known skill, put each through the suite, and count how often each figure is right.

    Exit status 4 when the goal is missed.
    """
    from lmassay.errors import FINDING
    from lmassay.reports.calibration import print_calibration
    from lmassay.xray.calibrate.run import Counts, run_calibration

    counts = Counts(positives, negatives, shuffled, apart, seed)
    with shown("models") as progress:
        document = run_calibration(
            counts, out, workers=workers, command=" ".join(["lmassay", *sys.argv[1:]]), progress=progress
        )
    if as_json:
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        print_calibration(document)
        typer.echo(f"\nresults: {out}")
    if any(part["verdict"] == "missed" for part in document["goal"].values()):
        raise typer.Exit(FINDING)
