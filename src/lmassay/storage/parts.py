"""Finished units of work on disk, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmassay.storage.atomic import write_with


class Parts:
    """Numbered Parquet files, one per shard, each named by its content's digest.

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
        folder.mkdir(exist_ok=True)

    def path(self, index: int, content: str) -> Path:
        """Where shard `index` goes; `content` names what was to be scored, so a changed plan never matches."""
        return self.folder / f"{index:05d}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.parquet"

    def read(self, index: int, content: str, n_rows: int) -> NDArray[np.float64] | None:
        """(n_rows, n_columns) of a finished shard; None where it is not there, or not whole and so to be done again."""
        path = self.path(index, content)
        if not path.exists():
            return None
        try:
            frame = pl.read_parquet(path)
            if frame.columns == self.columns and frame.height == n_rows:
                return frame.to_numpy().astype(np.float64, copy=False)
        except (pl.exceptions.PolarsError, OSError):
            pass
        self.damaged += 1
        path.unlink(missing_ok=True)
        return None

    def write(self, index: int, content: str, values: NDArray[np.float64]) -> None:
        """Keep a finished shard."""
        frame = pl.DataFrame(values, schema=self.columns, orient="row")
        write_with(self.path(index, content), lambda temporary: frame.write_parquet(temporary))
