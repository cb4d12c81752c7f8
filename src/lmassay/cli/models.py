"""``lmassay models``: what there is to measure, and whether it can be measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.options import AcceptLicense, AllowPickle, Device, Json, Model, Revision
from lmassay.cli.progress import shown

app = typer.Typer(
    help="Models: what there is, and whether it can be measured.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_() -> None:
    """Print the bundled models and the families read by name."""
    from lmassay.models.anatomy import FAMILIES
    from lmassay.reports.terminal import print_models
    from lmassay.storage.fetch import BUNDLED

    print_models(list(BUNDLED.values()), [(f.name, f.model_types) for f in FAMILIES])


@app.command()
def check(
    model: Model,
    revision: Revision = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    allow_pickle: AllowPickle = False,
    as_json: Json = False,
) -> None:
    """Self-check a model, and print how far option scores move with batch size, padding side and dtype.

    Exit status 4 when float32 scores move by more than they may.
    """
    from lmassay.errors import FINDING
    from lmassay.models.numerics import numerics_table
    from lmassay.models.open import open_model
    from lmassay.reports.terminal import print_check

    opened = open_model(
        model, revision=revision, device=device, accept_license=accept_license, allow_pickle=allow_pickle
    )
    rows = numerics_table(opened)
    if as_json:
        typer.echo(
            json.dumps(
                {"self_check": opened.numerics, "packing": opened.packing, "numerics": [r.to_dict() for r in rows]}
            )
        )
    else:
        print_check(opened.name, opened.anatomy.family, opened.packing, opened.numerics, rows)
    if any(row.exceeds for row in rows):
        raise typer.Exit(FINDING)


@app.command()
def fit_lens(
    model: Model,
    text: Annotated[Path, typer.Option(help="Plain UTF-8 text to fit on; its end is held out.")],
    steps: Annotated[int, typer.Option(help="Of stochastic gradient descent.")] = 100,
    tokens_per_step: Annotated[int, typer.Option(help="Tokens a step is averaged over.")] = 512,
    lr: Annotated[float, typer.Option(help="Learning rate, falling to zero in a straight line.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the order of the text and the intervals.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Lens folder; by default the place in the cache that --lens tuned reads.")
    ] = None,
    revision: Revision = None,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (default), float64, bfloat16 or float16.")] = None,
    accept_license: AcceptLicense = False,
    allow_pickle: AllowPickle = False,
    as_json: Json = False,
) -> None:
    """Fit a tuned lens: a translator per depth that brings its distribution near the model's own.

    Stopped anywhere, the same command goes on where it stopped. Prints the divergence on held-out text per depth.
    Exit status 4 when the lens came out worse than the logit lens at some depth.
    """
    from lmassay.errors import FINDING
    from lmassay.models.fit_lens import FitSettings, fit_lens
    from lmassay.models.lens_text import read_text
    from lmassay.models.open import open_model
    from lmassay.models.tuned_lens import kept_folder
    from lmassay.reports.lenses import print_fit

    settings = FitSettings(steps, tokens_per_step, lr, seed)
    content = read_text(text)
    print(f"opening {model}", file=sys.stderr)
    opened = open_model(
        model, revision=revision, device=device, dtype=dtype, accept_license=accept_license, allow_pickle=allow_pickle
    )
    with shown("fitting") as progress:
        result = fit_lens(
            opened, content, out or kept_folder(opened), settings, replace_other=out is None, progress=progress
        )
    if result.resumed_step:
        print(f"{result.resumed_step} of {steps} steps were already done", file=sys.stderr)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=1))
    else:
        print_fit(opened.name, result)
    if result.worse:
        n, of = len(result.worse), len(result.held_out)
        typer.echo(f"worse than the logit lens at {n} of {of} depths: fit it again with a smaller --lr", err=True)
        raise typer.Exit(FINDING)
