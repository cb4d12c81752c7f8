"""Where published data can be imported from: a checkout, an archive of one, or the Parquet export."""

from __future__ import annotations

import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from lmassay.cot.parts import LARGEST_FILE
from lmassay.cot.release import table_id
from lmassay.errors import LmassayError
from lmassay.storage.atomic import write_errors

if TYPE_CHECKING:
    from lmassay.cot.schema import Field
    from lmassay.cot.task import CotTask

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
#: Files of a checkout that are no data: left out without a word.
STRAY = frozenset({".DS_Store", "Thumbs.db", ".gitkeep"})
IN_ARCHIVE = re.compile(r"(?:^|/)datasets/([1-9])/([^/]+(?:/[^/]+){0,1})/([^/]+)$")


@dataclass(frozen=True, slots=True)
class FoundTable:
    """One table of a source.

    Attributes
    ----------
    table : str
        Id in the store.
    fields : tuple of Field
    question : str
        The field that names the group.
    path : Path
        A folder of JSON files, or a Parquet file.
    expected : int
        Records of the release.
    names : tuple of str
        The JSON files of a folder, sorted.
    """

    table: str
    fields: tuple[Field, ...]
    question: str
    path: Path
    expected: int
    names: tuple[str, ...] = ()

    @property
    def is_parquet(self) -> bool:
        """Whether `path` is a Parquet file."""
        return self.path.suffix == ".parquet"


@dataclass(frozen=True, slots=True)
class Source:
    """A source and what it holds.

    Attributes
    ----------
    kind : str
        ``checkout`` or ``parquet``.
    layouts : tuple of str
    tables : tuple of FoundTable
    missing : tuple of str
        Tables of the layouts found that the source lacks.
    strays : tuple of str
        Files and folders that belong to no table.
    """

    kind: str
    layouts: tuple[str, ...]
    tables: tuple[FoundTable, ...]
    missing: tuple[str, ...]
    strays: tuple[str, ...]


def find_tables(root: Path, tasks: tuple[CotTask, ...]) -> Source:
    """What a checkout or a folder of the Parquet export holds.

    Raises
    ------
    LmassayError
        ``cot-data-broken`` when it is neither.
    """
    # Of a checkout, `datasets` may be named as well.
    datasets = next((p for p in (root / "datasets", root) if any((p / str(t.number)).is_dir() for t in tasks)), None)
    if datasets is not None:
        return _checkout(datasets, tasks)
    if is_export(root, tasks):
        return _export(root, tasks)
    raise LmassayError(
        "cot-data-broken",
        f"{root} is neither a checkout of the published repository nor its Parquet export",
        "name the folder that holds `datasets/1` … or `task1` …",
    )


def is_export(root: Path, tasks: tuple[CotTask, ...]) -> bool:
    """Whether a folder looks like the Parquet export."""
    return any((root / f"task{t.number}").is_dir() for t in tasks)


def _wanted(tasks: tuple[CotTask, ...], layout: str) -> Iterator[tuple[CotTask, str, str, tuple[Field, ...], int]]:
    """(task, role, folder, fields, expected) of every table of a layout, once."""
    seen: set[tuple[int, str, str]] = set()
    for task in tasks:
        if task.release is None:
            continue
        for split in task.release.splits:
            if split.layout != layout:
                continue
            for role, folder, fields, expected in (
                ("prompts", split.prompts, task.release.prompt_fields, split.n_prompts),
                ("records", split.folder, split.fields, split.records),
            ):
                if (task.number, role, folder) not in seen:
                    seen.add((task.number, role, folder))
                    yield task, role, folder, fields, expected


def _question(task: CotTask) -> str:
    assert task.release is not None
    return task.release.question


def _checkout(datasets: Path, tasks: tuple[CotTask, ...]) -> Source:
    models = {t.number: _model_folder(datasets / str(t.number)) for t in tasks if t.release}
    post = any(models.get(n) is not None and (_of(models, n) / "ood_train").is_dir() for n in (1, 2))
    layout = "post" if post else "head"
    tables, missing = [], []
    # An April checkout holds every task; those that did not change since are described by the layout head.
    described = {(w[0].number, w[1], w[2]): w for w in _wanted(tasks, "head")} if post else {}
    changed = {w[0].number for w in _wanted(tasks, "post") if w[0].number in (1, 2)}
    wanted = {k: w for k, w in described.items() if k[0] not in changed}
    wanted |= {(w[0].number, w[1], w[2]): w for w in _wanted(tasks, layout)}
    known: set[str] = set()
    strays: list[str] = []
    for task, role, folder, fields, expected in wanted.values():
        model = models.get(task.number)
        base = datasets / str(task.number) / "prompts" if role == "prompts" else model
        path = None if base is None else base / folder if folder else base
        id_ = table_id(layout, task.number, folder, role)
        if path is not None and path.is_dir():
            # Listed once: there are tens of thousands.
            listed = sorted(os.listdir(path))  # noqa: PTH208
            names = tuple(name for name in listed if name.endswith(".json"))
            if len(names) < len(listed):
                strays += [f"{path.relative_to(datasets)}/{name}" for name in listed if not name.endswith(".json")]
            tables.append(FoundTable(id_, fields, _question(task), path, expected, names))
            known.add(str(path))
        else:
            missing.append(id_)
    return Source(
        "checkout", (layout,), tuple(tables), tuple(missing), tuple(sorted(strays + _outside(datasets, known)))
    )


