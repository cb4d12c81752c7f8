"""A run folder as a report reads it: finished ones whole and checked, others as far as they got, and marked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmassay.errors import LmassayError
from lmassay.storage.runs import PARTS, SCORES, TABLES, check_tables, read_record, read_scores

SUITES = ("xray", "cot")


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """What stands in a run folder.

    Attributes
    ----------
    document : dict or None
        ``scores.json``; None where the run is not done.
    status : str
        ``done``, or in words what became of the run.
    tables : tuple of str
        Tables that are there.
    """

    path: Path
    suite: str
    record: dict[str, Any]
    document: dict[str, Any] | None
    status: str
    tables: tuple[str, ...]


def open_run(path: Path) -> OpenedRun:
    """Read a run of either suite; a finished one must be what it wrote.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` for what is no run, is of another schema, or was altered.
    """
    record = read_record(path)
    identity = record.get("identity")
    suite = identity.get("suite") if isinstance(identity, dict) else None
    if suite not in SUITES:
        raise LmassayError("bad-run-folder", f"{path}: run.json names no suite", "name a run folder")
    there = tuple(name for name in TABLES if (path / name).is_file())
    if record.get("status") == "done":
        document = read_scores(path)
        check_tables(path, record)
        return OpenedRun(path, suite, record, document, "done", there)
    return OpenedRun(path, suite, record, None, _status(path, record, there), there)


def _status(path: Path, record: dict[str, Any], there: tuple[str, ...]) -> str:
    """One or two sentences: what became of the run, what is there, and how to finish it."""
    how = {
        "failed": "This run failed part-way.",
        "interrupted": "This run was stopped before its end.",
        "running": "This run is not finished: it is still going on, or was stopped before its end.",
        "None": "This run does not say whether it is done.",
    }.get(str(record.get("status")), f"This run is marked {record.get('status')!r}.")
    n_parts = sum(1 for file in (path / PARTS).rglob("*") if file.is_file()) if (path / PARTS).is_dir() else 0
    held = f"It holds {', '.join(there)}" if there else "It holds no table yet"
    parts = f" and {n_parts:,} finished units of work" if n_parts else ""
    without = f"its {SCORES} is not read" if (path / SCORES).exists() else f"but no {SCORES}"
    return f"{how} {held}{parts}, {without}: there are no verdicts. Run its command again to finish it."
