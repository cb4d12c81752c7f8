"""``lmassay xray run`` with several models, or on other machines: each model a run of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lmassay.cli.finished import show_run
from lmassay.cli.progress import shown

if TYPE_CHECKING:
    from lmassay.executors.job import Executor
    from lmassay.models.source import ModelSource
    from lmassay.xray.run import Settings


def run_many(
    sources: list[ModelSource],
    folders: list[Path],
    battery: str,
    settings: Settings,
    lens: str,
    place: Executor | None,
    *,
    as_json: bool,
) -> None:
    """Measure the models wherever that is to be done, then show all runs in the order in which they were named.

    Raises
    ------
    LmassayError
        ``bad-request`` when two of them would share a folder; what measuring raises. Runs that are done stay.
    """
    import torch

    from lmassay.errors import LmassayError
    from lmassay.executors.local import Local
    from lmassay.storage.runs import read_scores
    from lmassay.xray.many import Measurements

    whole = [folder.resolve() for folder in folders]
    if len(set(whole)) < len(whole):
        raise LmassayError("bad-request", "two of the models would share a run folder", "run them one by one")
    job = Measurements(
        tuple(sources),
        tuple(map(str, whole)),
        battery,
        settings,
        lens,
        " ".join(["lmassay", *sys.argv[1:]]),
        torch.get_num_threads(),
    )
    with shown("models") as progress:
        for done, _ in enumerate((place or Local()).run(job, range(len(sources))), 1):
            progress(done, len(sources))
    if as_json:
        typer.echo(json.dumps([read_scores(folder) for folder in folders], indent=1))
        return
    for folder in folders:
        show_run(folder, read_scores(folder), as_json=False)
        typer.echo()
