"""Every score of a finished run again, from its tables and without a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmassay.errors import LmassayError
from lmassay.storage.atomic import write_json
from lmassay.storage.fingerprint import file_sha256
from lmassay.storage.runs import SCORES, claimed, finished_record, first_difference, read_scores

#: (run folder, its record) -> the content of ``scores.json``, by the suite whose run it is.
Rescored = Callable[[Path, dict[str, Any]], dict[str, Any]]


def rescore_run(path: Path, rescored: Rescored) -> tuple[dict[str, Any], str | None]:
    """Recompute ``scores.json``; returns it and the first field that differed from what stood there.

    A ``scores.json`` that cannot be read, or is not there, differs in all of it: it is named itself then.

    Raises
    ------
    LmassayError
        ``bad-run-folder``, ``run-folder-in-use``.
    """
    finished_record(path)
    with claimed(path) as folder:
        document = rescored(path, folder.record)
        try:
            difference = first_difference(read_scores(path, as_written=False), document)
        except LmassayError:
            difference = SCORES, None, None
        # The same scores written in another way are not the file that the run wrote either.
        if difference is not None or file_sha256(path / SCORES) != folder.record.get("scores_sha256"):
            write_json(path / SCORES, document)
            folder.update(scores_sha256=file_sha256(path / SCORES))
        return document, None if difference is None else difference[0]
