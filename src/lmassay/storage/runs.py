"""A run's folder: one writer, one identity, resumable, and readable without the model."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lmassay.errors import LmassayError
from lmassay.storage.atomic import write_json
from lmassay.storage.fingerprint import file_sha256

SCHEMA_VERSION = 1
RUN, SCORES, OPTIONS, LABELS, PARTS = "run.json", "scores.json", "options.parquet", "labels.parquet", "parts"
LOCK = ".lock"
PATCHES, ABLATIONS, GEOMETRY = "patches.parquet", "ablations.parquet", "geometry.parquet"
PREDICTIONS, COMPRESSION, REPLIES = "predictions.parquet", "compression.parquet", "replies.parquet"
#: Every table a run may hold; which ones a run does hold stands in its record.
TABLES = (OPTIONS, LABELS, PATCHES, ABLATIONS, GEOMETRY, PREDICTIONS, COMPRESSION, REPLIES)
PACKAGES = ("lmassay", "torch", "transformers", "tokenizers", "numpy", "polars")
#: Fields of a record that are objects wherever they stand; readers look into them without asking.
SECTIONS = ("model", "packages", "machine", "choices")
IDENTITY_SECTIONS = ("battery", "settings", "convention", "task", "method")
#: What reading a record raises where something else stands in it than a run writes.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError)


@dataclass
class RunFolder:
    """A run folder held by this process.

    Attributes
    ----------
    record : dict
        The content of ``run.json``.
    """

    path: Path
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether an earlier command finished this run."""
        return self.record.get("status") == "done"

    def bind(self, identity: Mapping[str, Any], **about: Any) -> None:
        """Say what is run here; a folder that already holds a run must hold the same one.

        Parameters
        ----------
        identity : mapping
            Everything that decides a number: model and data fingerprints, protocol, convention, seed.
        **about
            What else the record should hold (command, settings, notes).

        Raises
        ------
        LmassayError
            ``run-folder-mismatch`` naming the first field that differs.
        """
        held = self.record.get("identity")
        if held is not None and (differing := first_difference(held, identity)) is not None:
            name, old, new = differing
            raise LmassayError(
                "run-folder-mismatch",
                f"{self.path} holds a run with {name} = {_short(old, new)}, this one has {_short(new, old)}",
                "choose another --out, or delete the folder",
            )
        if not self.done:
            started = self.record.get("started") or _now()
            self.record = {
                "schema_version": SCHEMA_VERSION,
                "status": "running",
                "identity": dict(identity),
                **about,
                "packages": _versions(),
                "machine": _machine(),
                "started": started,
            }
            self.write()

    def update(self, **changes: Any) -> None:
        """Change fields of the record and write it."""
        self.record |= changes
        self.write()

    def write(self) -> None:
        """Write ``run.json``."""
        write_json(self.path / RUN, self.record)

    def finish(self, tables: Sequence[str], **changes: Any) -> None:
        """Mark the run as done, with the digests of its tables and scores, and drop its parts."""
        digests = {name: file_sha256(self.path / name) for name in tables}
        scores = file_sha256(self.path / SCORES)
        self.update(status="done", finished=_now(), tables=digests, scores_sha256=scores, **changes)
        shutil.rmtree(self.path / PARTS, ignore_errors=True)


