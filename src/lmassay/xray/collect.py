"""From per-token log-probabilities back to tasks: mean over tokens, prior beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lmassay.xray.scored import Floats, ScoredBattery, ScoredTask

if TYPE_CHECKING:
    from lmassay.models.tree import Continuations
    from lmassay.xray.plan import PlannedItem, RunPlan

#: (context, target) -> (n_depths,) mean log-probability per token, nats.
Values = Mapping[tuple[tuple[int, ...], tuple[int, ...]], Floats]


def collect(plan: RunPlan, values: Values, depths: tuple[str, ...], protocol: str) -> ScoredBattery:
    """Put the scored continuations together into the battery's tasks, in the plan's order."""
    variants: dict[str, list[ScoredTask]] = {}
    for planned in plan.items:
        variants.setdefault(planned.item.variant, []).append(_scored(planned, values))
    return ScoredBattery(
        depths=depths,
        protocol=protocol,
        variants={variant: tuple(tasks) for variant, tasks in variants.items()},
        skipped=plan.skipped,
    )


def _scored(planned: PlannedItem, values: Values) -> ScoredTask:
    item = planned.item
    return ScoredTask(
        task_id=item.task_id,
        family=item.family,
        template=item.template,
        set_id=item.set_id,
        variant=item.variant,
        options=item.options,
        answer=item.answer,
        logprob=_rows(planned.own, values),
        neutral=_rows(planned.neutral, values),
        n_tokens=np.array([len(target) for target in planned.own.targets], dtype=np.int64),
        flags=planned.flags,
        n_prompt_tokens=planned.n_prompt_tokens,
    )


def _rows(request: Continuations, values: Values) -> Floats:
    return np.stack([values[request.context, target] for target in request.targets])
