"""``lmassay cot show --probe``: what the probe of a finished run used of one example."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import typer


def show_probe(
    task: str,
    example: str,
    run: Path,
    activations: Path | None,
    source: Path | None,
    model: str | None,
    top: int,
    *,
    as_json: bool,
) -> None:
    """Print the tokens with the largest contribution; layout, regime and validation are the run's own."""
    from lmassay.cot.catalogue import find_example
    from lmassay.cot.load import load_task
    from lmassay.cot.probe_view import run_of_probe, view_probe
    from lmassay.errors import LmassayError
    from lmassay.reports.cot_probe import print_probe_view

    of_run = run_of_probe(run)["identity"]["task"]
    if source is not None:
        data = load_task(task, source=source)
    elif of_run["layout"] == "own":
        raise LmassayError("bad-request", f"{run} is a run on data of one's own", "add --source FILE")
    else:
        data = load_task(task, of_run["layout"], of_run["regime"], validation=of_run["validation"])
    split, found = find_example(data, example)
    view = view_probe(run, data, split, found, partial(token_texts, model), activations)
    if as_json:
        # ASCII, so that nothing a text holds reaches the terminal.
        typer.echo(json.dumps({"task": data.task.id, **view.to_dict(top)}, indent=1, ensure_ascii=True))
    else:
        print_probe_view(data.task.id, view, top)


def token_texts(place: str | None, reader: str, ids: list[int]) -> list[str]:
    """The text of each token of a reader, by its own tokenizer; activations know a folder by its last name only.

    Raises
    ------
    LmassayError
        ``model-not-found`` where the reader is at no place of its name.
    """
    from lmassay.errors import LmassayError
    from lmassay.models.open import open_tokenizer

    try:
        tokens = open_tokenizer(place or reader)
    except LmassayError as error:
        if place is not None:
            raise
        raise LmassayError(error.code, error.what, "say with --model where the reader is") from error
    return [str(tokens.hf.decode([i])) for i in ids]
