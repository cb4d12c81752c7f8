"""Every score of a finished run again, from its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmassay.storage.atomic import write_json
from lmassay.storage.runs import SCORES, claimed, first_difference, read_record, read_scores
from lmassay.xray.run import rescored


def rescore_run(path: Path) -> tuple[dict[str, Any], str | None]:
    """Recompute ``scores.json``; returns it and the first field that differed from what stood there.

    Raises
    ------
    LmassayError
        ``bad-run-folder``, ``run-folder-in-use``.
    """
    read_record(path)
    with claimed(path) as folder:
        before = read_scores(path)
        document = rescored(path, folder.record)
        difference = first_difference(before, document)
        if difference is not None:
            write_json(path / SCORES, document)
        return document, None if difference is None else difference[0]
