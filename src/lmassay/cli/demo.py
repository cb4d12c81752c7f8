"""``lmassay demo``: both suites on what comes with the package, and a report of it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

MODEL, BATTERY = "smollm2-135m", "core50"
#: Tasks of the demo's data that methods are run on.
TASKS = ("atypical_length", "atypical_answer")
#: Of the linear probe. They leave it nothing to choose, so that the few validation rows all serve the threshold.
BLOCK, POOLING = "12", "mean"
REPORT = "report.html"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(demo)


def demo(out: Annotated[Path, typer.Option(help="Folder of the runs and their report.")] = Path("runs/demo")) -> None:
    """Run both suites on SmolLM2-135M-Instruct: core50, then methods on chains of thought; some minutes on two cores.

    Each run is one that its own command makes too. The same command again goes on where it stopped.
    """
    from lmassay.cli.xray import run as run_xray

    xray = out / "xray"
    run_xray([MODEL], battery=BATTERY, out=xray)
    runs = [xray]
    for task in TASKS:
        runs += _chains_of_thought(task, out)
    page = out / REPORT
    _report(runs, page)
    # `make demo` leaves the command in an environment that is not on the path.
    program = "lmassay" if shutil.which("lmassay") else sys.argv[0]
    typer.echo(
        "\n".join(
            [
                "",
                f"report: {page}",
                "again, and by hand:",
                f"  {program} xray run {MODEL} --battery {BATTERY}",
                f"  {program} cot run {TASKS[0]} --source demo --method tfidf",
                *(f"  {program} show {run}" for run in runs),
            ]
        )
    )


def _chains_of_thought(task: str, out: Path) -> list[Path]:
    """Word counts and a linear probe on a task of the demo's data, each beside every control; returns their folders."""
    from lmassay.cli.cot_activations import activations
    from lmassay.cli.cot_run import run
    from lmassay.cot.demo import DEMO

    source, states = Path(DEMO), out / f"{task}-activations"
    words, probe = out / f"{task}-tfidf", out / f"{task}-linear"
    run(task, "tfidf", source=source, out=words)
    activations(task, model=MODEL, blocks=BLOCK, token_blocks="none", source=source, out=states)
    run(task, "linear", source=source, activations=states, option=[f"poolings={POOLING}"], out=probe)
    return [words, probe]


def _report(runs: list[Path], page: Path) -> None:
    from lmassay.reports.page.write import write_report

    write_report(runs, page, force=True)
