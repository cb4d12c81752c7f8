"""What Inspect finds under the name ``lmassay``: our tasks, their scorer and metrics, and our provider."""

from __future__ import annotations

from typing import Any

from inspect_ai import Task, task
from inspect_ai.model import modelapi

from lmassay.cot.monitors.asking import SKIP, Asking
from lmassay.cot.monitors.inspect_metrics import auroc, g_mean2, replies_told, unparsed
from lmassay.cot.monitors.inspect_tasks import ask, monitor_task, said
from lmassay.cot.tasks import task_ids

__all__ = ["ask", "auroc", "g_mean2", "lmassay_model", "monitor", "replies_told", "said", "unparsed"]


def monitor(
    name: str,
    layout: str = "head",
    regime: str | None = None,
    source: str | None = None,
    validation: str | None = None,
    shots: int = 0,
    confidence: bool = False,
    samples: int = 1,
    limit: int | None = None,
    max_chars: int | None = None,
    overlength: str = SKIP,
    m: int = 5,
    seed: int = 0,
    structured: bool | None = None,
) -> Task:
    """A task by name, with data from the store or a file; see `Asking` for how it is asked."""
    from lmassay.cot.load import load_task
    from lmassay.cot.monitors.run import check_text
    from lmassay.cot.slices import sliced

    data = load_task(name, layout, regime, source, validation=validation)
    check_text(data)
    asking = Asking(shots, confidence, samples, max_chars, overlength, m, seed)
    if limit is not None:
        data = sliced(data, limit, seed)
    made = monitor_task(data, asking, structured=structured, limit=limit)
    if source is not None:
        assert made.metadata is not None
        made.metadata["lmassay"]["source"] = source
    return made


def _register(name: str) -> Any:
    @task(name=name)
    def of_ours(
        layout: str = "head",
        regime: str | None = None,
        source: str | None = None,
        validation: str | None = None,
        shots: int = 0,
        confidence: bool = False,
        samples: int = 1,
        limit: int | None = None,
        max_chars: int | None = None,
        overlength: str = SKIP,
        m: int = 5,
        seed: int = 0,
        structured: bool | None = None,
    ) -> Task:
        return monitor(
            name, layout, regime, source, validation, shots, confidence, samples, limit, max_chars, overlength, m,
            seed, structured,
        )  # fmt: skip

    return of_ours


for _name in task_ids():
    _register(_name)


@modelapi(name="lmassay")
def lmassay_model() -> Any:
    """Models in this process, as ``lmassay/<bundled name, folder or hub id>``."""
    from lmassay.cot.monitors.provider import InProcess

    return InProcess
