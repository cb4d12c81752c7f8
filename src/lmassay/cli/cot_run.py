"""``lmassay cot run``: a method on a task, held against its controls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lmassay.cli.cot_monitor import (
    MONITOR,
    Confidence,
    MonitorModel,
    Samples,
    Shots,
    refuse_without_monitor,
    run_monitor,
)
from lmassay.cli.finished import default_out, show_run
from lmassay.cli.options import Json, Layout, Regime, Source, Task
from lmassay.cli.progress import shown

#: Methods of ours that are held against the controls; written out, for the registry is not loaded for a help text.
OWN = ("tfidf", "tfidf_all", "linear", "attention", "mean_difference", "lda", "sae", MONITOR)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(run)


def run(
    task: Task,
    method: Annotated[
        str,
        typer.Option(help=f"{', '.join(OWN)}, a control, or a method of an installed package."),
    ],
    layout: Layout = "head",
    regime: Regime = None,
    validation: Annotated[
        str | None, typer.Option(help="published or held_out; by default the task's own choice.")
    ] = None,
    source: Source = None,
    activations: Annotated[
        Path | None, typer.Option(help="For a method that reads activations: a folder of `lmassay cot activations`.")
    ] = None,
    train_cap: Annotated[
        int | None, typer.Option(help="At most so many training rows: whole questions, classes balanced.")
    ] = None,
    test_cap: Annotated[
        int | None,
        typer.Option(help="At most so many rows of validation and of each test split, over all questions."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the method; any number of times.")
    ] = None,
    monitor_model: MonitorModel = None,
    shots: Shots = None,
    confidence: Confidence = False,
    samples: Samples = None,
    seed: Annotated[int, typer.Option(help="Of the method and the intervals.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Run folder; resumed if it holds this run unfinished.")] = None,
    as_json: Json = False,
) -> None:
    """Fit a method on a task's training rows and score its test sets, with every control the task allows beside it."""
    from lmassay.cot.evaluate import evaluate
    from lmassay.errors import LmassayError, nearest
    from lmassay.methods.constructor import parsed_options
    from lmassay.methods.registry import known_methods, load_method

    if method == MONITOR:
        from lmassay.cot.monitors.settings import Items

        items = Items(task, layout, regime, validation, source, train_cap)
        option = [*(option or []), *([f"limit={test_cap}"] if test_cap is not None else [])]
        run_monitor(items, monitor_model, shots, confidence, samples, option, seed, out, as_json)
        return
    refuse_without_monitor(monitor_model, shots, confidence, samples)
    if method not in known_methods():
        raise LmassayError("bad-request", f"no method {method!r}", nearest(method, [*known_methods(), MONITOR]))
    options = parsed_options(load_method(method), option or [])
    caps = [f"cap{train_cap}" if train_cap else "", f"test{test_cap}" if test_cap else ""]
    reading = [activations.name if activations else "", *caps, *(option or [])]
    data_name = source.stem if source else layout
    path = out or default_out("cot", task, data_name, regime or "", validation or "", method, *reading)
    with shown("methods") as progress:
        result = evaluate(
            task,
            method,
            layout=layout,
            regime=regime,
            validation=validation,
            source=source,
            activations=activations,
            train_cap=train_cap,
            test_cap=test_cap,
            options=options,
            seed=seed,
            out=path,
            command=" ".join(["lmassay", *sys.argv[1:]]),
            progress=progress,
        )
    show_run(path, result.document, as_json=as_json)
