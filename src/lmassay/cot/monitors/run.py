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
from lmassay.cot.monitors.settings import Items, checked_generation
from lmassay.cot.monitors.templates import template_for
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
    seed: int = 0,
    out: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
    display: str = "none",
) -> Evaluation:
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
        return evaluate(data, monitor, seed=seed, out=out, command=command, progress=progress)


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
