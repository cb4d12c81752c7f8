"""``lmassay models train-sae``: a small sparse autoencoder of one's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.options import AcceptLicense, AllowPickle, Device, Json, Model, Revision
from lmassay.cli.progress import shown


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command()(train_sae)


def train_sae(
    model: Model,
    text: Annotated[Path, typer.Option(help="Plain UTF-8 text to train on; its end is held out.")],
    block: Annotated[int, typer.Option(help="The block whose output is taken apart; the first is 0.")],
    out: Annotated[Path, typer.Option(help="Folder for the autoencoder, in the layout of sae-lens.")],
    features: Annotated[int, typer.Option(help="How many features it has.")] = 2048,
    k: Annotated[int, typer.Option(help="How many of them are on at a token.")] = 32,
    tokens: Annotated[int, typer.Option(help="Tokens trained on, at most; their states are held in memory.")] = 200_000,
    passes: Annotated[int, typer.Option(help="How often each token is seen.")] = 5,
    batch: Annotated[int, typer.Option(help="Tokens of one step.")] = 2048,
    lr: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Of weights, order and intervals.")] = 0,
    revision: Revision = None,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (default), float64, bfloat16 or float16.")] = None,
    accept_license: AcceptLicense = False,
    allow_pickle: AllowPickle = False,
    as_json: Json = False,
) -> None:
    """Train a sparse autoencoder on the states after one block, by sae-lens; `cot run --method sae` reads it.

    Prints how much of the variance it explains on held-out text.
    """
    from lmassay.models.lens_text import read_text
    from lmassay.models.open import open_model
    from lmassay.models.saes.train import SaeSettings, check_installed
    from lmassay.models.saes.train import train_sae as train
    from lmassay.reports.saes import print_trained

    check_installed()
    settings = SaeSettings(features, k, tokens, passes, batch, lr, seed)
    content = read_text(text)
    print(f"opening {model}", file=sys.stderr)
    opened = open_model(
        model, revision=revision, device=device, dtype=dtype, accept_license=accept_license, allow_pickle=allow_pickle
    )
    with shown("training") as progress:
        result = train(opened, content, block, out, settings, progress=progress)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=1))
        return
    print_trained(opened.name, block, result)
