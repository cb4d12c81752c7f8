"""Shards of tensors on disk: safetensors files filled piece by piece, whole or not there, named by their digest."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.storage.atomic import write_errors
from lmassay.storage.fingerprint import file_sha256

#: safetensors' names of types, with the numpy type that holds their bytes. Ordered by size, so that all is aligned.
TYPES: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
#: Name of a tensor -> a key of `TYPES`, and its shape.
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
#: Longest header that is believed; a damaged length must not fill the memory.
HEADER_BYTES = 1 << 24
SUFFIX = ".safetensors"


def damaged(what: str) -> LmassayError:
    """The error of activations that are not what they were when they were written."""
    return LmassayError(
        "activations-broken",
        what,
        "run the `lmassay cot activations` command that made them again: it makes only what is missing",
        exit_status=FAILED_PART_WAY,
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor is in its file.

    Attributes
    ----------
    kind : str
        A key of `TYPES`.
    shape : tuple of int
    start : int
        First byte in the file.
    """

    kind: str
    shape: tuple[int, ...]
    start: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the first axis."""
        return TYPES[self.kind].itemsize * math.prod(self.shape[1:])


def _layout(tensors: Tensors, about: Mapping[str, str]) -> tuple[bytes, dict[str, Place], int]:
    """Header, places and size of a file with these tensors, as the safetensors format lays them out."""
    order = sorted(tensors, key=lambda name: list(TYPES).index(tensors[name][0]))
    entries: dict[str, Any] = {"__metadata__": dict(about)}
    end = 0
    for name in order:
        kind, shape = tensors[name]
        begin, end = end, end + TYPES[kind].itemsize * math.prod(shape)
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    places = {
        n: Place(e["dtype"], tuple(e["shape"]), len(header) + e["data_offsets"][0])
        for n, e in entries.items()
        if n != "__metadata__"
    }
    return header, places, len(header) + end


class ShardWriter:
    """A file whose tensors are written row by row as they are computed, so that no shard is ever held in memory.

    The safetensors library writes a file only from tensors that are all there.
    """

    def __init__(self, path: Path, tensors: Tensors, about: Mapping[str, str]) -> None:
        header, self._places, self._size = _layout(tensors, about)
        self._left = {name: place.shape[0] for name, place in self._places.items()}
        self._path = path
        with write_errors(path):
            self._file = path.open("wb")
            self._file.write(header)

    def put(self, name: str, row: int, values: NDArray[Any]) -> None:
        """Write (n, …) values at rows `row` to ``row + n`` of a tensor.

        Raises
        ------
        ValueError
            If they are of another type or shape than was announced.
        """
        place = self._places[name]
        if values.dtype.itemsize != TYPES[place.kind].itemsize or values.shape[1:] != place.shape[1:]:
            raise ValueError(f"{name} is {place.kind} {place.shape}, not {values.dtype} {values.shape}")
        if row + len(values) > place.shape[0]:
            raise ValueError(f"{name} has {place.shape[0]} rows, not {row + len(values)}")
        self._left[name] -= len(values)
        with write_errors(self._path):
            self._file.seek(place.start + row * place.row_bytes)
            self._file.write(np.ascontiguousarray(values).data)

    def close(self) -> None:
        """Finish the file.

        Raises
        ------
        ValueError
            If rows were left out.
        """
        lacking = sorted(name for name, left in self._left.items() if left)
        if lacking:
            raise ValueError(f"rows of {', '.join(lacking)} were not written")
        with write_errors(self._path):
            self._file.truncate(self._size)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def abandon(self) -> None:
        """Close an unfinished file."""
        with suppress(OSError):
            self._file.close()


class Shards:
    """The shards of a folder: one file each, named by number, what was to be computed, and the file's own digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged = 0
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def clear_leftovers(self) -> None:
        """Remove what killed writers left; only the holder of the folder's lock may."""
        for path in self.folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    def find(self, number: int, content: str) -> Path | None:
        """A finished shard; one that was cut or altered is removed, counted, and so to be made again."""
        for path in sorted(self.folder.glob(f"{_stem(number, content)}-*{SUFFIX}")):
            if is_whole(path):
                return path
            self.damaged += 1
            path.unlink()
        return None

    def has(self, number: int, content: str) -> bool:
        """Whether a shard is there, without reading it."""
        return any(self.folder.glob(f"{_stem(number, content)}-*{SUFFIX}"))

    @contextmanager
    def new(self, number: int, content: str, tensors: Tensors) -> Iterator[ShardWriter]:
        """Fill a shard; it gets its name when the block ends, and leaves nothing if the block raises."""
        stem = _stem(number, content)
        temporary = self.folder / f".{stem}.{os.getpid()}.tmp"
        try:
            writer = ShardWriter(temporary, tensors, {"content": content})
            try:
                yield writer
                writer.close()
            except BaseException:
                writer.abandon()
                raise
            with write_errors(temporary):
                temporary.replace(self.folder / f"{stem}-{file_sha256(temporary)[:16]}{SUFFIX}")
        finally:
            temporary.unlink(missing_ok=True)


def _stem(number: int, content: str) -> str:
    return f"{number:05d}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def is_whole(path: Path) -> bool:
    """Whether a shard's bytes are those its name was made from."""
    return path.stem.rpartition("-")[2] == file_sha256(path)[:16]


def places_of(path: Path) -> dict[str, Place]:
    """The tensors of a file and where they are.

    Raises
    ------
    LmassayError
        ``activations-broken``.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > HEADER_BYTES:
                raise ValueError("its header has no believable length")
            entries = json.loads(file.read(length))
        return {
            name: Place(e["dtype"], tuple(e["shape"]), 8 + length + e["data_offsets"][0])
            for name, e in entries.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(f"{path} cannot be read: {error}") from error


def read_rows(path: Path, place: Place, start: int, stop: int) -> NDArray[Any]:
    """(stop - start, …) rows of a tensor, as numbers numpy has: bfloat16 comes as float32.

    Read, not mapped: mapped pages would count as this process's memory for as long as it lives.

    Raises
    ------
    LmassayError
        ``activations-broken``.
    """
    size = (stop - start) * place.row_bytes
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(place.start + start * place.row_bytes)
            data = bytearray(size)
            view, got = memoryview(data), 0
            while got < size and (n := file.readinto(view[got:])):
                got += n
    except OSError as error:
        raise damaged(f"{path} cannot be read: {error.strerror or error}") from error
    if got != size:
        raise damaged(f"{path} was cut short")
    rows = np.frombuffer(data, TYPES[place.kind]).reshape(stop - start, *place.shape[1:])
    if place.kind == "BF16":
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows
