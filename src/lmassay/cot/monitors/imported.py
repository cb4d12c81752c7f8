"""A log of ``inspect eval lmassay/TASK`` as a run of ours."""

from __future__ import annotations

from pathlib import Path

from lmassay.cot.evaluate import Evaluation, Progress, evaluate
from lmassay.cot.export import scored_splits
from lmassay.cot.load import load_task
from lmassay.cot.monitors.logs import ReadLog, read_log, replies_in
from lmassay.cot.monitors.templates import SELECTION, template_for
from lmassay.cot.monitors.told import Monitor, Reply
from lmassay.cot.slices import sliced
from lmassay.cot.task import TaskData
from lmassay.errors import LmassayError


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
    if template.kind == SELECTION:
        raise LmassayError(
            "bad-request",
            f"{path.name} holds sentences, whose cost is measured by the model that wrote the text",
            f"ask by `lmassay cot run {data.task.id} --method monitor`, which looks costs up or has them measured",
        )
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
                f"{log.path.name} ({log.status}) lacks replies to {len(lacking)} of {len(keys)} examples of {name}",
                "finish it with `inspect eval-retry`; for fewer items use -T limit=N instead of --limit",
            )
