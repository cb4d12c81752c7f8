"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.errors import FAILED_PART_WAY, LmassayError

if TYPE_CHECKING:
    import polars as pl

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the system says against writing `path` into ``disk-full``."""
    try:
        yield
    except OSError as error:
        full = error.errno in FULL
        raise LmassayError(
            "disk-full",
            f"could not write {path}: {error.strerror or error}",
            f"{'free some space' if full else 'make sure its folder can be written'} and run the same command again",
            exit_status=FAILED_PART_WAY,
        ) from error


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
        with write_errors(path):
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
            os.close(handle)
            temporary = Path(name)
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
            temporary = None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data`."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(data)

    write_with(path, write)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text."""
    write_bytes(path, text.encode("utf-8", "surrogatepass"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON that another program can read: no NaN, keys in the given order, a line break at the end."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=True, allow_nan=False) + "\n")


def parquet_bytes(frame: pl.DataFrame, **options: Any) -> bytes:
    """A table as Parquet, made in memory, for polars calls a full disk a fault of the format."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, **options)
    return buffer.getvalue()
