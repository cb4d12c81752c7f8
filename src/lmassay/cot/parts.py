"""A part of a table on its way into the store: a block of records, checked and written by one process.

A worker process imports this module, so it needs neither numpy nor polars: its start would cost more than its work.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
import zlib
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
#: Larger files do not fit; the largest published one has 120 kB.
LARGEST_FILE = 1 << 28
#: Characters of a text's end that its ``@tail`` is computed over, to find candidates for equal texts.
TAIL = 64


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
        records, unread, size = _read(job.folder, names)
        write_part(
            job.table, job.fields, Path(job.out), number, names, records, unread=unread, size=size, started=started
        )


def write_part(
    table: str,
    fields: Sequence[Field],
    out: Path,
    number: int,
    names: Sequence[str],
    records: Sequence[Any],
    *,
    unread: dict[int, str] | None = None,
    size: int = 0,
    started: int = 0,
) -> None:
    """Check records and write them: texts as UTF-8, one file a field; everything else as JSON, last.

    The JSON file is there when, and only when, the part is whole.

    Parameters
    ----------
    names : sequence of str
        (n,) of the files.
    records : sequence
        (n,) as parsed; None at the positions in `unread`.
    unread : dict of int to str
        Files that could not be read, and why.
    size, started : int
        Bytes of the files, and the time before the first was read: what a resumed import compares.
    """
    unread = unread or {}
    if unread:
        kept = [i for i in range(len(names)) if i not in unread]
        columned, misfits = columns([records[i] for i in kept], fields)
        misfits = unread | {kept[i]: why for i, why in misfits.items()}
    else:
        columned, misfits = columns(records, fields)
    found = [n for i, n in enumerate(names) if i not in misfits] if misfits else list(names)
    texts = {}
    for field in fields:
        if field.is_text:
            placed, texts[field.name] = _write_texts(out / f"{number:05d}.{field.name}.text", columned.pop(field.name))
            columned |= {f"{field.name}@{of}": values for of, values in placed.items()}
    columned["_file"] = found
    encoded = orjson.dumps(columned)
    digest = hashlib.sha256(encoded)
    for name, (_, sha256) in texts.items():
        digest.update(f"{name}\x1f{sha256}".encode())
    about = {
        "names": names_digest(names), "size": size, "started": started, "rows": len(found), "texts": texts,
        "kept_out": [[names[i], why] for i, why in sorted(misfits.items())], "digest": digest.hexdigest(),
        "keys": example_keys(table, found),
    }  # fmt: skip
    # Columns and what is said about them, as two lines of one file, so that neither is there without the other.
    target = out / f"{number:05d}.json"
    temporary = target.with_suffix(".making")
    with temporary.open("wb") as file:
        file.write(orjson.dumps(about))
        file.write(b"\n")
        file.write(encoded)
    temporary.replace(target)


def names_digest(names: Sequence[str]) -> str:
    """sha256 over file names."""
    return hashlib.sha256("\x1f".join(names).encode("utf-8", "surrogateescape")).hexdigest()


def example_keys(table: str, names: Sequence[str]) -> list[int]:
    """(n,) 63-bit numbers, each a hash of table and name: they order rows by nothing that could give a label away."""
    blake2b, from_bytes, key = hashlib.blake2b, int.from_bytes, hashlib.sha256(table.encode()).digest()
    return [from_bytes(blake2b(n.encode(), digest_size=8, key=key).digest(), "big") >> 1 for n in names]


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


def _read(folder: str, names: Sequence[str]) -> tuple[list[Any], dict[int, str], int]:
    """Parsed files, those that could not be parsed and why, and the bytes read."""
    records: list[Any] = []
    unread: dict[int, str] = {}
    size = 0
    buffer = bytearray(1 << 20)
    view, buffers = memoryview(buffer), [buffer]
    opened, read, close, loads = os.open, os.readv, os.close, orjson.loads
    at, flags = opened(folder, os.O_RDONLY), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        for i, name in enumerate(names):
            try:
                # A link could lead anywhere on this machine, and a named pipe keep us waiting; a checkout has none.
                file = opened(name, flags, dir_fd=at)
            except OSError as error:
                unread[i] = f"cannot be opened: {error.strerror}"
                records.append(None)
                continue
            try:
                n = read(file, buffers)
                data: Any = view[:n]
                if n == len(buffer):
                    data = _rest(file, bytes(buffer))
                    n = len(data)
                size += n
                records.append(loads(data))
            except (OSError, ValueError) as error:
                unread[i] = _why_not_json(bytes(data)) if isinstance(error, ValueError) else f"{error.strerror}"
                records.append(None)
            finally:
                close(file)
    finally:
        close(at)
    return records, unread, size


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


def _write_texts(path: Path, values: Sequence[str | None]) -> tuple[dict[str, list[int | None]], tuple[int, str]]:
    """Write texts one after another, and say where each is.

    A text that begins like the one before it is not written again: prefixes of one rollout, sorted by name, follow
    from the longest to the shortest, and make more than half of task 1's text.

    Returns
    -------
    placed : dict of str to list
        ``start`` and ``bytes`` (None for absent) and ``tail``, a checksum over the text's last characters.
    about : (int, str)
        Size and sha256 of the file.
    """
    start: list[int | None] = []
    size: list[int | None] = []
    tail: list[int | None] = []
    at = end = held = 0
    last = ""
    digest = hashlib.sha256()
    pending: list[bytes] = []
    crc32 = zlib.crc32
    with path.open("wb") as file:
        for value in values:
            if value is None:
                start.append(None)
                size.append(None)
                tail.append(None)
                continue
            if start and last.startswith(value):
                n = len(value)
                if not value.isascii():
                    # Encode the shorter of the text and what it leaves away.
                    n = held - len(last[n:].encode()) if 2 * n > len(last) else len(value.encode())
            else:
                data = value.encode()
                digest.update(data)
                pending.append(data)
                at, n, last = end, len(data), value
                end += n
                held = n
                if len(pending) == 64:
                    file.write(b"".join(pending))
                    pending.clear()
            start.append(at)
            size.append(n)
            tail.append(crc32(value[-TAIL:].encode()))
        file.write(b"".join(pending))
    return {"start": start, "bytes": size, "tail": tail}, (end, digest.hexdigest())