def first_difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first field, in the order of `b`, in which two records differ; nested fields by dotted name."""
    for name in [*b, *(k for k in a if k not in b)]:
        old, new = a.get(name), b.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = first_difference(old, new)
            if inner is not None:
                return f"{name}.{inner[0]}", inner[1], inner[2]
        elif old != new:
            return name, old, new
    return None


@contextmanager
def claimed(path: Path) -> Iterator[RunFolder]:
    """Hold a run folder for writing, made if needed; checked by a real write before anything slow happens.

    Raises
    ------
    LmassayError
        ``out-folder-unwritable``, ``run-folder-in-use``, ``bad-run-folder``.
    """
    with ExitStack() as held:
        try:
            made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            # Before the lock file is put there: a folder of something else is left as it was.
            _existing(path)
            held.enter_context(FileLock(path / LOCK, blocking=False))
            held.callback(_abandoned, path, made)
            (path / LOCK).write_text(str(os.getpid()))
            with tempfile.TemporaryFile(dir=path) as probe:
                probe.write(b"0")
            for child in path.iterdir():
                if _leftover(child):
                    child.unlink()
        except Timeout as error:
            holder = (path / LOCK).read_text().strip() or "another process"
            raise LmassayError(
                "run-folder-in-use",
                f"{path} is being written by process {holder}",
                "wait for it, or choose another --out",
            ) from error
        except OSError as error:
            raise LmassayError(
                "out-folder-unwritable", f"cannot write to {path}: {error.strerror or error}", "choose another --out"
            ) from error
        yield RunFolder(path, _existing(path))


def _abandoned(path: Path, made: bool) -> None:
    """Leave nothing where nothing was begun: a request that was wrong puts no lock file and no folder on the disk."""
    with suppress(OSError):
        if not any(child.name != LOCK for child in path.iterdir()):
            (path / LOCK).unlink()
            if made:
                path.rmdir()


def _existing(path: Path) -> dict[str, Any]:
    if (path / RUN).exists():
        return read_record(path)
    # run.json is the first file of a run, so whatever stands there without it is not ours to write over.
    strangers = sorted(child.name for child in path.iterdir() if child.name != LOCK and not _leftover(child))
    if strangers:
        raise LmassayError(
            "bad-run-folder",
            f"{path} is no run folder: it holds {', '.join(strangers[:3])}",
            "choose an empty folder, or a new one, as --out",
        )
    return {}


def _leftover(path: Path) -> bool:
    """A temporary file of a process that was killed while writing."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def read_record(path: Path) -> dict[str, Any]:
    """``run.json`` of a finished or unfinished run.

    Raises
    ------
    LmassayError
        ``bad-run-folder``.
    """
    try:
        record = json.loads((path / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = "it has no run.json" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else str(error)
        raise LmassayError("bad-run-folder", f"{path} is no readable run: {why}", "name a run folder") from error
    if not isinstance(record, dict):
        raise LmassayError("bad-run-folder", f"{path}: run.json holds no object", "name a run folder")
    held = record.get("schema_version")
    if held != SCHEMA_VERSION:
        newer = isinstance(held, int) and held > SCHEMA_VERSION
        raise LmassayError(
            "bad-run-folder",
            f"{path}: run.json is of schema version {held}, and this lmassay reads {SCHEMA_VERSION}"
            if isinstance(held, int)
            else f"{path}: run.json names no schema version",
            "update lmassay" if newer else "run it again",
        )
    _check_sections(path, record)
    return record


def _check_sections(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse a record in which something else stands where every reader finds an object."""
    identity = record.get("identity")
    found = {"identity": identity, **{name: record[name] for name in SECTIONS if name in record}}
    if isinstance(identity, dict):
        found |= {f"identity.{name}": identity[name] for name in IDENTITY_SECTIONS if name in identity}
    for name, value in found.items():
        if not isinstance(value, dict):
            raise LmassayError("bad-run-folder", f"{path}: run.json has no object as {name}", "run it again")


@contextmanager
def blaming(what: object, *also: type[Exception]) -> Iterator[None]:
    """While a run's figures are read: what is missing from its record is the folder's fault, told in a line.

    Parameters
    ----------
    what : Path or str
        The folder, or what else is read.
    also : types of exception
        That are its fault too, where its tables are read.

    Raises
    ------
    LmassayError
        ``bad-run-folder``.
    """
    faults: tuple[type[Exception], ...] = (*MALFORMED, *also)
    try:
        yield
    except faults as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise LmassayError("bad-run-folder", f"{what} is not what a run writes: {why}", "run it again") from error


def finished_record(path: Path) -> dict[str, Any]:
    """``run.json`` of a finished run with its tables in place.

    Raises
    ------
    LmassayError
        ``bad-run-folder``.
    """
    record = read_record(path)
    if record.get("status") != "done":
        raise LmassayError("bad-run-folder", f"{path}: {_standing(record)}", "run its command again to finish it")
    missing = [name for name in tables_of(path, record) if not (path / name).is_file()]
    if missing:
        raise LmassayError("bad-run-folder", f"{path} lacks {', '.join(missing)}", "run it again in another folder")
    return record


def _standing(record: Mapping[str, Any]) -> str:
    status = record.get("status")
    return "run.json does not say whether the run is done" if status is None else f"the run is {status}"


def tables_of(path: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """The tables a finished run holds, with the digests it recorded.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` when the record names none, or a file that is no table of ours.
    """
    tables = record.get("tables")
    if not isinstance(tables, dict) or not tables or not set(tables) <= set(TABLES):
        raise LmassayError("bad-run-folder", f"{path}: run.json does not name its tables", "run it again")
    return {name: str(tables[name]) for name in TABLES if name in tables}


def check_tables(path: Path, record: Mapping[str, Any]) -> None:
    """Compare the tables with the digests the run recorded.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` naming the first table that was altered.
    """
    for name, digest in tables_of(path, record).items():
        if file_sha256(path / name) != digest:
            raise LmassayError(
                "bad-run-folder", f"{path}: {name} is not the table this run wrote", "run it again in another folder"
            )


def read_scores(path: Path, *, as_written: bool = True) -> dict[str, Any]:
    """``scores.json`` of a finished run.

    Parameters
    ----------
    as_written : bool
        Refuse a file that is not the one the run wrote.

    Raises
    ------
    LmassayError
        ``bad-run-folder``.
    """
    record = finished_record(path)
    try:
        if as_written and file_sha256(path / SCORES) != record.get("scores_sha256"):
            raise ValueError("it is not what this run wrote")
        scores = json.loads((path / SCORES).read_text(encoding="utf-8"))
        if not isinstance(scores, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError) as error:
        why = "it is not there" if isinstance(error, FileNotFoundError) else str(error)
        raise LmassayError("bad-run-folder", f"{path}: {SCORES}: {why}", "run `lmassay rescore`") from error
    return scores


def _short(value: Any, other: Any) -> str:
    """A value for one line; of a long list what the other lacks."""
    text = str(value)
    if len(text) <= 24:
        return text
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return f"[…, {', '.join(str(x) for x in value if x not in other)}]".replace("…, ]", "…]")
    return f"{text[:16]}…"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _machine() -> dict[str, Any]:
    return {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()}
