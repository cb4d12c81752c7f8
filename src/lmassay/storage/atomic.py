"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lmassay.errors import FAILED_PART_WAY, LmassayError


def write_with(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in its place.

    A failed write leaves the old file as it was and no temporary one.

    Raises
    ------
    LmassayError
        ``disk-full`` with the system's own reason.
    """
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise LmassayError(
            "disk-full",
            f"could not write {path}: {error.strerror or error}",
            "free some space and run the same command again",
            exit_status=FAILED_PART_WAY,
        ) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text."""
    write_with(path, lambda temporary: _write(temporary, text.encode("utf-8", "surrogatepass")))


def write_json(path: Path, content: Any) -> None:
    """Write JSON that another program can read: no NaN, keys in the given order, a line break at the end."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=True, allow_nan=False) + "\n")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
