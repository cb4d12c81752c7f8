"""Inspect's logs as replies: read sample by sample, parsed anew from the words the model wrote."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.extra import needs_inspect
from lmassay.cot.monitors.templates import Template
from lmassay.cot.monitors.told import Reply
from lmassay.errors import FAILED_PART_WAY, LmassayError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

#: Samples held at a time.
_TOGETHER = 200
#: Fields of a sample that are long and tell nothing here.
_UNREAD = {"store", "events", "attachments", "messages", "events_data"}


@dataclass(frozen=True)
class ReadLog:
    """The head of a log.

    Attributes
    ----------
    path : Path
    model : str
        ``provider/name``.
    about : dict
        What `inspect_tasks.about_task` put down.
    asking : Asking
    status : str
        ``success``, or why there are samples missing.
    usage : dict
        Tokens, and money where the provider says it.
    """

    path: Path
    model: str
    about: dict[str, Any]
    asking: Asking
    status: str
    usage: dict[str, Any]


def read_log(path: Path) -> ReadLog:
    """The head of a log of one of our tasks.

    Raises
    ------
    LmassayError
        ``bad-request`` for what is no such log.
    """
    needs_inspect()
    from inspect_ai.log import read_eval_log

    from lmassay.cot.monitors.inspect_tasks import ABOUT

    if not path.is_file():
        raise LmassayError("bad-request", f"{path} is no file", "give a log that Inspect wrote (.eval or .json)")
    try:
        log = read_eval_log(str(path), header_only=True)
    except Exception as error:
        why = " ".join(str(error).split())[:160]
        raise LmassayError(
            "bad-request", f"{path.name} cannot be read as a log of Inspect: {why}", "give a whole .eval or .json file"
        ) from error
    about = (log.eval.metadata or {}).get(ABOUT)
    if not isinstance(about, dict) or not {"task", "layout", "data_sha256", "asking"} <= set(about):
        raise LmassayError(
            "bad-request",
            f"{path.name} is a log of {log.eval.task}, which is no task of lmassay",
            "run `inspect eval lmassay/TASK`, or `lmassay cot run TASK --method monitor`",
        )
    asking = Asking.from_dict(about["asking"])
    fault = f": {' '.join(log.error.message.split())[:160]}" if log.error is not None else ""
    return ReadLog(path, log.eval.model, about, asking, f"{log.status}{fault}", usage_of(log))


def usage_of(log: EvalLog) -> dict[str, Any]:
    """Tokens by kind, and dollars where they are known, over all samples."""
    found: dict[str, Any] = {}
    stats = log.stats.model_usage if log.stats is not None else {}
    for usage in stats.values():
        for name, n in usage.model_dump(exclude_none=True).items():
            found[name] = found.get(name, 0) + n
    return {"dollars" if name == "total_cost" else name: n for name, n in sorted(found.items())}


def replies_in(log: ReadLog, template: Template) -> Iterator[Reply]:
    """Every reply of a log; a sample that ended in an error is none.

    Raises
    ------
    LmassayError
        ``method-failed`` naming the first error, where samples ended in one.
    """
    failed: list[str] = []
    for sample in _samples(log.path):
        if sample.error is not None:
            failed.append(" ".join(sample.error.message.split())[:160])
            continue
        yield _reply(sample, log, template)
    if failed:
        raise LmassayError(
            "method-failed",
            f"{len(failed)} items have no reply: {failed[0]}",
            "run the same command again: what is there is kept, and only these are asked again",
            exit_status=FAILED_PART_WAY,
        )


def _samples(path: Path) -> Iterator[EvalSample]:
    """Every sample there is, some at a time: read one by one, each would cost a look through the whole archive."""
    from inspect_ai.log import read_eval_log_sample_summaries, read_eval_log_samples_by_id

    there = [(summary.id, summary.epoch) for summary in read_eval_log_sample_summaries(str(path))]
    for start in range(0, len(there), _TOGETHER):
        yield from read_eval_log_samples_by_id(
            str(path), there[start : start + _TOGETHER], resolve_attachments="core", exclude_fields=_UNREAD
        )


def _reply(sample: EvalSample, log: ReadLog, template: Template) -> Reply:
    from lmassay.cot.monitors.inspect_tasks import read_output

    about = sample.metadata
    found = read_output(sample.output, about, template, log.asking)
    usage = list(sample.model_usage.values())
    return Reply(
        split=str(about["split"]),
        key=int(about["key"]),
        sample=sample.epoch,
        # Sentences that were named are no number; that there are some is what counts as told.
        value=1.0 if found.sentences else math.nan if found.value is None else found.value,
        why=found.why,
        sentences=found.sentences,
        truncated=int(about.get("truncated", 0)),
        input_tokens=sum(u.input_tokens for u in usage),
        output_tokens=sum(u.output_tokens for u in usage),
    )
