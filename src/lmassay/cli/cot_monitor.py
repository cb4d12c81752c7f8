"""``lmassay cot run TASK --method monitor`` and ``lmassay cot import-log``: language models that are asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmassay.cli.finished import default_out, show_run
from lmassay.cli.options import Json
from lmassay.cli.progress import shown

if TYPE_CHECKING:
    from lmassay.cot.monitors.settings import Items

MONITOR = "monitor"

MonitorModel = Annotated[
    str | None,
    typer.Option(help="With --method monitor: who is asked, as PROVIDER/NAME; lmassay/smollm2-135m runs here."),
]
Shots = Annotated[
    int | None, typer.Option(help="With --method monitor: examples shown with answers (none by default).")
]
Confidence = Annotated[
    bool, typer.Option("--confidence", help="With --method monitor: ask for a probability, not a label.")
]
Samples = Annotated[
    int | None, typer.Option(help="With --method monitor: replies to each item, averaged (1 by default).")
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("import-log")(import_log)


def refuse_without_monitor(model: str | None, shots: int | None, confidence: bool, samples: int | None) -> None:
    """Refuse options that only a monitor has.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    from lmassay.errors import LmassayError

    given = {"--monitor-model": model, "--shots": shots, "--confidence": confidence or None, "--samples": samples}
    for name, value in given.items():
        if value is not None:
            raise LmassayError(
                "bad-request", f"{name} is an option of --method monitor", "leave it out, or name monitor"
            )


def run_monitor(
    items: Items,
    model: str | None,
    shots: int | None,
    confidence: bool,
    samples: int | None,
    option: list[str],
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Ask a language model about a task's items."""
    from lmassay.cot.monitors.run import run_monitor as asked
    from lmassay.cot.monitors.settings import parsed_settings
    from lmassay.errors import LmassayError

    if model is None:
        raise LmassayError(
            "bad-request", "nobody is named to be asked", "give --monitor-model PROVIDER/NAME, as Inspect names models"
        )
    asking, more = parsed_settings(shots or 0, confidence, samples or 1, option)
    named = [f"{shots or 0}shot", "confidence" if confidence else "", f"x{samples}" if samples else "", *option]
    path = out or default_out("cot", *items.named, MONITOR, model, *named)
    with shown("methods") as progress:
        result = asked(
            items, model, asking, seed=seed, out=path, command=_command(), progress=progress,
            display="plain" if sys.stderr.isatty() and not as_json else "none", **more,
        )  # fmt: skip
    show_run(path, result.document, as_json=as_json)


def import_log(
    log: Annotated[Path, typer.Argument(help="A log of `inspect eval lmassay/TASK` (.eval or .json).")],
    source: Annotated[
        Path | None, typer.Option(help="The file of your own data that the log is of, where it is elsewhere now.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the controls and the intervals.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Run folder; resumed if it holds this run unfinished.")] = None,
    as_json: Json = False,
) -> None:
    """Score a log that Inspect wrote, with the controls, threshold and evidence of a method of ours."""
    from lmassay.cot.monitors.imported import import_log as scored

    path = out or default_out("cot", "log", log.stem)
    with shown("methods") as progress:
        result = scored(log, source=source, seed=seed, out=path, command=_command(), progress=progress)
    show_run(path, result.document, as_json=as_json)


def _command() -> str:
    return " ".join(["lmassay", *sys.argv[1:]])
