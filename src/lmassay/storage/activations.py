"""A store of activations: an index, a table of examples, and shards read from disk as they are asked for.

``index.json`` says what the states are of and names every shard with its digest; ``examples.parquet`` says for each
example in which shard and where; ``shards/`` holds safetensors files that other programs can read too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.examples import KINDS
from lmassay.storage.atomic import write_json
from lmassay.storage.fingerprint import file_sha256, remembered_sha256
from lmassay.storage.shards import Place, damaged, places_of, read_rows

if TYPE_CHECKING:
    import polars as pl

INDEX, EXAMPLES, SHARDS = "index.json", "examples.parquet", "shards"
VERSION = 1
POOLINGS = ("last", "mean", "max")
#: Status of an example whose states are there.
KEPT = "ok"
Keys = NDArray[np.int64]
Floats = NDArray[np.float32]


def write_index(
    folder: Path, identity: Mapping[str, Any], about: Mapping[str, Any], shards: Sequence[Path]
) -> dict[str, Any]:
    """Say that a store is finished; nothing in the index depends on when, where or in how many parts it was made.

    Parameters
    ----------
    identity : mapping
        Everything that decides a number.
    about : mapping
        ``model``, ``width``, ``blocks``, ``poolings``, ``token_blocks`` and counts.
    shards : sequence of Path
        In the order of their numbers.
    """
    files = [{"file": p.name, "bytes": p.stat().st_size, "sha256": file_sha256(p)} for p in shards]
    index = {
        "schema_version": VERSION,
        "identity": dict(identity),
        **about,
        "examples": {"file": EXAMPLES, "sha256": file_sha256(folder / EXAMPLES)},
        "shards": files,
    }
    write_json(folder / INDEX, index)
    return index


class ActivationStore:
    """States of a reader model at the visible tokens of examples, on disk.

    Parameters
    ----------
    folder : Path
        What ``lmassay cot activations`` wrote.

    Attributes
    ----------
    model : str
        Name of the reader.
    width : int
    blocks : tuple of int
        Blocks whose pooled states are there; block i is the site ``block.i``.
    poolings : tuple of str
        Of ``last``, ``mean``, ``max``.
    token_blocks : tuple of int
        Blocks whose state at every kept token is there.
    fingerprint : str
        sha256 that changes whenever a number could.
    identity : dict
        What the states are of: task data, model, convention, settings.

    Raises
    ------
    LmassayError
        ``activations-broken`` when a file is missing, cut short or altered.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.index = _read_index(self.folder)
        self.identity: dict[str, Any] = self.index["identity"]
        self.model = str(self.index["model"])
        self.width = int(self.index["width"])
        self.blocks = tuple(int(b) for b in self.index["blocks"])
        self.poolings = tuple(str(p) for p in self.index["poolings"])
        self.token_blocks = tuple(int(b) for b in self.index["token_blocks"])
        self.fingerprint = hashlib.sha256(
            json.dumps(
                [self.identity, self.index["examples"]["sha256"], [s["sha256"] for s in self.index["shards"]]]
            ).encode()
        ).hexdigest()
        self._files = [self.folder / SHARDS / s["file"] for s in self.index["shards"]]
        self._check()
        frame = self.examples().sort("key")
        self._keys: Keys = frame["key"].to_numpy()
        self._kept = (frame["status"] == KEPT).to_numpy()
        self._shard, self._row, self._start, self._length = (
            frame[name].to_numpy().astype(np.int64) for name in ("shard", "row", "start", "n_tokens")
        )

    def _check(self) -> None:
        """Every file against its digest, computed anew only where its size or time has changed."""
        for path, said in zip(self._files, self.index["shards"], strict=True):
            try:
                if path.stat().st_size != said["bytes"] or remembered_sha256(path) != said["sha256"]:
                    raise damaged(f"{path} was cut short or altered")
            except OSError as error:
                raise damaged(f"{path} cannot be read: {error.strerror or error}") from error

    def examples(self) -> pl.DataFrame:
        """A row an example: key, split, status, where its states are, tokens read, kept and lost.

        Raises
        ------
        LmassayError
            ``activations-broken``.
        """
        import polars as pl

        path = self.folder / EXAMPLES
        try:
            if file_sha256(path) != self.index["examples"]["sha256"]:
                raise damaged(f"{path} was altered")
            return pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise damaged(f"{path} cannot be read: {error}") from error

    def knows(self, keys: Keys) -> NDArray[np.bool_]:
        """(n,) whether an example was among those read, kept or skipped."""
        return self._find(keys)[1]

    def lengths(self, keys: Keys) -> NDArray[np.int64]:
        """(n,) kept tokens; 0 where an example was skipped or is not there."""
        at, found = self._find(keys)
        return np.where(found & self._kept[at], self._length[at], 0)

    def pooled(self, keys: Keys, block: int, pooling: str) -> Floats:
        """(n, width) float32; a row of NaN for an example that was skipped or is not there.

        Raises
        ------
        LmassayError
            ``bad-request`` when the store has no such block or pooling, ``activations-broken``.
        """
        self._require(block, self.blocks, "pooled states")
        if pooling not in self.poolings:
            raise LmassayError(
                "bad-request",
                f"{self.folder} has no states pooled by {pooling!r}, only by {', '.join(self.poolings)}",
                "choose one of those, or extract with --tokens all",
            )
        at, found = self._find(keys)
        rows = np.full((len(keys), self.width), np.nan, dtype=np.float32)
        there = np.flatnonzero(found & self._kept[at])
        shards = self._shard[at[there]]
        for shard in np.unique(shards).tolist():
            of = there[shards == shard]
            path = self._files[shard]
            place = self._place(path, f"block.{block}.{pooling}")
            rows[of] = read_rows(path, place, 0, place.shape[0])[self._row[at[of]]]
        return rows

    def states(self, key: int, block: int) -> Floats:
        """(n_tokens, width) float32 states of one example at its kept tokens; no rows where it was skipped.

        Raises
        ------
        LmassayError
            ``bad-request`` when the store has no token states of the block, ``activations-broken``.
        """
        self._require(block, self.token_blocks, "states of every token")
        rows = self._tokens(key, f"block.{block}.tokens")
        if rows is None:
            return np.zeros((0, self.width), dtype=np.float32)
        return rows.astype(np.float32, copy=False)

    def token_ids(self, key: int) -> NDArray[np.int32]:
        """(n_tokens,) the kept tokens of one example."""
        rows = self._tokens(key, "token_ids")
        return np.zeros(0, dtype=np.int32) if rows is None else rows

    def spans(self, key: int) -> list[tuple[str, int, int]]:
        """Kind, first and last + 1 kept token of each segment that has any, in order."""
        at, found = self._find(np.array([key], dtype=np.int64))
        if not (found[0] and self._kept[at[0]]):
            return []
        path, row = self._files[self._shard[at[0]]], int(self._row[at[0]])
        counts = self._place(path, "span_counts")
        before = read_rows(path, counts, 0, row + 1)
        stop = int(before.sum())
        rows = read_rows(path, self._place(path, "spans"), stop - int(before[-1]), stop)
        return [(KINDS[kind], start, end) for kind, start, end in rows.tolist()]

    def _tokens(self, key: int, name: str) -> NDArray[Any] | None:
        at, found = self._find(np.array([key], dtype=np.int64))
        i = int(at[0])
        if not (found[0] and self._kept[i]):
            return None
        path = self._files[self._shard[i]]
        start = int(self._start[i])
        return read_rows(path, self._place(path, name), start, start + int(self._length[i]))

    def _find(self, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Row of each key in the table, and whether it is there."""
        if not len(self._keys):
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return at, self._keys[at] == keys

    def _require(self, block: int, there: tuple[int, ...], what: str) -> None:
        if block not in there:
            known = ", ".join(map(str, there)) or "none"
            raise LmassayError(
                "bad-request",
                f"{self.folder} has no {what} of block {block}; it has those of: {known}",
                "choose one of those, or extract that block too",
            )

    @staticmethod
    def _place(path: Path, name: str) -> Place:
        try:
            return _places(path)[name]
        except KeyError as error:
            raise damaged(f"{path} has no tensor {name}") from error


@lru_cache(maxsize=4096)
def _places(path: Path) -> dict[str, Place]:
    """Headers, remembered: a store that was checked when it was opened does not change."""
    return places_of(path)


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        if index["schema_version"] != VERSION:
            raise ValueError(f"it is not of version {VERSION}")
        for name in ("identity", "model", "width", "blocks", "poolings", "token_blocks", "examples", "shards"):
            index[name]
    except FileNotFoundError as error:
        raise damaged(f"{folder} holds no finished activations: it has no {INDEX}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(f"{path} cannot be read: {error}") from error
    return dict(index)
