"""Every score of a finished run again, from its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmassay.storage import rescore
from lmassay.xray.run import rescored


def rescore_run(path: Path) -> tuple[dict[str, Any], str | None]:
    """Recompute ``scores.json``; returns it and the first field that differed from what stood there.

    Raises
    ------
    LmassayError
        ``bad-run-folder``, ``run-folder-in-use``.
    """
    return rescore.rescore_run(path, rescored)
