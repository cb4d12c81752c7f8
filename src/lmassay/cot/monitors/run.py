"""Ask a language model about a task's items, and score its replies like any method's."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.cot.evaluate import Evaluation, Progress, evaluate
from lmassay.cot.monitors.asking import Asking, check_asking
from lmassay.cot.monitors.extra import needs_inspect
from lmassay.cot.monitors.logs import ReadLog, read_log, replies_in
from lmassay.cot.monitors.selection import Costs, Selected, known_costs, measured_costs, run_selection
from lmassay.cot.monitors.settings import Items, checked_generation
from lmassay.cot.monitors.templates import SELECTION, template_for
from lmassay.cot.monitors.told import Monitor, Reply
from lmassay.cot.slices import sliced
from lmassay.cot.task import TaskData
from lmassay.errors import FAILED_PART_WAY, LmassayError

if TYPE_CHECKING:
    from inspect_ai.model import Model

#: Where Inspect's logs stand in a run folder.
LOGS = "inspect"
#: Times that Inspect goes through what failed, beside the retries of each request.
ATTEMPTS = 2


def check_text(data: TaskData) -> None:
    """Refuse data without the text that would be shown.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    if "cot" in data.missing:
        raise LmassayError(
            "bad-request",
            f"task {data.task.id} was published without any text of thoughts, so nobody can be asked about it",
            "build the task's data with a model of your own, and give its file as --source",
        )


def run_monitor(
    task: Items | TaskData | str,
    model: str | Model,
    asking: Asking | None = None,
    *,
    limit: int | None = None,
    structured: bool | None = None,
    base_url: str | None = None,
    generation: Mapping[str, Any] | None = None,
    cells: Path | None = None,
    subject: str | None = None,
    seed: int = 0,
    out: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
    display: str = "none",
) -> Evaluation | Selected:
    """Ask about every usable validation and test row, and hold the replies against the controls.

    Parameters
    ----------
    model : str or inspect_ai.model.Model
        As Inspect names it: ``provider/name``; ``lmassay/smollm2-135m`` runs in this process.
    limit : int, optional
        At most so many rows of validation and of each test split (`lmassay.cot.slices.sliced`).
    structured : bool, optional
        Whether the model is held to a schema of the reply; None: where its provider can.
    generation : mapping, optional
        Options of Inspect's ``GenerateConfig``: ``max_tokens``, ``temperature``, ``max_connections``, ``max_retries`` …
    cells : path, optional
        In a task of selection, cells of the same prefixes: the cost of what others chose too is looked up there.
        Default: ``cells.parquet`` beside the data's file.
    subject : str, optional
        In a task of selection, the model that wrote the text, in this process: it measures what the sentences cost.
    out : path, optional
        Run folder. Inspect's logs stand in ``inspect/`` there; the same call again asks only what has no reply yet.
    display : str
        Of Inspect: ``none``, ``plain``, ``rich``, ``full``.

    Raises
    ------
    LmassayError
        ``bad-request``; ``method-failed`` when items stay without a reply; those of `evaluate`.
    """
    needs_inspect()
    asking = replace(asking or Asking(), seed=seed)
    data = Items(task).load() if isinstance(task, str) else task if isinstance(task, TaskData) else task.load()
    check_text(data)
    template = template_for(data.task)
    check_asking(asking, template)
    if limit is not None:
        data = sliced(data, limit, seed)
    options = checked_generation(generation or {})
    if asking.samples > 1 and "temperature" not in options and str(model).startswith("lmassay/"):
        # A model in this process otherwise says the likeliest thing, each time the same.
        options["temperature"] = 1.0
    monitor = Asked(template, asking, str(model), structured=structured)
    monitor.options = options
    with ExitStack() as held:
        folder = out / LOGS if out is not None else Path(held.enter_context(tempfile.TemporaryDirectory()))

        def ask() -> tuple[dict[str, Any], list[Reply]]:
            log = asked(
                data, model, asking, folder, structured=structured, limit=limit, base_url=base_url, options=options,
                display=display,
            )  # fmt: skip
            return log.usage, list(replies_in(log, template))

        monitor.ask = ask
        if template.kind == SELECTION:
            if cells is None and subject is None:
                cells = _beside(task)
            about, costs = _costs(cells, subject)
            return run_selection(
                data, monitor, monitor.replied, costs, asking.m, about=about, seed=seed, out=out, command=command
            )
        return evaluate(data, monitor, seed=seed, out=out, command=command, progress=progress)


