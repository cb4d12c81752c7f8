"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def write_parquet(path: Path, frames: Iterable[pl.DataFrame], schema: Mapping[str, Any]) -> None:
    """Write a table that comes in pieces, without holding it whole; the same pieces give the same bytes."""
    import polars as pl
    from polars.io.plugins import register_io_source

    def pieces(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        yield from frames

    def write(temporary: Path) -> None:
        table = register_io_source(pieces, schema=pl.Schema(schema))
        try:
            table.sink_parquet(temporary, compression="zstd", compression_level=3, maintain_order=True)
        except pl.exceptions.ComputeError as error:
            # Polars calls a full disk a fault of the format, and keeps the system's reason only in its words.
            if (number := re.search(r"\(os error (\d+)\)", str(error))) is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error

    write_with(path, write)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """A table as Parquet, made in memory, for polars calls a full disk a fault of the format."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()
