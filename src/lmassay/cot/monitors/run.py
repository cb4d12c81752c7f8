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
from lmassay.cot.monitors.slices import sliced
from lmassay.cot.monitors.templates import template_for
from lmassay.cot.monitors.told import Monitor, Reply
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
            f"task {data.task.id} was published without the text of any chain of thought, so nobody can be asked about it",
            "build the task's data with a model of your own, and give its file as --source",
        )


def run_monitor(
    task: str | TaskData,
    model: str | Model,
    asking: Asking | None = None,
    *,
    layout: str = "head",
    regime: str | None = None,
    validation: str | None = None,
    source: Path | str | None = None,
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
        At most so many rows of validation and of each test split (`lmassay.cot.monitors.slices.sliced`).
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
    data = task
    if not isinstance(data, TaskData):
        from lmassay.cot.load import load_task

        data = load_task(str(task), layout, regime, source, validation=validation)
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


def checked_generation(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of Inspect's ``GenerateConfig``, typed by it.

    Raises
    ------
    LmassayError
        ``bad-request`` for an unknown name or a value that does not fit.
    """
    from inspect_ai.model import GenerateConfig
    from pydantic import ValidationError

    from lmassay.errors import nearest

    for name in given:
        if name not in GenerateConfig.model_fields:
            raise LmassayError(
                "bad-request", f"Inspect has no option {name!r}", nearest(name, GenerateConfig.model_fields)
            )
    try:
        config = GenerateConfig(**given)
    except ValidationError as error:
        fault = error.errors()[0]
        raise LmassayError(
            "bad-request", f"{'.'.join(str(p) for p in fault['loc'])}: {fault['msg']}", "see Inspect's GenerateConfig"
        ) from error
    return {name: getattr(config, name) for name in given}


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


def import_log(
    path: Path,
    *,
    source: Path | None = None,
    seed: int = 0,
    out: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Evaluation:
    """Score a finished log of ``inspect eval lmassay/TASK``.

    Parameters
    ----------
    source : path, optional
        The file of one's own data, where the log is of that and the file is elsewhere now.

    Raises
    ------
    LmassayError
        ``bad-request`` where the log is of other data, or items are missing; those of `evaluate`.
    """
    from lmassay.cot.load import load_task

    log = read_log(path)
    about = log.about
    given = source or about.get("source")
    data = load_task(about["task"], about["layout"], about.get("regime"), given, validation=about.get("validation"))\
        if given is None else load_task(about["task"], source=given)  # fmt: skip
    if about.get("limit") is not None:
        data = sliced(data, int(about["limit"]), log.asking.seed)
    if data.fingerprint != about["data_sha256"]:
        raise LmassayError(
            "bad-request",
            f"{path.name} is of other data of {about['task']}: {str(about['data_sha256'])[:16]}, here is"
            f" {data.fingerprint[:16]}",
            "import the data that the log is of, or ask again",
        )
    template = template_for(data.task)
    monitor = Monitor(
        template, log.asking, log.model, wording=about.get("wording_sha256"), structured=about.get("structured")
    )
    replies = list(replies_in(log, template))
    check_whole(data, replies, log)
    monitor.usage = log.usage
    monitor.hear(replies)
    return evaluate(data, monitor, seed=seed, out=out, command=command, progress=progress)


def check_whole(data: TaskData, replies: list[Reply], log: ReadLog) -> None:
    """Refuse a log that lacks items or replies.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    from lmassay.cot.export import scored_splits

    there: dict[int, int] = {}
    for reply in replies:
        there[reply.key] = there.get(reply.key, 0) + 1
    for name in scored_splits(data):
        split = data[name]
        keys = split.examples.keys[split.usable].tolist()
        lacking = [k for k in keys if there.get(k, 0) < log.asking.samples]
        if lacking:
            raise LmassayError(
                "bad-request",
                f"{log.path.name} lacks replies to {len(lacking)} of {len(keys)} examples of {name} (status {log.status})",
                "finish it with `inspect eval-retry`; for fewer items use -T limit=N instead of --limit",
            )
