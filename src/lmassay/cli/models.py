"""``lmassay models``: what there is to measure, and whether it can be measured."""

from __future__ import annotations

import json

import typer

from lmassay.cli.options import AcceptLicense, AllowPickle, Device, Json, Model, Revision

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
