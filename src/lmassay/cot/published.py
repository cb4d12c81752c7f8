"""Import of the published data set into the store: checked, counted against the release, resumable, all or nothing."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from filelock import FileLock

from lmassay.cot.download import download, is_commit
from lmassay.cot.parts import BLOCK, PartWriter, TableJob, names_digest
from lmassay.cot.sources import STRAY, FoundTable, Source, find_tables, is_archive, is_export, unpack
from lmassay.cot.store import StoredTable, assemble, read_manifest, store_folder, write_manifest
from lmassay.cot.tasks import tasks
from lmassay.cot.workers import Unit, read_parts, second_process
from lmassay.errors import LmassayError
from lmassay.storage.atomic import write_errors
from lmassay.storage.fingerprint import file_sha256

if TYPE_CHECKING:
    import polars as pl

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class TableReport:
    """What an import found of one table.

    Attributes
    ----------
    table : str
    found, expected : int
        Records that fit, and records of the release.
    kept_out : tuple of (str, str)
        Files that do not fit, and why.
    status : str
        ``imported``, ``unchanged`` (it was in the store already), ``missing``, or ``unreadable``.
    why : str
        Of an unreadable table.
    """

    table: str
    found: int
    expected: int
    kept_out: tuple[tuple[str, str], ...] = ()
    status: str = "imported"
    why: str = ""

    @property
    def as_published(self) -> bool:
        """Whether all that the release counts is there, and nothing else was."""
        return self.found == self.expected and not self.kept_out and self.status in ("imported", "unchanged")


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import found.

    Attributes
    ----------
    kind : str
        ``checkout`` or ``parquet``.
    layouts : tuple of str
    tables : tuple of TableReport
    strays : tuple of str
        Files that belong to no table.
    refused : tuple of str
        Members of an archive that were not unpacked, and why.
    """

    kind: str
    layouts: tuple[str, ...]
    tables: tuple[TableReport, ...]
    strays: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def as_published(self) -> bool:
        """Whether every table is there as published."""
        return not self.refused and all(t.as_published for t in self.tables)


def import_published(source: str | Path, *, processes: int = 2, progress: Progress | None = None) -> ImportReport:
    """Import published data into the store.

    What does not fit is named, counted and kept out. The store changes at the end, at once: an import that is stopped
    leaves it as it was, and the same command again goes on after the parts that are whole.

    Parameters
    ----------
    source : str or path
        A checkout, an archive of one, a folder of the Parquet export, or ``published@COMMIT``.
    processes : int
        1 or 2, for JSON files.
    progress : callable or None
        Of (parts done, parts in all).

    Raises
    ------
    LmassayError
        ``cot-data-broken``, ``network-unavailable``, ``disk-full``, ``bad-request``.
    """
    folder = store_folder()
    with write_errors(folder):
        (folder / "importing").mkdir(parents=True, exist_ok=True)
        (folder / "tables").mkdir(exist_ok=True)
    with FileLock(folder / ".lock"):
        for stale in (*(folder / "importing").glob("unpacked-*"), *(folder / "importing").glob("download-*")):
            shutil.rmtree(stale, ignore_errors=True)
        if is_commit(str(source)):
            with tempfile.TemporaryDirectory(dir=folder / "importing", prefix="download-") as scratch:
                archive = download(str(source), Path(scratch))
                return _from_archive(archive, f"{source} sha256:{file_sha256(archive)}", processes, progress)
        path = Path(source).expanduser().resolve()
        if not path.exists():
            raise LmassayError("bad-request", f"no such file or folder: {source}", "name a checkout, archive or export")
        if is_archive(path):
            return _from_archive(path, str(path), processes, progress)
        if not path.is_dir():
            raise LmassayError("bad-request", f"{source} is no archive we read", "a .zip or .tar.gz will do")
        return _import(path, str(path), processes, progress)


