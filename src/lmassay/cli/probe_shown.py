"""``lmassay cot show --probe``: what the probe of a finished run used of one example."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def show_probe(
    task: str, example: str, run: Path, activations: Path | None, source: Path | None, top: int, *, as_json: bool
) -> None:
    """Print the tokens with the largest contribution; layout, regime and validation are the run's own."""
    from lmassay.cot.catalogue import find_example
    from lmassay.cot.load import load_task
    from lmassay.cot.probe_view import run_of_probe, view_probe
    from lmassay.reports.cot_probe import print_probe_view

    of_run = run_of_probe(run)["identity"]["task"]
    validation = of_run["validation"] if source is None else None
    data = load_task(task, of_run["layout"], of_run["regime"], source, validation=validation)
    split, found = find_example(data, example)
    view = view_probe(run, data, split, found, token_texts, activations)
    if as_json:
        # ASCII, so that nothing a text holds reaches the terminal.
        typer.echo(json.dumps({"task": data.task.id, **view.to_dict(top)}, indent=1, ensure_ascii=True))
    else:
        print_probe_view(data.task.id, view, top)


def token_texts(reader: str, ids: list[int]) -> list[str]:
    """The text of each token of a reader, by its own tokenizer."""
    from lmassay.models.open import open_tokenizer

    tokens = open_tokenizer(reader)
    return [str(tokens.hf.decode([i])) for i in ids]
