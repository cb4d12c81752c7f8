"""A part of a table on its way into the store: a block of records, checked and written by one process.

A worker process imports this module, so it needs neither numpy nor polars: its start would cost more than its work.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from lmassay.cot.schema import Field, columns

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Records of one part, in order of file name. Part of every digest: another number is another digest.
BLOCK = 2048
#: Records parsed before they are taken apart: few enough to be still in the processor's cache.
BATCH = 256
#: Larger files do not fit; the largest published one has 120 kB.
LARGEST_FILE = 1 << 28


@dataclass(frozen=True, slots=True)
class TableJob:
    """What a worker must know of a table.

    Attributes
    ----------
    table : str
        Such as ``head/1/train/records``; every example's key is derived from it and the file's name.
    fields : tuple of Field
    folder : str
        Of the JSON files.
    names : list of str
        Of the files, sorted.
    out : str
        Where parts are written.
    """

    table: str
    fields: tuple[Field, ...]
    folder: str
    names: list[str]
    out: str

    def block(self, number: int) -> list[str]:
        """The names of one part's files."""
        return self.names[number * BLOCK : (number + 1) * BLOCK]

    @property
    def n_blocks(self) -> int:
        """How many parts there are."""
        return -(-len(self.names) // BLOCK)


def read_part(job: TableJob, number: int) -> None:
    """Read, check and write one part from its JSON files."""
    names, started = job.block(number), time.time_ns()
    with _no_collection():
        part = PartWriter(job.table, job.fields, Path(job.out), number)
        size = _read(job.folder, names, part)
        part.finish(names, size=size, started=started)


class PartWriter:
    """Records on their way into one part: texts as UTF-8, one file a field; everything else as JSON, at the end.

    The JSON file is there when, and only when, the part is whole.

    Parameters
    ----------
    table : str
    fields : sequence of Field
    out : Path
        Folder of the table's parts.
    number : int
        Of the part.
    """

    def __init__(self, table: str, fields: Sequence[Field], out: Path, number: int) -> None:
        self.table, self.fields, self.out, self.number = table, fields, out, number
        self.found: list[str] = []
        self.kept_out: list[tuple[str, str]] = []
        self.columns: dict[str, list[Any]] = {}
        self.texts = {f.name: _TextWriter(out / f"{number:05d}.{f.name}.text") for f in fields if f.is_text}

    def add(self, names: Sequence[str], records: Sequence[Any]) -> None:
        """Check some records and take those that fit. An `Unread` among them is kept out for its reason."""
        unread = {i: r.why for i, r in enumerate(records) if type(r) is Unread}
        kept = [i for i in range(len(names)) if i not in unread] if unread else range(len(names))
        columned, misfits = columns([records[i] for i in kept] if unread else records, self.fields)
        wrong = unread | {kept[i]: why for i, why in misfits.items()}
        self.kept_out += [(names[i], why) for i, why in sorted(wrong.items())]
        self.found += [n for i, n in enumerate(names) if i not in wrong] if wrong else names
        for name, values in columned.items():
            if name in self.texts:
                self.texts[name].add(values)
            elif name in self.columns:
                self.columns[name] += values
            else:
                self.columns[name] = values

    def finish(self, names: Sequence[str], *, size: int, started: int) -> None:
        """Write what is said about the part.

        Parameters
        ----------
        names : sequence of str
            Of all files of the part, those kept out among them.
        size, started : int
            Bytes of the files, and the time before the first was read: what a resumed import compares.
        """
        texts = {}
        for name, writer in self.texts.items():
            texts[name] = writer.close()
            self.columns[f"{name}@start"], self.columns[f"{name}@bytes"] = writer.start, writer.size
        self.columns["_file"] = self.found
        encoded = orjson.dumps(self.columns)
        digest = hashlib.sha256(encoded)
        for name, (_, sha256) in texts.items():
            digest.update(f"{name}\x1f{sha256}".encode())
        about = {
            "names": names_digest(names), "size": size, "started": started, "rows": len(self.found), "texts": texts,
            "kept_out": self.kept_out, "digest": digest.hexdigest(), "keys": example_keys(self.table, self.found),
        }  # fmt: skip
        # Columns and what is said about them, as two lines of one file, so that neither is there without the other.
        target = self.out / f"{self.number:05d}.json"
        temporary = target.with_suffix(".making")
        with temporary.open("wb") as file:
            file.write(orjson.dumps(about))
            file.write(b"\n")
            file.write(encoded)
        temporary.replace(target)


@dataclass(frozen=True, slots=True)
class Unread:
    """In place of a record that could not be read."""

    why: str


def names_digest(names: Sequence[str]) -> str:
    """sha256 over file names."""
    return hashlib.sha256("\x1f".join(names).encode("utf-8", "surrogateescape")).hexdigest()


def example_keys(table: str, names: Sequence[str]) -> list[int]:
    """(n,) 63-bit numbers, each a hash of table and name: they order rows by nothing that could give a label away."""
    blake2b, from_bytes, person = hashlib.blake2b, int.from_bytes, hashlib.sha256(table.encode()).digest()[:16]
    return [from_bytes(blake2b(n.encode(), digest_size=8, person=person).digest(), "big") >> 1 for n in names]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Thousands of parsed records hold no cycles; looking for some takes a tenth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _read(folder: str, names: Sequence[str], part: PartWriter) -> int:
    """Parse files and hand them over; the bytes read come back."""
    size = 0
    buffer = bytearray(1 << 20)
    view, buffers = memoryview(buffer), [buffer]
    opened, read, close, loads = os.open, os.readv, os.close, orjson.loads
    at, flags = opened(folder, os.O_RDONLY), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        for first in range(0, len(names), BATCH):
            batch = names[first : first + BATCH]
            records: list[Any] = []
            for name in batch:
                data: Any = b""
                try:
                    # A link could lead anywhere on this machine, and a named pipe keep us waiting; a checkout has none.
                    file = opened(name, flags, dir_fd=at)
                    try:
                        n = read(file, buffers)
                        data = view[:n] if n < len(buffer) else _rest(file, bytes(buffer))
                    finally:
                        close(file)
                    size += len(data)
                    records.append(loads(data))
                except OSError as error:
                    records.append(Unread(f"cannot be read: {error.strerror}"))
                except ValueError:
                    records.append(Unread(_why_not_json(bytes(data))))
            part.add(batch, records)
    finally:
        close(at)
    return size


def _rest(file: int, start: bytes) -> bytes:
    pieces, total = [start], len(start)
    while more := os.read(file, 1 << 22):
        pieces.append(more)
        total += len(more)
        if total > LARGEST_FILE:
            raise OSError(0, f"larger than {LARGEST_FILE >> 20} MB")
    return b"".join(pieces)


def _why_not_json(data: bytes) -> str:
    try:
        json.loads(data)
    except UnicodeDecodeError:
        return "not UTF-8"
    except RecursionError:
        return "not JSON: nested too deeply"
    except ValueError as error:
        return f"not JSON: {error}"
    return "not strict JSON: a lone surrogate, NaN, or a number beyond 64 bits"


class _TextWriter:
    """Texts written one after another, and where each is.

    A text that begins like the one before it is not written again: prefixes of one rollout, sorted by name, follow
    from the longest to the shortest, and make more than half of task 1's text.

    Attributes
    ----------
    start, size : list of int or None
        Where each text is, in bytes; None for absent.
    """

    def __init__(self, path: Path) -> None:
        self.start: list[int | None] = []
        self.size: list[int | None] = []
        self._file = path.open("wb")
        self._digest = hashlib.sha256()
        self._last = ""
        self._at = self._end = self._held = 0

    def add(self, values: Sequence[str | None]) -> None:
        """Write some texts."""
        last, at, end, held = self._last, self._at, self._end, self._held
        pending: list[bytes] = []
        start, size = self.start, self.size
        for value in values:
            if value is None:
                start.append(None)
                size.append(None)
                continue
            if last.startswith(value):
                n = len(value)
                if not value.isascii():
                    # Encode the shorter of the text and what it leaves away.
                    n = held - len(last[n:].encode()) if 2 * n > len(last) else len(value.encode())
            else:
                data = value.encode()
                pending.append(data)
                at, n, last = end, len(data), value
                end += n
                held = n
            start.append(at)
            size.append(n)
        written = b"".join(pending)
        self._digest.update(written)
        self._file.write(written)
        self._last, self._at, self._end, self._held = last, at, end, held

    def close(self) -> tuple[int, str]:
        """Size and sha256 of the file."""
        self._file.close()
        return self._end, self._digest.hexdigest()
