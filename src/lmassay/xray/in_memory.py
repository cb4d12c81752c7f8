"""The suite on a model in memory, without a run folder: many small models measured in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lmassay.errors import LmassayError
from lmassay.xray.collect import Values, collect
from lmassay.xray.options import PromptStyle
from lmassay.xray.plan import RunPlan, items_of, plan_run
from lmassay.xray.scores import XRayScores, compute_scores

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel
    from lmassay.xray.run import Settings
    from lmassay.xray.scored import Floats, ScoredBattery
    from lmassay.xray.task import Battery


def plan_battery(model: LanguageModel, battery: Battery, settings: Settings) -> RunPlan:
    """What there is to score; the same for every model of one tokenizer and context length."""
    return plan_run(
        items_of(battery, settings.phases, settings.seed),
        PromptStyle(model.tokens, settings.chat),
        settings.protocol,
        context_length=model.context_length,
        over_length=settings.over_length,
    )


def option_scores(model: LanguageModel, plan: RunPlan, settings: Settings) -> ScoredBattery:
    """Score a plan's prompts and options at every depth.

    Raises
    ------
    LmassayError
        ``non-finite-logits``.
    """
    from lmassay.models.engines import BATCH_TOKENS, score

    requests = [request for shard in plan.shards for request in shard]
    found = score(model, requests, engine=settings.engine, batch_tokens=settings.batch_tokens or BATCH_TOKENS)
    values: Values = {
        (request.context, target): tokens.mean(0)
        for request, targets in zip(requests, found, strict=True)
        for target, tokens in zip(request.targets, targets, strict=True)
    }
    check_finite(model, np.stack(list(values.values())))
    return collect(plan, values, model.depths, settings.protocol)


def check_finite(model: LanguageModel, means: Floats) -> None:
    """Refuse (n, n_depths) log-probabilities of which one is not a finite number.

    Raises
    ------
    LmassayError
        ``non-finite-logits`` naming the depth.
    """
    if not np.isfinite(means).all():
        depth = model.depths[int(np.argwhere(~np.isfinite(means))[0, 1])]
        raise LmassayError(
            "non-finite-logits",
            f"{model.name}: a log-probability at {depth} is not a finite number ({model.dtype})",
            "check the weights with `lmassay models check`; in a 16-bit type, use --dtype float32",
        )


def score_battery(
    model: LanguageModel, battery: Battery, settings: Settings, *, plan: RunPlan | None = None
) -> XRayScores:
    """All scores of a battery, as `run_xray` would write them, and no file.

    Parameters
    ----------
    plan : RunPlan, optional
        Made before, for a model of the same tokenizer.
    """
    scored = option_scores(model, plan or plan_battery(model, battery, settings), settings)
    return compute_scores(scored, seed=settings.seed, span=settings.span, depths=settings.depths)
