"""``lmassay cot features``: what the features of a finished run's head are about."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.options import Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command()(features)


def features(
    run: Annotated[Path, typer.Argument(help="A finished run of --method sae, tfidf or tfidf_all.")],
    top: Annotated[int, typer.Option(min=1, help="So many features, largest weight first.")] = 10,
    activations: Annotated[
        Path | None, typer.Option(help="Where the run's activations are now, if they were moved.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Where the reader is, if not at its name: a bundled name, folder or hub id.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what a run's head weighs most: words, or features of a sparse autoencoder where each is largest."""
    from lmassay.cli.probe_shown import token_texts
    from lmassay.cot.feature_view import view_features
    from lmassay.cot.terms import terms_of_run
    from lmassay.reports.cot_features import print_features, print_terms

    terms = terms_of_run(run)
    if terms is not None:
        if as_json:
            typer.echo(json.dumps(terms.head(top).to_dicts(), indent=1, ensure_ascii=True))
        else:
            print_terms(terms, top)
        return
    choices, views = view_features(run, top, partial(token_texts, model), activations)
    if as_json:
        # ASCII, so that nothing a text holds reaches the terminal.
        typer.echo(json.dumps([v.to_dict() for v in views], indent=1, ensure_ascii=True))
        return
    print_features(choices, views)
