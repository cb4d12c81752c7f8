"""The page's section on the data's audit: what `lmassay cot audit --json` wrote, where that lies in the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from lmassay.reports.page.parts import Section, Table
from lmassay.reports.page.words import counted, number

AUDIT = "audit.json"
TITLE = "Audit of the data"
#: Bytes of a file that is read; an audit of the largest published task has some megabytes.
MOST_BYTES = 64_000_000
MOST_FEATURES = 200


def audit_section(folder: Path, identity: Mapping[str, Any]) -> Section:
    """Findings, worst first, and the strongest features; or how an audit is made."""
    task = identity["task"]
    target = task["id"] if task["layout"] != "own" else "FILE"
    how = f"`lmassay cot audit {target} --json > {AUDIT}`, run in the run folder, makes one that is shown here."
    path = folder / AUDIT
    if not path.is_file():
        return Section("audit", TITLE, f"No audit of this data lies in the run folder. {how}")
    found = _read(path)
    if found is None:
        return Section("audit", TITLE, f"{AUDIT} in the run folder is no audit. {how}")
    intro = f"From {AUDIT} in the run folder."
    if found["fingerprint"] != task["sha256"]:
        intro += (
            f" It is of {found['name']}, sha256 {str(found['fingerprint'])[:12]}; the run's data has"
            f" {str(task['sha256'])[:12]}: they may differ in their validation set, or in everything."
        )
    return Section("audit", TITLE, intro, [_findings(found), *_features(found)])


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    wanted = {"name": str, "fingerprint": str, "max_auroc": float, "n_tests": int, "findings": list, "figures": list}
    if not isinstance(found, dict) or not all(isinstance(found.get(k), kind) for k, kind in wanted.items()):
        return None
    of_rows = {"findings": _FINDING, "figures": _FIGURE}
    whole = all(isinstance(row, dict) and set(of_rows[k]) <= set(row) for k in of_rows for row in found[k])
    return found if whole else None


_FINDING = ("severity", "check", "subject", "what")
_FIGURE = ("feature", "seen", "split", "scope", "auroc", "low", "high", "strength_low", "g_mean2", "n", "n_questions")


def _findings(found: Mapping[str, Any]) -> Table:
    rows = pl.DataFrame(
        [{k: str(f[k]) for k in _FINDING} for f in found["findings"]], schema=dict.fromkeys(_FINDING, pl.String)
    )
    counts = dict(rows["severity"].value_counts().iter_rows())
    said = ", ".join(f"{counts[s]} {s}" for s in ("leak", "warning", "hidden", "note") if s in counts) or "nothing"
    leaks = rows.filter(severity="leak")["subject"].to_list()
    reading = (
        f"Of {counted(found['n_tests'], 'test')} the audit found: {said}. "
        + (f"What a method sees gives the label away: {', '.join(leaks[:3])}." if leaks else
           f"No visible feature's corrected bound passes an AUROC of {number(found['max_auroc'])}.")
    )  # fmt: skip
    return Table("audit-findings", "Findings, worst first", reading, rows)


def _features(found: Mapping[str, Any]) -> list[Table]:
    if not found["figures"]:
        return []
    kinds: dict[str, Any] = dict.fromkeys(("auroc", "low", "high", "strength_low", "g_mean2"), pl.Float64)
    kinds |= dict.fromkeys(("n", "n_questions"), pl.Int64) | dict.fromkeys(
        ("feature", "seen", "split", "scope"), pl.String
    )
    every = pl.DataFrame([{k: f[k] for k in _FIGURE} for f in found["figures"]], schema={k: kinds[k] for k in _FIGURE},
                         strict=False)  # fmt: skip
    seen = every.filter(pl.col("seen") == "visible", pl.col("auroc").is_not_null())
    reading = f"{counted(every.height, 'figure')} of single features, strongest first."
    if seen.height:
        first = seen.row(0, named=True)
        reading = (
            f"The strongest visible feature is {first['feature']}: AUROC {number(first['auroc'])} on {first['split']}"
            f" (n = {first['n']:,}, {counted(first['n_questions'], 'question')})."
        )
    shown = every.rename({"strength_low": "bound"}).head(MOST_FEATURES)
    return [Table("audit-features", "Features as classifiers", reading, shown, every.height, AUDIT)]
