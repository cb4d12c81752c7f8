"""``lmassay xray power``: how many templates and tasks a question needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.options import Json


def power(
    run: Annotated[Path, typer.Argument(help="A finished run, as pilot.")],
    effect: Annotated[
        list[float] | None, typer.Option(help="True difference to be found; may be given several times.")
    ] = None,
    tasks: Annotated[list[int] | None, typer.Option(help="Tasks per template; may be given several times.")] = None,
    chance: Annotated[float, typer.Option("--power", help="Chance to find the difference at alpha = .05.")] = 0.8,
    as_json: Json = False,
) -> None:
    """Say how many templates, with how many tasks each, would find a difference, from a pilot run's variances."""
    from lmassay.reports.power import print_power
    from lmassay.xray.power import EACH, EFFECTS, power_table

    table = power_table(run, effects=effect or EFFECTS, each=tasks or EACH, power=chance)
    if as_json:
        typer.echo(json.dumps(table, indent=1, allow_nan=False))
    else:
        print_power(table)
