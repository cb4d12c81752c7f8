"""PSI by family and by group, and the gap between logic and compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lmassay.measures.intervals import (
    DRAWS,
    FEW,
    FEWEST,
    Estimate,
    cluster_draws,
    mean_estimate,
    percentile_interval,
    undefined,
)
from lmassay.seeds import generator
from lmassay.xray.task import FAMILY_GROUPS

if TYPE_CHECKING:
    from lmassay.xray.measured import Decided, Measured
    from lmassay.xray.scored import Floats

#: Share of a family's tasks that a single-token protocol must be able to decide.
DECIDABLE = 0.8
SHARED = "shared first token"


def family_psi(decided: Decided, families_total: Mapping[str, int], seed: int) -> dict[str, Estimate]:
    """Mean PSI of each family; undefined where too few of its tasks can be decided."""
    by_family: dict[str, list[Measured]] = {family: [] for family in families_total}
    for m in decided.tasks:
        by_family[m.task.family].append(m)
    return {
        family: undefined(f"mean PSI, {family}", SHARED, len(members))
        if len(members) < DECIDABLE * families_total[family]
        else mean_estimate(
            [m.psi.psi for m in members],
            [m.task.template for m in members],
            sets=[m.task.set_id or m.task.task_id for m in members],
            title=f"mean PSI, {family}",
            rng=generator(seed, family, "interval psi"),
        )
        for family, members in by_family.items()
    }


def group_psi(decided: Decided, families: Mapping[str, Estimate], seed: int) -> dict[str, Estimate]:
    """``logic`` and ``compute`` (unweighted means of their families' means) and ``gap`` (logic - compute).

    The bootstrap resamples each family's templates on their own, since the mean over families is a fixed one.
    """
    titles = {
        "logic": "PSI, unweighted mean of the logic families",
        "compute": "PSI, unweighted mean of the compute families",
        "gap": "PSI gap, logic minus compute",
    }
    members = {g: [f for f in families if FAMILY_GROUPS.get(f) == g] for g in ("logic", "compute")}
    members["gap"] = members["logic"] + members["compute"]
    tasks: dict[str, list[Measured]] = {family: [] for family in families}
    for m in decided.tasks:
        tasks[m.task.family].append(m)
    drawn = {f: _draws(f, tasks[f], seed) for f in families if families[f].value is not None}
    found: dict[str, Estimate] = {}
    for name, title in titles.items():
        mine = members[name]
        missing = not members["logic"] or not members["compute"] if name == "gap" else not mine
        if missing:
            found[name] = undefined(title, "no family of the group in this battery")
        elif any(families[f].value is None for f in mine):
            found[name] = undefined(title, SHARED)
        else:
            found[name] = _group(name, title, members, tasks, drawn)
    return found


def _draws(family: str, members: Sequence[Measured], seed: int) -> Floats:
    return cluster_draws(
        [m.psi.psi for m in members],
        [m.task.template for m in members],
        generator(seed, family, "interval psi groups"),
        draws=DRAWS,
        sets=[m.task.set_id or m.task.task_id for m in members],
    )


def _group(
    name: str,
    title: str,
    members: Mapping[str, Sequence[str]],
    tasks: Mapping[str, Sequence[Measured]],
    drawn: Mapping[str, Floats],
) -> Estimate:
    value: float = 0.0
    draws = np.zeros(DRAWS)
    signs = {"logic": {"logic": 1}, "compute": {"compute": 1}, "gap": {"logic": 1, "compute": -1}}[name]
    for group, sign in signs.items():
        share = sign / len(members[group])
        value += share * sum(float(np.mean([m.psi.psi for m in tasks[f]])) for f in members[group])
        draws += share * np.sum([drawn[f] for f in members[group]], axis=0)
    templates = [len({m.task.template for m in tasks[f]}) for f in members[name]]
    n = sum(len(tasks[f]) for f in members[name])
    if min(templates) < FEWEST:
        return Estimate(value, None, None, n, title, sum(templates), f"undefined: interval needs {FEWEST} clusters")
    low, high = percentile_interval(draws)
    return Estimate(value, low, high, n, title, sum(templates), "ok" if min(templates) >= FEW else "few_clusters")
