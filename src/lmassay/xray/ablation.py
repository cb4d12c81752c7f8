"""Phase 7, ablation: what every task loses without each component, the neutral prompt losing it alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from lmassay.seeds import smallest_hash
from lmassay.storage.runs import ABLATIONS
from lmassay.xray.ablation_scores import summarise
from lmassay.xray.scored import REAL
from lmassay.xray.sharded import kept, shards_of
from lmassay.xray.trajectories import WIN_LEAD, leads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.models.ablation import Replacement
    from lmassay.models.components import Component
    from lmassay.models.tree import Continuations
    from lmassay.xray.measured import Measured
    from lmassay.xray.phase import Measuring
    from lmassay.xray.plan import PlannedItem

__all__ = ["KINDS", "NAME", "SCHEMA", "TABLE", "measure", "summarise"]

NAME, TABLE = "ablation", ABLATIONS
MEAN = "mean"
KINDS = ("zero", MEAN, "resample")
#: Tokens of one unit of work, which is run once per component.
SHARD_TOKENS = 1024
SCHEMA = {
    "component": pl.String, "block": pl.Int32, "kind": pl.String, "head": pl.Int32, "task_id": pl.String,
    "option": pl.Int32, "logprob": pl.Float64, "neutral": pl.Float64, "score": pl.Float64, "n_won": pl.Int32,
}  # fmt: skip

#: A prompt with its options, and the prompt whose outputs it gets (resample only).
Key = tuple["Continuations", tuple[int, ...] | None]


def donors_of(planned: Sequence[PlannedItem], seed: int) -> dict[str, PlannedItem]:
    """Task id -> another task of its family, by hash; a family's only task has none."""
    by_family: dict[str, list[PlannedItem]] = {}
    for p in planned:
        by_family.setdefault(p.item.family, []).append(p)
    return {
        p.item.task_id: smallest_hash(others, seed, p.item.task_id, "ablation donor", text=lambda o: o.item.task_id)
        for p in planned
        if (others := [o for o in by_family[p.item.family] if o is not p])
    }


def measure(measuring: Measuring) -> pl.DataFrame:
    """One row per component, task and option."""
    from lmassay.models.ablation import Averaged, Resampled, Zeroed, ablated_means, site_means
    from lmassay.models.components import components_of

    model, kind = measuring.model, measuring.options["ablation"]
    components = components_of(model, heads=measuring.options["heads"])
    sites = list(dict.fromkeys(c.site for c in components))
    planned = {p.item.task_id: p for p in measuring.plan.items if p.item.variant == REAL}
    tasks = list(measuring.decided.tasks)
    prompts = {task_id: p.own.context for task_id, p in planned.items()}
    donors = donors_of([planned[m.task.task_id] for m in tasks], measuring.seed) if kind == "resample" else {}
    if kind == "resample":
        tasks = [m for m in tasks if m.task.task_id in donors]
    if not tasks:
        return pl.DataFrame(schema=SCHEMA)

    def key(task: Measured, request: Continuations) -> Key:
        donor = donors.get(task.task.task_id)
        return request, None if donor is None else prompts[donor.item.task_id]

    edited = measuring.options["prior"] == "edited"
    keys = {key(m, planned[m.task.task_id].own) for m in tasks}
    if edited:
        keys |= {key(m, planned[m.task.task_id].neutral) for m in tasks}
    ordered = sorted(keys, key=lambda k: (-len(k[0].context), k[0].context, k[0].targets, k[1] or ()))
    # Over every prompt of the battery, each as often as it is asked.
    means = (
        site_means(model, sorted(prompts.values()), sites, batch_tokens=measuring.batch_tokens) if kind == MEAN else {}
    )

    def replacement(shard: range) -> Replacement:
        if kind == MEAN:
            return Averaged(means)
        return Resampled([ordered[i][1] or () for i in shard], sites) if kind == "resample" else Zeroed()

    def run(shard: range) -> Sequence[NDArray[np.float64]]:
        requests = [ordered[i][0] for i in shard]
        return ablated_means(model, requests, components, replacement(shard), batch_tokens=measuring.batch_tokens)

    found = kept(
        measuring.parts(model.depths),
        shards_of([len(r.context) + sum(map(len, r.targets)) for r, _ in ordered], SHARD_TOKENS),
        lambda shard: repr([ordered[i] for i in shard]),
        [(len(components), len(r.targets), len(model.depths)) for r, _ in ordered],
        run,
        measuring.progress,
    )
    values = dict(zip(ordered, found, strict=True))
    frames = []
    for m in tasks:
        own, neutral = planned[m.task.task_id].own, planned[m.task.task_id].neutral
        logprob = values[key(m, own)]
        prior = values[key(m, neutral)] if edited else np.broadcast_to(_whole(m, model.n_blocks + 2), logprob.shape)
        frames.append(_rows(m, components, logprob, prior))
    return pl.concat(frames)


def _whole(task: Measured, n_depths: int) -> NDArray[np.float64]:
    """(n_options, n_depths) clean prior; where the last block was left out its output stands in for it."""
    prior = task.task.neutral
    return prior if prior.shape[1] == n_depths else np.insert(prior, -1, prior[:, -1], axis=1)


def _rows(
    task: Measured, components: Sequence[Component], logprob: NDArray[np.float64], prior: NDArray[np.float64]
) -> pl.DataFrame:
    n, k, n_depths = logprob.shape
    score = logprob - prior
    # The depths that count are those of the run: all, or all but the last block.
    counted = score if task.wins.at.shape[1] == n_depths else np.delete(score, -2, axis=2)
    won = np.stack([(leads(s) > WIN_LEAD).sum(1) for s in counted])
    return pl.DataFrame(
        {
            "component": np.repeat([c.name for c in components], k),
            "block": np.repeat([c.block for c in components], k),
            "kind": np.repeat([c.kind for c in components], k),
            "head": [c.head for c in components for _ in range(k)],
            "task_id": [task.task.task_id] * (n * k),
            "option": np.tile(np.arange(k), n),
            "logprob": logprob[:, :, -1].ravel(),
            "neutral": prior[:, :, -1].ravel(),
            "score": score[:, :, -1].ravel(),
            "n_won": won.ravel(),
        },
        schema_overrides=SCHEMA,
    )
