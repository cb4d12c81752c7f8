"""Runs side by side, if they were measured in the same way, and the patterns over them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmassay.errors import LmassayError
from lmassay.markup import survival
from lmassay.xray.finished import FinishedRun, read_finished
from lmassay.xray.patterns import HELD_OUT, TRAINING, patterns_over

#: What must be equal for two runs' figures to stand in one table: a path into the identity, and its name.
CONVENTION = (
    (("suite",), "suite"),
    (("settings", "protocol"), "protocol"),
    (("settings", "chat"), "chat"),
    (("settings", "depths"), "depths"),
    (("settings", "span"), "span"),
    (("settings", "phases"), "phases"),
    (("settings", "ablation"), "ablation"),
    (("settings", "heads"), "heads"),
    (("settings", "prior"), "prior"),
    (("battery", "sha256"), "battery"),
    (("convention", "dtype"), "dtype"),
    (("convention", "lens"), "lens"),
)
#: Two batteries that may stand side by side: patterns are found on the one and tried on the other.
PAIR = frozenset({TRAINING, HELD_OUT})
#: Rows of the table. A rate of any win grows with depth without skill, so each model's own null stands beside it.
SCORES = (
    "xray_score", "xray_strict", "real_win", "real_win_strict", "rl_win_expected", "mt_win_expected", "sb_win",
    "swap_win", "final_accuracy", "jaccard", "psi", "psi_excess", "psi_excess_p", "psi_logic", "psi_compute", "psi_gap",
)  # fmt: skip


def compare_runs(paths: Sequence[Path], *, seed: int = 0) -> dict[str, Any]:
    """Models, scores and families of two or more runs, one column each, and the patterns over their tasks.

    Parameters
    ----------
    paths : sequence of Path
        Runs of one battery, or of ``core50`` and ``heldout54``.
    seed : int
        Of the patterns' intervals and nulls.

    Raises
    ------
    LmassayError
        ``runs-not-comparable`` naming the field and both values; ``bad-run-folder``; ``bad-request`` for one run.
    """
    if len(paths) < 2:
        raise LmassayError("bad-request", "compare needs two or more runs", "name another run folder")
    runs = [read_finished(path) for path in paths]
    for run in runs[1:]:
        _check(runs[0], run)
    for run in runs:
        # Two runs that differ from the first in battery must still be of one battery between them.
        _check(next(other for other in runs if other.battery == run.battery), run)
    documents = [run.document for run in runs]
    families = list(dict.fromkeys(f for d in documents for f in d["families"]))
    shared = {name: _value(runs[0].record["identity"], field) for field, name in CONVENTION if name != "battery"}
    return {
        "convention": shared | {"battery": {r.battery: _at(r.record["identity"], ("battery", "sha256")) for r in runs}},
        "runs": [
            {
                "path": str(run.path),
                "model": run.model,
                "battery": run.battery,
                "n_blocks": run.n_blocks,
                "n_parameters": run.n_parameters,
                "lens": _at(run.record["identity"], ("convention", "lens")),
                "survival": survival(run.document["survives_its_controls"]),
            }
            for run in runs
        ],
        "scores": {name: [d["scores"][name] for d in documents] for name in SCORES},
        "families": {family: [d["families"].get(family) for d in documents] for family in families},
        "patterns": patterns_over(runs, seed=seed),
    }


def _check(one: FinishedRun, other: FinishedRun) -> None:
    """Refuse two runs of different conventions, by the first field that differs."""
    for field, name in CONVENTION:
        first, second = (_value(run.record["identity"], field) for run in (one, other))
        paired = name == "battery" and {one.battery, other.battery} == PAIR
        if first != second and not paired:
            shown = [run.battery if name == "battery" else v for run, v in ((one, first), (other, second))]
            raise LmassayError(
                "runs-not-comparable",
                f"{one.path} and {other.path} differ in {name}: {shown[0]} and {shown[1]}",
                f"compare runs of one convention; of two batteries only {TRAINING} with {HELD_OUT}",
            )


def _value(identity: Any, field: Sequence[str]) -> Any:
    """What two runs must share: of a tuned lens only that it is one, for each model has its own."""
    found = _at(identity, field)
    return "tuned" if field[-1] == "lens" and isinstance(found, dict) else found


def _at(record: Any, path: Sequence[str]) -> Any:
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record
