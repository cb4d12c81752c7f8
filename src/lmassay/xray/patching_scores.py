"""Figures of carry-forward patching, from its table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.evidence import Evidence, no_evidence, unpaired_evidence
from lmassay.measures.intervals import SHARE, Estimate, Range, mean_estimate, undefined
from lmassay.xray.aggregates import resampling_of
from lmassay.xray.phase import PhaseScores
from lmassay.xray.relabel import MATCHED_TOKEN, RANDOM_LABEL, SUFFIX
from lmassay.xray.scored import REAL
from lmassay.xray.trajectories import WIN_LEAD, leads

if TYPE_CHECKING:
    import polars as pl

    from lmassay.xray.measured import Decided, Measured
    from lmassay.xray.scored import Floats, Ints

SIGNAL = "patching_mean_flip"
TOO_LATE = "known-then-lost tasks were not patched: won too late to leave a block to patch"
NO_LOST = "no task of this condition was known and then lost with a block left to patch"


def lost(task: Measured, label: int) -> bool:
    """Whether the label wins at an internal depth and not at ``final``."""
    return bool(task.wins.internal[label]) and not bool(task.wins.final[label])


@dataclass(frozen=True, slots=True)
class Patched:
    """One task's cells under one condition.

    Attributes
    ----------
    source, target : (n_cells,) int64
    margin : (n_cells,) float64
        Patched lead of the label at ``final``, nats.
    clean : float
        The same unpatched.
    """

    task: Measured
    source: Ints
    target: Ints
    margin: Floats
    clean: float

    @property
    def flips(self) -> Floats:
        """(n_cells,) whether the label wins at ``final``."""
        return (self.margin > WIN_LEAD).astype(np.float64)

    @property
    def deltas(self) -> Floats:
        """(n_cells,) margin gained, nats."""
        return self.margin - self.clean


#: Of a task, with the title and the range of its mean.
FIGURES: Mapping[str, tuple[Callable[[Patched], float], str, Range | None]] = {
    "patching_flip": (
        lambda p: float(p.flips.any()),
        "known-then-lost tasks that some patch makes win at final",
        SHARE,
    ),
    "patching_mean_flip": (
        lambda p: float(p.flips.mean()),
        "patches that make the task win at final, mean over tasks",
        SHARE,
    ),
    "patching_best_delta": (
        lambda p: float(p.deltas.max()),
        "largest margin gain of a task's patches, nats, mean over tasks",
        None,
    ),
}


def summarise(table: pl.DataFrame, decided: Decided, seed: int) -> PhaseScores:
    """Flip rates, margin gains and their controls."""
    cells = _cells(table)
    by_condition = {condition: _patched(decided, cells, condition) for condition in SUFFIX}
    scores: dict[str, Estimate] = {}
    for condition, suffix in SUFFIX.items():
        found = by_condition[condition]
        resampling = resampling_of([p.task for p in found], seed, f"patching {condition}") if found else None
        for name, (value, title, within) in FIGURES.items():
            said = title if condition == REAL else f"{title} ({condition})"
            scores[f"{name}{suffix}"] = (
                undefined(said, NO_LOST)
                if resampling is None
                else mean_estimate([value(p) for p in found], resampling, title=said, within=within)
            )
    late = sum(lost(m, m.labels.real) for m in decided.tasks) - len(by_condition[REAL])
    return PhaseScores(
        scores=scores,
        evidence=tuple(_evidence(decided, by_condition, control, seed) for control in (RANDOM_LABEL, MATCHED_TOKEN)),
        details={
            "cells": [row for condition, found in by_condition.items() for row in _grid(condition, found)],
            "tasks": [row for condition, found in by_condition.items() for row in _tasks(condition, found)],
        },
        notices=(f"{late} {TOO_LATE}",) if late else (),
    )


def _cells(table: pl.DataFrame) -> dict[str, tuple[Ints, Ints, Floats]]:
    """Task id -> sources, targets and (n_options, n_cells) scores, in the table's order."""
    found = {}
    for (task_id,), rows in table.group_by("task_id", maintain_order=True):
        k = int(rows["option"].to_numpy().max()) + 1
        each = rows.gather_every(k)
        found[str(task_id)] = (
            each["source_index"].to_numpy().astype(np.int64),
            each["target_block"].to_numpy().astype(np.int64),
            rows["score"].to_numpy().reshape(-1, k).T,
        )
    return found


def _patched(decided: Decided, cells: dict[str, tuple[Ints, Ints, Floats]], condition: str) -> list[Patched]:
    """The condition's own known-then-lost tasks with the cells whose source its label won."""
    found = []
    for task in decided.tasks:
        label = task.labels.under(condition)
        if not lost(task, label) or task.task.task_id not in cells:
            continue
        source, target, score = cells[task.task.task_id]
        mine = np.isin(source, np.flatnonzero(task.wins.at[label, :-1]))
        if mine.any():
            clean = float(leads(task.task.score[:, -1:])[label, 0])
            found.append(Patched(task, source[mine], target[mine], leads(score[:, mine])[label], clean))
    return found


def _evidence(decided: Decided, by_condition: dict[str, list[Patched]], control: str, seed: int) -> Evidence:
    if not by_condition[REAL] or not by_condition[control]:
        return no_evidence(SIGNAL, control, "rate", NO_LOST)
    flips = {c: {p.task.task.task_id: p.flips.mean() for p in by_condition[c]} for c in (REAL, control)}
    real, other = ([flips[c].get(m.task.task_id, np.nan) for m in decided.tasks] for c in (REAL, control))
    return unpaired_evidence(SIGNAL, control, "rate", real, other, resampling_of(decided.tasks, seed, "patching"))


def _grid(condition: str, found: Sequence[Patched]) -> list[dict[str, Any]]:
    """One row per cell over the condition's tasks."""
    cells: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for p in found:
        for source, target, flip, delta in zip(p.source, p.target, p.flips, p.deltas, strict=True):
            cells[int(source), int(target)].append((float(flip), float(delta)))
    return [
        {
            "condition": condition,
            "source_index": source,
            "target_block": target,
            "n": len(values),
            "flips": int(sum(flip for flip, _ in values)),
            "mean_delta": float(np.mean([delta for _, delta in values])),
        }
        for (source, target), values in sorted(cells.items())
    ]


def _tasks(condition: str, found: Sequence[Patched]) -> list[dict[str, Any]]:
    return [
        {
            "condition": condition,
            "task_id": p.task.task.task_id,
            "family": p.task.task.family,
            "n_cells": len(p.margin),
            "flips": int(p.flips.sum()),
            "best_delta": float(p.deltas.max()),
        }
        for p in found
    ]