def _from_archive(archive: Path, named: str, processes: int, progress: Progress | None) -> ImportReport:
    with tempfile.TemporaryDirectory(dir=store_folder() / "importing", prefix="unpacked-") as scratch:
        refused = unpack(archive, Path(scratch))
        report = _import(Path(scratch), named, processes, progress)
    return replace(report, refused=tuple(refused))


def _import(root: Path, named: str, processes: int, progress: Progress | None) -> ImportReport:
    with second_process(processes > 1 and not is_export(root, tasks())) as child:
        return _import_tables(find_tables(root, tasks()), named, child, progress)


def _import_tables(
    source: Source, named: str, child: subprocess.Popen[bytes] | None, progress: Progress | None
) -> ImportReport:
    stored = read_manifest_or_none()
    work = store_folder() / "importing" / hashlib.sha256(named.encode()).hexdigest()[:16]
    started: list[_Started] = []
    reports: dict[str, TableReport] = {}
    for found in source.tables:
        try:
            started.append(_start(found, work))
        except LmassayError as error:
            reports[found.table] = TableReport(found.table, 0, found.expected, status="unreadable", why=error.what)
    total = sum(s.n_parts for s in started)
    done = total - sum(len(s.waiting) for s in started)

    def one_more() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    with write_errors(work):
        jobs = [s.job for s in started]
        units: list[Unit] = [(i, n) for i, s in enumerate(started) if not s.found.is_parquet for n in s.waiting]
        read_parts(jobs, units, child=child, progress=one_more)
        for s in started:
            if s.found.is_parquet:
                _parts_of_parquet(s, one_more)
    made: dict[str, StoredTable] = {}
    for s in started:
        table = assemble(s.out, s.found.table, s.found.fields, s.n_parts, question=s.found.question, source=named)
        made[table.id] = _placed(table, stored.get(table.id))
        kept_out = (*map(tuple, table.about["kept_out"]), *s.kept_out)
        status = "unchanged" if made[table.id] is stored.get(table.id) else "imported"
        reports[table.id] = TableReport(table.id, table.rows, s.found.expected, kept_out, status)
    write_manifest(stored | made)
    shutil.rmtree(work, ignore_errors=True)
    expected = _expected()
    reports |= {id_: TableReport(id_, 0, expected.get(id_, 0), status="missing") for id_ in source.missing}
    return ImportReport(
        source.kind,
        source.layouts,
        tuple(reports[id_] for id_ in sorted(reports)),
        tuple(s for s in source.strays if Path(s).name not in STRAY),
    )


def read_manifest_or_none() -> dict[str, StoredTable]:
    """The store's tables; none where the manifest is damaged, so that an import can mend it."""
    try:
        return read_manifest()
    except LmassayError:
        return {}


@dataclass(frozen=True, slots=True)
class _Started:
    """A table whose parts are being made."""

    found: FoundTable
    job: TableJob
    out: Path
    waiting: tuple[int, ...]
    frame: pl.DataFrame | None = None
    kept_out: tuple[tuple[str, str], ...] = ()

    @property
    def n_parts(self) -> int:
        return self.job.n_blocks


def _start(found: FoundTable, work: Path) -> _Started:
    """List what is to be read, and which parts an earlier, stopped import has made of just that."""
    out = work / found.table.replace("/", "-")
    frame: pl.DataFrame | None = None
    kept_out: tuple[tuple[str, str], ...] = ()
    if found.is_parquet:
        frame, kept_out = _read_export(found.path)
        names = frame["_file"].to_list()
    else:
        names = list(found.names)
    job = TableJob(found.table, found.fields, str(found.path), names, str(out))
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    waiting = tuple(n for n in range(job.n_blocks) if not _is_whole(job, n, found))
    return _Started(found, job, out, waiting, frame, kept_out)


