"""The six conjectures, on the held-out battery: a verdict, what it rests on, and how often luck alone gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.measures.intervals import Estimate, Resampling
from lmassay.seeds import generator
from lmassay.xray.aggregates import FamilyPsi, group_psi
from lmassay.xray.tree import luck

if TYPE_CHECKING:
    from lmassay.xray.features import Rows
    from lmassay.xray.finished import FinishedRun
    from lmassay.xray.tree import Fitted

OBSERVED, WEAKENED = "OBSERVED", "WEAKENED"
#: Conjecture -> the family whose PSI should rise with the number of parameters.
SCALE = {
    "C_scale_binder": "binder_tracking",
    "C_scale_theorem": "theorem_pattern",
    "C_scale_proof": "proof_closure",
}
#: Held-out accuracy the tree should reach.
ACCURATE = 0.80
LEADER = "n_real_win_layers"
#: Holds the share of depths won: for one model the same feature as `LEADER`.
SAME = "j_real"


@dataclass(frozen=True, slots=True)
class Conjecture:
    """One conjecture.

    Attributes
    ----------
    verdict : str
        ``OBSERVED``, ``WEAKENED``, or ``undefined: <reason>``.
    value, low, high : float or None
        The figure it turns on, where there is a single one, with its 95 % interval.
    n : int
        What the figure is taken over: models for the conjectures on scale, rows for the others.
    chance : float or None
        How often luck alone gives OBSERVED, and `chance_of` says under what.
    """

    name: str
    claim: str
    verdict: str
    detail: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    chance: float | None = None
    chance_of: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


def conjectures(
    held_out: Sequence[FinishedRun],
    rows: Rows,
    ranking: Sequence[dict[str, Any]],
    training: Rows,
    fitted: Fitted | None,
    tree: dict[str, Any],
    seed: int,
) -> list[Conjecture]:
    """All six, in the order in which they were published.

    Parameters
    ----------
    ranking : sequence of dict
        Features of the held-out rows by mutual information.
    fitted, tree
        The tree on all features of the training rows, and what is told of it.
    """
    scale = [_scale(name, family, held_out) for name, family in SCALE.items()]
    return [*scale, _groups(held_out, seed), _tree(fitted, tree, training, rows, seed), _leader(held_out, ranking)]


def _undefined(name: str, claim: str, reason: str) -> Conjecture:
    return Conjecture(name, claim, f"undefined: {reason}")


def _scale(name: str, family: str, runs: Sequence[FinishedRun]) -> Conjecture:
    claim = f"PSI of {family} rises strictly with the number of parameters"
    if len(runs) < 2:
        return _undefined(name, claim, "it needs held-out runs of two or more models")
    points = []
    for run in runs:
        estimate = run.document["families"].get(family)
        if run.n_parameters is None:
            return _undefined(name, claim, f"parameters of {run.model} are not known")
        if estimate is None or estimate["value"] is None:
            why = "no such family" if estimate is None else str(estimate["status"]).removeprefix("undefined: ")
            return _undefined(name, claim, f"{run.model}: {why}")
        points.append((run.n_parameters, run.model, float(estimate["value"])))
    points.sort()
    for (size, first, _), (other, second, _) in pairwise(points):
        if size == other:
            return _undefined(name, claim, f"{first} and {second} have the same number of parameters")
    values = [psi for _, _, psi in points]
    # PSI is a sum of shares: two that are equal may differ in their last bits.
    rises = all(b - a > 1e-12 for a, b in pairwise(values))
    k = len(points)
    return Conjecture(
        name,
        claim,
        OBSERVED if rises else WEAKENED,
        detail=", ".join(f"{model} {psi:+.3f}" for _, model, psi in points),
        n=k,
        chance=1 / factorial(k),
        chance_of=f"{k} numbers in random order rise 1 time in {factorial(k)}",
    )


def _groups(runs: Sequence[FinishedRun], seed: int) -> Conjecture:
    name, claim = "C2", "PSI of the logic families is above PSI of the compute families"
    if not runs:
        return _undefined(name, claim, "no held-out run")
    gap = pooled_groups(runs, seed)["gap"]
    if gap.value is None:
        return _undefined(name, claim, gap.status.removeprefix("undefined: "))
    return Conjecture(
        name,
        claim,
        OBSERVED if gap.value > 1e-12 else WEAKENED,
        detail=f"logic minus compute, {len(runs)} models together" + ("" if gap.status == "ok" else f" ({gap.status})"),
        value=gap.value,
        low=gap.low,
        high=gap.high,
        n=gap.n,
        chance=0.5,
        chance_of="one of two numbers is the larger 1 time in 2",
    )


def pooled_groups(runs: Sequence[FinishedRun], seed: int) -> dict[str, Estimate]:
    """``logic``, ``compute`` and ``gap`` over the tasks of all runs; a template is resampled in all of them at once."""
    families: dict[str, FamilyPsi] = {}
    for family in dict.fromkeys(f for run in runs for f in run.document["families"]):
        estimates = [run.document["families"].get(family) for run in runs]
        rows = [row for run in runs for row in run.tasks if row["family"] == family]
        rows.sort(key=lambda row: row["task_id"])
        values = np.array([row["psi"] for row in rows], np.float64)
        resampling = Resampling([row["template"] for row in rows], generator(seed, f"pooled/{family}", "interval"))
        status = next(
            (
                "undefined: a run has no such family" if e is None else str(e["status"])
                for e in estimates
                if e is None or e["value"] is None
            ),
            "ok",
        )
        value = float(values.mean()) if status == "ok" else None
        title = f"mean PSI, {family}"
        families[family] = FamilyPsi(
            Estimate(value, None, None, len(values), title, resampling.n_clusters, status), values, resampling
        )
    return group_psi(families)


def _tree(fitted: Fitted | None, tree: dict[str, Any], training: Rows, rows: Rows, seed: int) -> Conjecture:
    name, claim = "C_tree", f"the tree is right on {ACCURATE:.0%} of the held-out rows or more"
    accuracy = tree["held_out"]["accuracy"]
    if fitted is None or accuracy["value"] is None:
        status = tree["status"] if fitted is None else accuracy["status"]
        return _undefined(name, claim, str(status).removeprefix("undefined: "))
    return Conjecture(
        name,
        claim,
        OBSERVED if accuracy["value"] >= ACCURATE else WEAKENED,
        detail=f"always saying the commoner side is right on {tree['held_out']['majority']['value']:.3f}",
        value=accuracy["value"],
        low=accuracy["low"],
        high=accuracy["high"],
        n=accuracy["n"],
        chance=luck(fitted, training, rows, ACCURATE, seed),
        chance_of="trees grown on PSI dealt anew over the training rows",
    )


def _leader(runs: Sequence[FinishedRun], ranking: Sequence[dict[str, Any]]) -> Conjecture:
    name, claim = "C1", f"{LEADER} still has the highest mutual information with PSI > 0"
    if not runs:
        return _undefined(name, claim, "no held-out run")
    usable = {row["feature"]: row for row in ranking if row["plug_in"] is not None}
    if LEADER not in usable:
        status = next(row["status"] for row in ranking if row["feature"] == LEADER)
        return _undefined(name, claim, str(status).removeprefix("undefined: "))
    if len({run.n_blocks for run in runs}) == 1:
        return _undefined(name, claim, f"with one number of blocks {SAME} is the same feature")
    mine = usable[LEADER]
    others = [row for feature, row in usable.items() if feature != LEADER]
    beaten = all(mine["plug_in"] - row["plug_in"] > 1e-12 for row in others)
    best = max(others, key=lambda row: row["plug_in"], default=None)
    return Conjecture(
        name,
        claim,
        OBSERVED if beaten else WEAKENED,
        detail="" if best is None else f"the best other is {best['feature']} with {best['plug_in']:.4f}",
        value=mine["plug_in"],
        low=mine["low"],
        high=mine["high"],
        n=mine["n"],
        chance=1 / len(usable),
        chance_of=f"each of {len(usable)} features leads 1 time in {len(usable)}; {LEADER} is itself part of PSI",
    )