def _of(models: dict[int, Path | None], number: int) -> Path:
    found = models[number]
    assert found is not None
    return found


def _model_folder(task: Path) -> Path | None:
    """The folder of a task's records, which has the subject model's name."""
    if not task.is_dir():
        return None
    found = sorted(p for p in task.iterdir() if p.is_dir() and p.name != "prompts")
    if len(found) > 1:
        raise LmassayError(
            "cot-data-broken",
            f"{task} has records of {len(found)} models ({', '.join(p.name for p in found)})",
            "keep the published one there",
        )
    return found[0] if found else None


def _outside(datasets: Path, known: set[str]) -> list[str]:
    """Files outside the folders of tables."""
    found = []
    for folder, inner, files in os.walk(datasets):
        inner[:] = [i for i in inner if os.path.join(folder, i) not in known]  # noqa: PTH118
        found += [str((Path(folder) / name).relative_to(datasets)) for name in files]
    return found


def _export(root: Path, tasks: tuple[CotTask, ...]) -> Source:
    tables, missing, layouts, known = [], [], [], set()
    legacy = sorted(p for p in root.iterdir() if p.is_dir() and p.name.startswith("legacy"))
    for layout, base in (("head", root), *(("post", p) for p in legacy[:1])):
        layouts.append(layout)
        for task, role, folder, fields, expected in _wanted(tasks, layout):
            infix = "prompts_" if role == "prompts" else ""
            name = f"task{task.number}_{infix}{folder}".rstrip("_")
            path = base / f"task{task.number}" / f"{name}.parquet"
            id_ = table_id(layout, task.number, folder, role)
            if path.is_file():
                tables.append(FoundTable(id_, fields, _question(task), path, expected))
                known.add(path)
            else:
                missing.append(id_)
    strays = [str(p.relative_to(root)) for p in root.rglob("*.parquet") if p not in known]
    return Source("parquet", tuple(layouts), tuple(tables), tuple(missing), tuple(sorted(strays)))


def is_archive(path: Path) -> bool:
    """Whether a path names an archive we read."""
    return path.is_file() and path.name.lower().endswith(ARCHIVES)


def unpack(archive: Path, into: Path) -> list[str]:
    """Unpack the data files of an archive of a checkout, and nothing else; names that were refused come back.

    Paths are made here from a task's number, a folder and a name, so no member can be written elsewhere.

    Raises
    ------
    LmassayError
        ``cot-data-broken`` when the archive cannot be read, ``disk-full``.
    """
    refused: list[str] = []
    made: set[Path] = set()
    try:
        with write_errors(into):
            for name, size, opened in _members(archive):
                parts = IN_ARCHIVE.search(name)
                inner = PurePosixPath(parts[2]).parts if parts else ()
                if parts is None or any(p in ("..", ".") for p in (*inner, parts[3])) or parts[3] in STRAY:
                    continue
                target = into / "datasets" / parts[1] / Path(*inner) / parts[3]
                if target in made or size > LARGEST_FILE:
                    refused.append(f"{name}: {'twice in the archive' if target in made else 'too large'}")
                    continue
                made.add(target)
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened() as member, target.open("wb") as file:
                    while block := member.read(1 << 20):
                        file.write(block)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        raise LmassayError(
            "cot-data-broken", f"{archive} cannot be read: {error}", "get the archive again; it may have been cut short"
        ) from error
    return refused


def _members(archive: Path) -> Iterator[tuple[str, int, _Open]]:
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, _Open(lambda i=info: zipped.open(i))
        return
    # Not as a stream: that takes a compressed file which was cut short for one that ended there.
    with tarfile.open(archive, "r:*") as tarred:
        for member in tarred:
            if member.isreg():
                yield member.name, member.size, _Open(lambda m=member: tarred.extractfile(m))


class _Open:
    """A member of an archive, opened when it is wanted."""

    def __init__(self, opens: object) -> None:
        self._opens = opens

    @contextmanager
    def __call__(self) -> Iterator[IO[bytes]]:
        with self._opens() as file:  # type: ignore[operator]
            yield file
