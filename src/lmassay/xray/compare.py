"""Runs side by side, if they were measured in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmassay.errors import LmassayError
from lmassay.storage.runs import read_record, read_scores

#: What must be equal for two runs' figures to stand in one table: a path into the identity, and its name.
CONVENTION = (
    (("suite",), "suite"),
    (("settings", "protocol"), "protocol"),
    (("settings", "chat"), "chat"),
    (("settings", "depths"), "depths"),
    (("settings", "span"), "span"),
    (("settings", "phases"), "phases"),
    (("battery", "sha256"), "battery"),
    (("convention", "dtype"), "dtype"),
)
#: Rows of the table. A rate of any win grows with depth without skill, so each model's own null stands beside it.
SCORES = (
    "xray_score", "xray_strict", "real_win", "real_win_strict", "rl_win_expected", "mt_win_expected", "sb_win",
    "swap_win", "final_accuracy", "jaccard", "psi", "psi_excess", "psi_excess_p", "psi_logic", "psi_compute", "psi_gap",
)  # fmt: skip


def compare_runs(paths: Sequence[Path]) -> dict[str, Any]:
    """Models, scores and families of two or more runs, one column each.

    Raises
    ------
    LmassayError
        ``runs-not-comparable`` naming the field and both values; ``bad-run-folder``; ``bad-request`` for one run.
    """
    if len(paths) < 2:
        raise LmassayError("bad-request", "compare needs two or more runs", "name another run folder")
    records = [read_record(path) for path in paths]
    documents = [read_scores(path) for path in paths]
    for path, record in zip(paths[1:], records[1:], strict=True):
        for field, name in CONVENTION:
            first, other = _at(records[0]["identity"], field), _at(record["identity"], field)
            if first != other:
                shown = [_at(r["identity"], ("battery", "name")) if name == "battery" else v
                         for r, v in ((records[0], first), (record, other))]  # fmt: skip
                raise LmassayError(
                    "runs-not-comparable",
                    f"{paths[0]} and {path} differ in {name}: {shown[0]} and {shown[1]}",
                    "compare runs of one convention",
                )
    families = list(dict.fromkeys(f for d in documents for f in d["families"]))
    return {
        "convention": {name: _at(records[0]["identity"], field) for field, name in CONVENTION},
        "runs": [
            {
                "path": str(path),
                "model": record["model"]["name"],
                "n_blocks": record["model"]["n_blocks"],
                "n_parameters": record["model"]["n_parameters"],
                "survives_its_controls": document["survives_its_controls"],
            }
            for path, record, document in zip(paths, records, documents, strict=True)
        ],
        "scores": {name: [d["scores"][name] for d in documents] for name in SCORES},
        "families": {family: [d["families"].get(family) for d in documents] for family in families},
    }


def _at(record: Any, path: Sequence[str]) -> Any:
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record
