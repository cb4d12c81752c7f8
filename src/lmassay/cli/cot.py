"""``lmassay cot``: the tasks on chains of thought, and their data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lmassay.cli.options import Json, Layout, Regime, Source, Task
from lmassay.cli.progress import shown

app = typer.Typer(
    help="Nine tasks on chains of thought, and the controls a method must beat.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def tasks(layout: Layout = "head", as_json: Json = False) -> None:
    """List the tasks with the sizes of their splits, and what of them is in the store."""
    from lmassay.cot.catalogue import list_tasks
    from lmassay.cot.task import LAYOUTS
    from lmassay.errors import LmassayError, nearest
    from lmassay.reports.cot_data import print_tasks

    if layout not in LAYOUTS:
        raise LmassayError("bad-request", f"no layout {layout!r}", nearest(layout, LAYOUTS))
    rows = list_tasks(layout)
    if as_json:
        typer.echo(json.dumps([_row(row) for row in rows], indent=1))
    else:
        print_tasks(rows)


def _row(row: Any) -> dict[str, Any]:
    task = row.task
    names = ("number", "id", "question", "subject", "kind", "metric", "positive", "negative", "unit", "label_rule")
    about = {name: getattr(task, name) for name in names}
    about |= {"segments": list(task.segments), "quirks": list(task.quirks)}
    return {**about, "layout": row.layout, "sizes": row.sizes, "store": row.state}


@app.command()
def show(
    task: Task,
    example: Annotated[str, typer.Argument(metavar="ID", help="An example's key or id, or SPLIT:ROW such as test:0.")],
    layout: Layout = "head",
    regime: Regime = None,
    source: Source = None,
    full: Annotated[bool, typer.Option("--full", help="Print all of a long text.")] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Print it token by token, as the reader --model gets it.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="With --tokens: the reader. With --probe: where it is, if it is a folder.")
    ] = None,
    probe: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Print what the probe of a finished run used of it instead.")
    ] = None,
    activations: Annotated[
        Path | None, typer.Option(help="With --probe: where the run's activations are now, if they were moved.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="With --probe: so many tokens, largest contribution first.")] = 20,
    as_json: Json = False,
) -> None:
    """Print one example as a method sees it: its visible segments, and nothing else."""
    from lmassay.cot.catalogue import find_example
    from lmassay.cot.load import load_task
    from lmassay.reports.cot_data import example_json, print_example

    if probe is not None:
        from lmassay.cli.probe_shown import show_probe

        show_probe(task, example, probe, activations, source, model, top, as_json=as_json)
        return
    data = load_task(task, layout, regime, source)
    split, found = find_example(data, example)
    if tokens:
        from lmassay.cli.cot_activations import show_tokens

        show_tokens(found, model, full=full, as_json=as_json)
    elif as_json:
        # ASCII, so that nothing a text holds reaches the terminal.
        typer.echo(json.dumps(example_json(data.task.id, split, found), indent=1, ensure_ascii=True))
    else:
        print_example(data.task.id, split, found, full=full)
        for kind in data.missing:
            typer.echo(f"\nsegment {kind}: not in this data")


@app.command("import")
def import_(
    source: Annotated[
        str, typer.Argument(help="A checkout, an archive of one, the Parquet export, or published@COMMIT.")
    ],
    processes: Annotated[int, typer.Option(min=1, max=2, help="Processes that read JSON files.")] = 2,
    as_json: Json = False,
) -> None:
    """Import the published data into the store, and print what was found beside what the release counts.

    Exit status 4 when something is missing or was kept out; what fits is imported all the same.
    """
    from dataclasses import asdict

    from lmassay.cot.published import import_published
    from lmassay.errors import FINDING
    from lmassay.reports.cot_data import print_import

    with shown("parts") as progress:
        report = import_published(source, processes=processes, progress=progress)
    if as_json:
        typer.echo(json.dumps({**asdict(report), "as_published": report.as_published}, indent=1))
    else:
        print_import(report)
    if not report.as_published:
        raise typer.Exit(FINDING)