def _beside(task: Items | TaskData | str) -> Path | None:
    """The cells that were built with the data."""
    path = task.source.with_name("cells.parquet") if isinstance(task, Items) and task.source is not None else None
    return path if path is not None and path.is_file() else None


def _costs(cells: Path | None, subject: str | None) -> tuple[dict[str, Any], Costs]:
    """Where costs of sentences come from, for the record, and the costs."""
    if subject is not None:
        from lmassay.models.generate import InProcess
        from lmassay.models.source import ModelSource

        engine = InProcess(ModelSource(subject).open())
        return {"subject": engine.fingerprint}, measured_costs(engine)
    if cells is None:
        raise LmassayError(
            "bad-request",
            "nobody can say what the sentences that are named cost",
            "give the model that wrote the text, --option subject=MODEL, or its cells, --option cells=cells.parquet",
        )
    from lmassay.cot.own_cells import read_cells
    from lmassay.storage.fingerprint import file_sha256

    return {"cells": file_sha256(cells)}, known_costs(read_cells(cells))


class Asked(Monitor):
    """A monitor that asks when its scores are wanted first: by then the run folder is claimed and its identity fits."""

    ask: Any = None
    options: Mapping[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        """See `Monitor.settings`."""
        return super().settings() | {"generation": dict(self.options)}

    def _heard(self) -> None:
        if self.ask is not None:
            self.usage, replies = self.ask()
            self.ask = None
            self.hear(replies)

    def replied(self) -> list[Reply]:
        """Every reply, asked for now if it was not before."""
        self._heard()
        return list(self._replies)

    def score(self, X: Any) -> Any:
        """See `Method.score`."""
        self._heard()
        return super().score(X)

    def replies(self, data: TaskData) -> Any:
        """See `Monitor.replies`; a resumed run has its scores, and reads the replies again without asking."""
        self._heard()
        return super().replies(data)


def asked(
    data: TaskData,
    model: str | Model,
    asking: Asking,
    folder: Path,
    *,
    structured: bool | None,
    limit: int | None,
    base_url: str | None,
    options: Mapping[str, Any],
    display: str,
) -> ReadLog:
    """Have Inspect ask what has no reply yet; the log with all of them.

    Raises
    ------
    LmassayError
        ``method-failed``.
    """
    from inspect_ai import eval_set
    from inspect_ai._util.error import PrerequisiteError

    from lmassay.cot.monitors.inspect_tasks import monitor_task

    made = monitor_task(data, asking, structured=structured, limit=limit)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done, logs = eval_set(
            tasks=made,
            log_dir=str(folder.resolve()),
            log_dir_allow_dirty=True,
            model=model,
            model_base_url=base_url,
            retry_attempts=ATTEMPTS,
            retry_wait=1,
            continue_on_fail=True,
            display=display,  # type: ignore[arg-type]
            log_images=False,
            score_display=False,
            **options,
        )
    except PrerequisiteError as error:
        raise LmassayError(
            "bad-request", " ".join(str(error.message).split())[:300], "see Inspect's own advice"
        ) from error
    log = read_log(Path(_path(logs[-1].location)))
    if not done:
        # Says which items, and why.
        for _ in replies_in(log, template_for(data.task)):
            pass
        raise LmassayError(
            "method-failed",
            f"Inspect ended with the status {log.status}",
            "run the same command again: replies that are there are kept",
            exit_status=FAILED_PART_WAY,
        )
    return log


def _path(location: str) -> str:
    return location.removeprefix("file://")