def _is_whole(job: TableJob, number: int, found: FoundTable) -> bool:
    """Whether a part is there, of these files, none of which was written since."""
    try:
        part = orjson.loads((Path(job.out) / f"{number:05d}.json").read_bytes().partition(b"\n")[0])
        names = job.block(number)
        if part["names"] != names_digest(names):
            return False
        files = [found.path] if found.is_parquet else [found.path / name for name in names]
        stats = [f.lstat() for f in files]
        return (
            sum(s.st_size for s in stats) == part["size"]
            and max(s.st_mtime_ns for s in stats) < part["started"]
            and all(
                (Path(job.out) / f"{number:05d}.{t}.text").stat().st_size == n for t, (n, _) in part["texts"].items()
            )
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _read_export(path: Path) -> tuple[pl.DataFrame, tuple[tuple[str, str], ...]]:
    """A Parquet file in order of file name, and rows that repeat a name, which are kept out."""
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise LmassayError(
            "cot-data-broken", f"{path.name} cannot be read: {str(error).splitlines()[0]}", "get the file again"
        ) from error
    if frame.schema.get("_file") != pl.String or frame["_file"].null_count():
        raise LmassayError("cot-data-broken", f"{path.name} has no column _file of names", "get the file again")
    frame = frame.sort("_file", maintain_order=True)
    first = frame["_file"].is_first_distinct()
    twice = tuple(
        (name, "duplicate id: the file's name stands twice") for name in frame.filter(~first)["_file"].to_list()
    )
    return frame.filter(first), twice


def _parts_of_parquet(s: _Started, done: Callable[[], None]) -> None:
    assert s.frame is not None
    kinds = {f.name: f.kind for f in s.found.fields}
    for number in s.waiting:
        begun = time.time_ns()
        rows = s.frame.slice(number * BLOCK, BLOCK).to_dicts()
        records = [{k: _plain(v, kinds.get(k)) for k, v in r.items() if v is not None and k != "_file"} for r in rows]
        part = PartWriter(s.found.table, s.found.fields, s.out, number)
        part.add(s.job.block(number), records)
        part.finish(s.job.block(number), size=s.found.path.stat().st_size, started=begun)
        done()


def _plain(value: Any, kind: str | None) -> Any:
    """A Parquet value as JSON has it: maps, which some versions of polars give as lists of pairs, as objects."""
    if kind in ("options", "distribution") and isinstance(value, list):
        return {pair["key"]: pair["value"] for pair in value}
    if kind == "summaries":
        return [
            {k: _plain(v, "distribution") if k in ("answer_distribution", "answer_counts") else v for k, v in s.items()}
            for s in value
        ]
    return value


def _placed(table: StoredTable, before: StoredTable | None) -> StoredTable:
    """The table in its place in the store: what is there already, if it is the same and whole."""
    if before is not None and before.digest == table.digest and before.folder.is_dir() and not before.faults():
        return before
    folder = store_folder() / "tables" / f"{table.id.replace('/', '-')}-{table.digest[:16]}"
    with write_errors(folder):
        if folder.exists():
            # Damaged, or of an import that ended between here and the manifest.
            shutil.rmtree(folder)
        for part in table.folder.glob("*.json"):
            if part.name != "table.json":
                part.unlink()
        table.folder.rename(folder)
    return replace(table, folder=folder)


def _expected() -> dict[str, int]:
    from lmassay.cot.release import table_id

    found: dict[str, int] = {}
    for task in tasks():
        for split in task.release.splits if task.release else ():
            for layout in {split.layout, "post"} if task.number > 2 else {split.layout}:
                for role, folder, n in (
                    ("records", split.folder, split.records),
                    ("prompts", split.prompts, split.n_prompts),
                ):
                    if layout == split.layout:
                        found[table_id(layout, task.number, folder, role)] = n
                    else:
                        found.setdefault(table_id(layout, task.number, folder, role), n)
    return found


__all__: Sequence[str] = ("ImportReport", "TableReport", "import_published")
