"""``lmassay cot generate``: a task's data for another subject model."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmassay.cli.options import AcceptLicense, AllowPickle, Device, Revision, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmassay.cot.build.workshop import Asked, Draw
    from lmassay.models.attended import Attended
    from lmassay.models.sampling import Engine, Progress, Sample

#: Where the key of a server that wants one is read from.
KEY = "OPENAI_API_KEY"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(generate)


def generate(
    task: Task,
    model: Annotated[
        str, typer.Option(help="The subject: a bundled name, folder, .gguf file, hub id, or a server's name.")
    ],
    prompts: Annotated[Path, typer.Option(help="A JSONL file of questions.")],
    out: Annotated[Path, typer.Option(help="Folder of the data set; the same command again goes on in it.")],
    server: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server, as in http://localhost:8000/v1.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="With --server: the model's tokenizer, for exact prefixes; a folder or hub id.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="With --server: requests at a time.")] = 16,
    thinking: Annotated[str, typer.Option(help="auto, none, or OPEN,CLOSE: the markers around thinking.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A number or threshold of the task's builder.")
    ] = None,
    rollouts: Annotated[
        Path | None, typer.Option(help="Folder of stored samples, to share them between tasks; default: in --out.")
    ] = None,
    monitor_model: Annotated[
        str | None,
        typer.Option(help="Task 9: who is asked which sentences to keep, here or at the --server; default: MODEL."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of every draw.")] = 0,
    revision: Revision = None,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (default), float64, bfloat16 or float16.")] = None,
    accept_license: AcceptLicense = False,
    allow_pickle: AllowPickle = False,
) -> None:
    """Build a task's data for a subject model: rollouts, forced prefixes, labels, balance, splits, audit, card.

    No sample is drawn twice. Exit status 3 when no example qualified; the card says why.
    """
    from lmassay.cli.sampling_progress import shown_pace
    from lmassay.cot.build.asked_monitor import Monitor
    from lmassay.cot.build.prompts import read_questions
    from lmassay.cot.build.run import ROLLOUTS, find_builder
    from lmassay.cot.build.run import generate as build
    from lmassay.cot.build.settings import configured
    from lmassay.errors import LmassayError
    from lmassay.models.source import ModelSource
    from lmassay.models.thinking import AUTO
    from lmassay.storage.rollouts import opened

    # What can be wrong is looked at before a model is opened.
    id_, builder = find_builder(task)
    if monitor_model is not None and id_ != "compression":
        raise LmassayError("bad-request", f"no monitor is asked in {id_}", "leave --monitor-model out")
    configured(builder.settings, option or [])
    questions = read_questions(prompts, id_)
    source = ModelSource(
        model, revision=revision, device=device, dtype=dtype, accept_license=accept_license, allow_pickle=allow_pickle
    )
    with opened(rollouts or out / ROLLOUTS) as store, shown_pace("samples") as progress:
        engine, attended = _subject(source, server, tokenizer, thinking, concurrency, id_)

        def drawing(subject: Engine) -> Draw:
            return lambda asked: _draw(store, subject, asked, seed, progress)

        monitor = None
        if monitor_model is not None:
            asked, _ = _subject(replace(source, name=monitor_model, revision=None), server, None, AUTO, concurrency, "")
            monitor = Monitor(asked, drawing(asked))
        built = build(
            task, engine, questions, drawing(engine), out, seed=seed, options=option or [], attended=attended,
            monitor=monitor, say=_say,
        )  # fmt: skip
    for what, n in built.recipe["counts"].items():
        typer.echo(f"{what}: {n:,}")
    for why, n in built.dropped.most_common():
        typer.echo(f"left out: {n:,}, {why}")
    typer.echo(f"{built.rows:,} examples\ndata set: {built.folder}")


def _subject(
    source: Any, server: str | None, tokenizer: str | None, thinking: str, concurrency: int, task: str
) -> tuple[Engine, Attended | None]:
    if server is not None:
        from lmassay.models.open import open_tokenizer
        from lmassay.models.served import Served

        tokens = None if tokenizer is None else open_tokenizer(tokenizer)
        engine = Served(
            server, source.name, tokens=tokens, thinking=thinking, api_key=os.environ.get(KEY), concurrency=concurrency
        )
        for note in engine.notes:
            _say(f"note: {note}")
        return engine, None
    from lmassay.models.attended import SentenceAttention
    from lmassay.models.generate import InProcess

    _say(f"opening {source.name}")
    subject = InProcess(source.open(), thinking=thinking)
    return subject, SentenceAttention(subject) if task == "compression" else None


def _draw(store: Any, engine: Engine, asked: Sequence[Asked], seed: int, progress: Progress) -> list[list[Sample]]:
    from lmassay.models.drawing import Wanted, drawn_all

    return drawn_all(store, engine, [Wanted(*one) for one in asked], seed, progress=progress)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
