"""The user's cache folder, and folders in it that are made once, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from lmassay.errors import FAILED_PART_WAY, LmassayError


def cache_folder() -> Path:
    """``$LMASSAY_CACHE``, or lmassay's folder in the user's cache."""
    chosen = os.environ.get("LMASSAY_CACHE")
    return Path(chosen) if chosen else user_cache_path("lmassay")


def made_once(relative: str, make: Callable[[Path], None]) -> Path:
    """The cache folder `relative`, made by `make(temporary folder)` if it is not there.

    Two processes never make it twice, and one that is killed half-way leaves nothing under the final name.

    Raises
    ------
    LmassayError
        ``disk-full`` when the cache cannot be written.
    """
    folder = cache_folder() / relative
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if folder.is_dir():
                return folder
            for stale in folder.parent.glob(f".{folder.name}.making-*"):
                shutil.rmtree(stale)
            making = Path(tempfile.mkdtemp(prefix=f".{folder.name}.making-", dir=folder.parent))
            try:
                make(making)
                making.rename(folder)
            finally:
                shutil.rmtree(making, ignore_errors=True)
    except OSError as error:
        raise LmassayError(
            "disk-full",
            f"cannot write the cache at {folder.parent}: {error.strerror or error}",
            "free some space, or set LMASSAY_CACHE to another folder",
            exit_status=FAILED_PART_WAY,
        ) from error
    return folder
