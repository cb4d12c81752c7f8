"""Every score of a finished cot run again, from its table of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmassay.cot.evaluate import rescored
from lmassay.errors import LmassayError
from lmassay.storage.atomic import write_json
from lmassay.storage.runs import SCORES, claimed, finished_record, first_difference, read_scores


def rescore_run(path: Path) -> tuple[dict[str, Any], str | None]:
    """Recompute ``scores.json``; returns it and the first field that differed from what stood there.

    Raises
    ------
    LmassayError
        ``bad-run-folder``, ``run-folder-in-use``.
    """
    finished_record(path)
    with claimed(path) as folder:
        document = rescored(path, folder.record)
        try:
            difference = first_difference(read_scores(path), document)
        except LmassayError:
            difference = SCORES, None, None
        if difference is not None:
            write_json(path / SCORES, document)
        return document, None if difference is None else difference[0]
