"""Finished units of work on disk, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmassay.storage.atomic import parquet_bytes, write_bytes, write_errors


class Parts:
    """Parquet files, one per shard, named by its number, what was to be scored, and the file's own digest.

    Parquet has no checksum of its own: a changed byte can come out as another number, or bring the reader down.

    Parameters
    ----------
    folder : Path
    columns : sequence of str
        Names of the matrix columns (depths).
    """

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self.folder = folder
        self.columns = list(columns)
        self.damaged = 0
        with write_errors(folder):
            folder.mkdir(exist_ok=True)

    def _stem(self, index: int, content: str) -> str:
        return f"{index:05d}-{_digest(content.encode())}"

    def read(self, index: int, content: str, n_rows: int) -> NDArray[np.float64] | None:
        """(n_rows, n_columns) of a finished shard; None where it is not there, or not whole and so to be done again.

        Parameters
        ----------
        content : str
            Names what was to be scored, so that a changed plan never matches.
        """
        for path in self.folder.glob(f"{self._stem(index, content)}-*.parquet"):
            data = path.read_bytes()
            if path.stem.rpartition("-")[2] == _digest(data):
                frame = pl.read_parquet(io.BytesIO(data))
                if frame.columns == self.columns and frame.height == n_rows:
                    return frame.to_numpy().astype(np.float64, copy=False)
            self.damaged += 1
            path.unlink()
        return None

    def write(self, index: int, content: str, values: NDArray[np.float64]) -> None:
        """Keep a finished shard."""
        data = parquet_bytes(pl.DataFrame(values, schema=self.columns, orient="row"))
        write_bytes(self.folder / f"{self._stem(index, content)}-{_digest(data)}.parquet", data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
