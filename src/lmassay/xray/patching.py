"""Phase 5, carry-forward patching: would the early state still win at the end if it were carried forward?

Every condition has its own tasks: those whose labelled option wins at an internal depth and not at ``final``. What a
cell scores does not depend on the label, so the conditions share the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from lmassay.storage.runs import PATCHES
from lmassay.xray.patching_scores import lost, summarise
from lmassay.xray.relabel import SUFFIX
from lmassay.xray.scored import REAL
from lmassay.xray.sharded import kept, shards_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.models.patching import Cell
    from lmassay.models.tree import Continuations
    from lmassay.xray.measured import Measured
    from lmassay.xray.phase import Measuring

__all__ = ["NAME", "SCHEMA", "TABLE", "measure", "summarise"]

NAME, TABLE = "patching", PATCHES
#: Cells x options of one unit of work: what an interruption can cost.
SHARD_CELLS = 2048
SCHEMA = {
    "task_id": pl.String, "source": pl.String, "source_index": pl.Int32, "target": pl.String, "target_block": pl.Int32,
    "option": pl.Int32, "logprob": pl.Float64, "neutral": pl.Float64, "score": pl.Float64,
}  # fmt: skip


def cells_of_task(task: Measured, n_blocks: int) -> list[Cell]:
    """Every won internal depth of every condition that lost it, with every block after it but the last.

    The last block's column reads the source's own lens, so it says nothing about the network.
    """
    from lmassay.models.patching import cells_of

    won = [depth for label in map(task.labels.under, SUFFIX) if lost(task, label) for depth in won_depths(task, label)]
    return cells_of(sorted(set(won)), range(n_blocks - 1))


def won_depths(task: Measured, label: int) -> list[int]:
    """Internal depths the label wins, as indices."""
    found: list[int] = np.flatnonzero(task.wins.at[label, :-1]).tolist()
    return found


def measure(measuring: Measuring) -> pl.DataFrame:
    """One row per task, cell and option."""
    from lmassay.models.patching import cells_of, patched_means

    model = measuring.model
    planned = {p.item.task_id: p for p in measuring.plan.items if p.item.variant == REAL}
    tasks = [(m, cells) for m in measuring.decided.tasks if (cells := cells_of_task(m, model.n_blocks))]
    requests: dict[Continuations, set[int]] = {}
    for task, cells in tasks:
        sources = {source for source, _ in cells}
        requests.setdefault(planned[task.task.task_id].own, set()).update(sources)
        if measuring.options["prior"] == "edited":
            requests.setdefault(planned[task.task.task_id].neutral, set()).update(sources)
    # By their tokens, so that the order of tasks moves no shard.
    ordered = sorted(requests, key=lambda r: (-len(r.context), r.context, r.targets))
    grids = [cells_of(sorted(requests[r]), range(model.n_blocks - 1)) for r in ordered]

    def run(shard: range) -> Sequence[NDArray[np.float64]]:
        return patched_means(
            model,
            [ordered[i] for i in shard],
            [grids[i] for i in shard],
            batch_tokens=measuring.batch_tokens,
        )

    found = kept(
        measuring.parts(["logprob"]),
        shards_of([len(g) * len(r.targets) for g, r in zip(grids, ordered, strict=True)], SHARD_CELLS),
        lambda shard: repr([(ordered[i], grids[i]) for i in shard]),
        [(len(g), len(r.targets), 1) for g, r in zip(grids, ordered, strict=True)],
        run,
        measuring.progress,
    )
    values = {
        r: (dict(zip(g, range(len(g)), strict=True)), v[..., 0]) for r, g, v in zip(ordered, grids, found, strict=True)
    }
    frames = []
    for task, cells in tasks:
        own, neutral = planned[task.task.task_id].own, planned[task.task.task_id].neutral
        logprob = _at(values[own], cells)
        if neutral in values and measuring.options["prior"] == "edited":
            prior = _at(values[neutral], cells)
        else:
            prior = np.broadcast_to(task.task.neutral[:, -1], logprob.shape)
        frames.append(_rows(task, cells, model.depths, logprob, prior))
    return pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)


def _at(values: tuple[dict[Cell, int], NDArray[np.float64]], cells: Sequence[Cell]) -> NDArray[np.float64]:
    place, found = values
    return np.asarray(found[[place[cell] for cell in cells]])


def _rows(
    task: Measured,
    cells: Sequence[Cell],
    depths: Sequence[str],
    logprob: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> pl.DataFrame:
    k = logprob.shape[1]
    source, target = (np.repeat([cell[side] for cell in cells], k) for side in (0, 1))
    return pl.DataFrame(
        {
            "task_id": [task.task.task_id] * len(source),
            "source": [depths[s] for s in source],
            "source_index": source,
            "target": [depths[t + 1] for t in target],
            "target_block": target,
            "option": np.tile(np.arange(k), len(cells)),
            "logprob": logprob.ravel(),
            "neutral": prior.ravel(),
            "score": (logprob - prior).ravel(),
        },
        schema_overrides=SCHEMA,
    )
