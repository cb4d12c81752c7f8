"""``lmassay xray reproduce``: the paper's checkpoints, beside the paper's figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmassay.cli.options import Device, Json
from lmassay.cli.progress import shown_stages
from lmassay.errors import FAILED_PART_WAY

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel


def reproduce(
    models_dir: Annotated[
        Path | None, typer.Option(help="Folder with a folder of each checkpoint's name; the hub without.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="A checkpoint's name; may be given several times.")] = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Also run heldout54 on the three models of the paper's patterns.")
    ] = False,
    device: Device = None,
    seed: Annotated[int, typer.Option(help="Of control labels, intervals and nulls.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the run folders; resumed.")] = Path("runs/reproduce"),
    as_json: Json = False,
) -> None:
    """Run the paper's eight checkpoints and put each figure beside the paper's.

    Exit status 3 when a checkpoint is missing or failed; the others' figures are printed all the same.
    """
    from lmassay.xray.reproduce import chosen, complete
    from lmassay.xray.reproduce import reproduce as run_all

    def open_it(source: str) -> LanguageModel:
        from lmassay.models.open import open_model

        return open_model(source, device=device)

    checkpoints = chosen(only or ())
    with shown_stages() as progress:
        document = run_all(
            checkpoints,
            out,
            open_it,
            models_dir=models_dir,
            held_out=held_out,
            seed=seed,
            command=" ".join(["lmassay", *sys.argv[1:]]),
            progress=progress,
            begun=lambda line: print(line, file=sys.stderr),
        )
    if as_json:
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        from lmassay.reports.reproduction import print_reproduction

        print_reproduction(document)
        typer.echo(f"\nrun folders: {out}")
    if not complete(document):
        raise typer.Exit(FAILED_PART_WAY)
