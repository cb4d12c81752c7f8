"""Where a run goes if nobody says, and how a finished one is shown."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from lmassay.storage.rescore import Rescored


def default_out(*parts: str) -> Path:
    """``runs/<parts>``, with what a file name should not hold replaced."""
    return Path("runs") / "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", part).strip("_.") for part in parts if part)


def rescored_of(suite: str) -> Rescored:
    """How the scores of a suite's runs are computed again from their tables."""
    if suite == "cot":
        from lmassay.cot.evaluate import rescored as of_cot

        return of_cot
    from lmassay.xray.run import rescored as of_xray

    return of_xray


def show_run(path: Path, document: dict[str, Any], *, as_json: bool, plain: bool = False, maps: bool = False) -> None:
    """Print a finished run of either suite and where it is.

    Parameters
    ----------
    plain : bool
        In ASCII and without colour.
    maps : bool
        With the heat maps.
    """
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    from lmassay.reports.style import ascii_only, in_ascii
    from lmassay.storage.runs import blaming, read_record

    if document.get("suite") == "cot":
        from lmassay.reports.cot_run import print_cot_run as printed
    else:
        from lmassay.reports.terminal import print_run as printed
    with ascii_only() if plain else nullcontext(), blaming(path):
        printed(read_record(path), document, folder=path if maps else None)
    where = f"\nrun folder: {path}"
    typer.echo(in_ascii(where) if plain else where)
