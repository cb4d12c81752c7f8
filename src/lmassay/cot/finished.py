"""A finished cot run as the evaluation it was."""

from __future__ import annotations

from pathlib import Path

from lmassay.cot.evaluate import SUITE, Evaluation, read_evaluation
from lmassay.errors import LmassayError
from lmassay.storage.runs import check_tables, finished_record


def read_run(path: Path | str) -> Evaluation:
    """What `evaluate` returned when the run was made.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` for an unfinished, altered or unreadable run, or one of the other suite.
    """
    folder = Path(path)
    record = finished_record(folder)
    suite = record.get("identity", {}).get("suite")
    if suite != SUITE:
        raise LmassayError("bad-run-folder", f"{folder} is a run of the suite {suite}, not of cot", "name a cot run")
    if record["identity"]["task"]["kind"] == "selection":
        raise LmassayError(
            "bad-run-folder", f"{folder} holds selections of sentences, not predictions", "see it with `lmassay show`"
        )
    check_tables(folder, record)
    return read_evaluation(folder, record)
