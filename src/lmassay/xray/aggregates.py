"""PSI by family and by group, and the gap between logic and compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lmassay.measures.intervals import (
    CHANGE,
    CHANGES,
    FEW,
    FEWEST,
    NO_INTERVAL,
    Estimate,
    Range,
    Resampling,
    mean_estimate,
    percentile_interval,
    t_interval,
    undefined,
)
from lmassay.seeds import generator
from lmassay.xray.task import FAMILY_GROUPS

if TYPE_CHECKING:
    from lmassay.xray.measured import Decided, Measured
    from lmassay.xray.scored import Floats, ScoredTask

#: Share of a family's tasks that a single-token protocol must be able to decide.
DECIDABLE = 0.8
SHARED = "shared first token"
#: Range, and sign of each group's families, in a figure over groups.
FIGURES: dict[str, tuple[str, Range, dict[str, int]]] = {
    "logic": ("PSI, unweighted mean of the logic families", CHANGE, {"logic": 1}),
    "compute": ("PSI, unweighted mean of the compute families", CHANGE, {"compute": 1}),
    "gap": ("PSI gap, logic minus compute", CHANGES, {"logic": 1, "compute": -1}),
}


@dataclass(frozen=True, slots=True)
class FamilyPsi:
    """PSI of one family's tasks with what their intervals rest on; no values where the family is undefined."""

    estimate: Estimate
    values: Floats
    resampling: Resampling


def resampling_of(tasks: Sequence[Measured], seed: int, name: str) -> Resampling:
    """Resamples of the tasks' templates and, where there are counterbalanced sets, of the sets within them."""
    sets = [m.task.set_id for m in tasks]
    inner = [s if s is not None else m.task.task_id for s, m in zip(sets, tasks, strict=True)]
    return Resampling(
        [m.task.template for m in tasks],
        generator(seed, name, "interval"),
        sets=inner if any(s is not None for s in sets) else None,
    )


def family_psi(real: Sequence[ScoredTask], decided: Decided, seed: int) -> dict[str, FamilyPsi]:
    """Mean PSI of each family; undefined where the protocol can decide too few of its tasks."""
    totals = Counter(task.family for task in real)
    undecidable = Counter(task.family for task in real if task.task_id in decided.undecidable)
    found = {}
    for family, total in totals.items():
        title = f"mean PSI, {family}"
        tasks = [m for m in decided.tasks if m.task.family == family]
        shared = total - undecidable[family] < DECIDABLE * total
        values = np.array([m.psi.psi for m in tasks if not shared])
        resampling = resampling_of(tasks, seed, family)
        estimate = (
            undefined(title, SHARED, len(tasks))
            if shared
            else mean_estimate(values, resampling, title=title, within=CHANGE)
        )
        found[family] = FamilyPsi(estimate, values, resampling)
    return found


def group_psi(families: Mapping[str, FamilyPsi]) -> dict[str, Estimate]:
    """``logic`` and ``compute`` (unweighted means of their families' means) and ``gap`` (logic - compute).

    Each family's templates are resampled on their own, since the mean over families is a fixed one. Where a family has
    under ten templates the interval is Welch's t.
    """
    found = {}
    for name, (title, within, signs) in FIGURES.items():
        members = {group: [f for f in families if FAMILY_GROUPS.get(f) == group] for group in signs}
        weights = {f: sign / len(members[group]) for group, sign in signs.items() for f in members[group]}
        reasons = [families[f].estimate.status for f in weights if families[f].estimate.value is None]
        if not all(members.values()):
            found[name] = undefined(title, "no family of the group in this battery")
        elif reasons:
            found[name] = undefined(title, reasons[0].removeprefix("undefined: "))
        else:
            found[name] = _weighted(title, within, [(families[f], w) for f, w in weights.items()])
    return found


def _weighted(title: str, within: Range, parts: Sequence[tuple[FamilyPsi, float]]) -> Estimate:
    value = sum(w * float(f.values.mean()) for f, w in parts)
    n, n_clusters = sum(len(f.values) for f, _ in parts), sum(f.resampling.n_clusters for f, _ in parts)
    fewest = min(f.resampling.n_clusters for f, _ in parts)
    if fewest < FEWEST:
        return Estimate(value, None, None, n, title, n_clusters, NO_INTERVAL)
    if fewest < FEW:
        means = [f.resampling.cluster_means(f.values) for f, _ in parts]
        low, high = t_interval(means, [w for _, w in parts], within)
        return Estimate(value, low, high, n, title, n_clusters, "few_clusters")
    draws = np.sum([w * f.resampling.means(f.values) for f, w in parts], axis=0)
    return Estimate(value, *percentile_interval(draws), n, title, n_clusters)
