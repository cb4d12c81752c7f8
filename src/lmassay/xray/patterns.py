"""Patterns over runs: what goes with PSI > 0, a tree, the conjectures, and each model's dominant confound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lmassay.xray.conjectures import conjectures
from lmassay.xray.features import FEATURES, rows_of
from lmassay.xray.ranking import ranked
from lmassay.xray.tree import TREES, described

if TYPE_CHECKING:
    from lmassay.xray.finished import FinishedRun

#: The battery the tree is grown on, and the one it is tried on.
TRAINING, HELD_OUT = "core50", "heldout54"
#: The signal whose controls are confounds.
SIGNAL = "real_win"


def patterns_over(runs: Sequence[FinishedRun], *, seed: int = 0) -> dict[str, Any]:
    """Ranking, trees, conjectures and confounds of comparable runs.

    Runs of ``heldout54`` are the held-out rows; those of any other battery (all of one) are the training rows. A model
    measured twice on one battery counts once.
    """
    once, notices = _once(runs)
    groups = {
        "training": [run for run in once if run.battery != HELD_OUT],
        "held_out": [run for run in once if run.battery == HELD_OUT],
    }
    rows = {which: rows_of(chosen) for which, chosen in groups.items()}
    ranking = {which: ranked(rows[which], seed, f"patterns/{which}") for which in groups}
    trees, fitted = {}, {}
    for name in TREES:
        trees[name], fitted[name] = described(name, rows["training"], rows["held_out"], seed)
    found = conjectures(
        groups["held_out"], rows["held_out"], ranking["held_out"], rows["training"], fitted["all"], trees["all"], seed
    )
    notices += [f"{name}: {why}" for name, why in trees["all"]["left_out"].items()]
    return {
        "rows": {
            which: {
                "battery": chosen[0].battery if chosen else None,
                "models": [run.model for run in chosen],
                "n": len(rows[which]),
                "n_positive": int(rows[which].target.sum()),
                "n_undecided": sum(run.document["counts"]["n_undecided"] for run in chosen),
            }
            for which, chosen in groups.items()
        },
        "features": {name: {"from_wins": wins} for name, wins in FEATURES.items()},
        "mutual_information": ranking,
        "trees": trees,
        "conjectures": [conjecture.to_dict() for conjecture in found],
        "confounds": [confound(run) for run in once],
        "notices": notices,
    }


def _once(runs: Sequence[FinishedRun]) -> tuple[list[FinishedRun], list[str]]:
    """Each model once per battery, whatever it was called; more runs of it would weigh its tasks twice."""
    kept: dict[tuple[str, tuple[str, ...]], FinishedRun] = {}
    notices = []
    for run in runs:
        key = (run.battery, run.weights)
        if key in kept:
            notices.append(f"{run.path}: patterns leave it out, {kept[key].path} is the same model on {run.battery}")
        kept.setdefault(key, run)
    return list(kept.values()), notices


def confound(run: FinishedRun) -> dict[str, Any]:
    """The control that wins most above the real label in one run, with that gap; a named status where there is none."""
    evidence = [row for row in run.document["evidence"] if row["signal"] == SIGNAL]
    gaps = [row for row in evidence if row["difference"] is not None]
    row: dict[str, Any] = {
        "model": run.model, "battery": run.battery, "controls": [], "difference": None, "low": None, "high": None,
        "n": 0, "not_measured": [r["control"] for r in evidence if r["difference"] is None],
    }  # fmt: skip
    if not gaps:
        return row | {"status": "undefined: no control was measured"}
    lowest = min(gaps, key=lambda r: r["difference"])
    if lowest["difference"] >= -1e-12:
        return row | {"status": "none: no control wins more often than the real label"}
    return row | {
        # Controls that are level are all named.
        "controls": [r["control"] for r in gaps if r["difference"] - lowest["difference"] <= 1e-12],
        **{key: lowest[key] for key in ("difference", "low", "high", "n")},
        "status": "ok",
    }
