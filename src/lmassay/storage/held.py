"""A folder held by one writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lmassay.errors import LmassayError

LOCK = ".lock"


@contextmanager
def held_folder(folder: Path, other: str) -> Iterator[None]:
    """Hold a folder for writing, made if needed, before anything slow happens.

    Parameters
    ----------
    other : str
        What else the user can do, as in ``choose another --out``.

    Raises
    ------
    LmassayError
        ``run-folder-in-use``, ``out-folder-unwritable``.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, blocking=False)
        lock.acquire()
    except Timeout as error:
        raise LmassayError(
            "run-folder-in-use", f"{folder} is being written by another process", f"wait for it, or {other}"
        ) from error
    except OSError as error:
        raise LmassayError(
            "out-folder-unwritable", f"cannot write to {folder}: {error.strerror or error}", other
        ) from error
    try:
        yield
    finally:
        lock.release()
