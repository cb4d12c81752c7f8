"""Data of one's own: a Parquet or JSONL file with one row an example, for any task."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from lmassay.cot.status import row_status
from lmassay.cot.store import group_number
from lmassay.cot.task import OK, OWN, CotTask, SplitData, TaskData
from lmassay.errors import LmassayError
from lmassay.examples import KINDS, Cells, Column, VisibleExamples
from lmassay.storage.fingerprint import file_sha256

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

#: Columns every file has.
NEEDED = ("example_id", "split", "question_id", "label")
#: Kinds of segment that are lists of ``{label, text}`` (``{role, content}`` for messages).
LISTS = ("option", "message")
#: Names of splits; another would be a test set by mistake.
NAMED = re.compile(r"train|validation|(ood_)?test(_.+)?|ood(_.+)?")
#: Largest size of a number that is a label: squares of it must stay finite.
LARGEST = 1e100
SUFFIXES = (".parquet", ".jsonl", ".ndjson")


def read_own(task: CotTask, path: Path) -> TaskData:
    """A file of examples as a task's data.

    The columns of `NEEDED`, one for each kind of segment the task allows (those it lacks are in ``missing``), and
    optionally ``p1`` and ``p0``. Every other column stays hidden. A label is the word of a class, or a number.

    Raises
    ------
    LmassayError
        ``cot-data-broken`` for a file that cannot be read or whose rows do not fit, ``bad-request``.
    """
    import polars as pl

    frame = _read(path)
    if not frame.height:
        raise _misfit(path, "has no rows")
    lacking = [c for c in NEEDED if c not in frame.columns]
    if lacking:
        raise _misfit(path, f"has no column {lacking[0]!r}")
    numbers = [c for c in ("example_id", "split", "question_id") if frame.schema[c].is_float()]
    if any(frame[c].is_nan().any() for c in numbers):
        raise _misfit(path, "has a row whose example_id or question_id is NaN")
    frame = frame.with_columns(pl.col("example_id", "split", "question_id").cast(pl.String))
    if frame.select(pl.col("example_id", "split", "question_id").null_count()).sum_horizontal().item():
        raise _misfit(path, "has a row without example_id, split or question_id")
    twice = frame.filter(pl.col("example_id").is_duplicated())["example_id"]
    if len(twice):
        raise _misfit(path, f"has the example {twice[0]!r} more than once ({twice.n_unique()} such)")
    names = frame["split"].unique(maintain_order=True).to_list()
    strange = [n for n in names if not NAMED.fullmatch(n)]
    if task.kind != "selection" and strange:
        raise _misfit(path, f"names the split {strange[0]!r}, which is none of train, validation, test…, ood_test…")
    # Sentences are chosen without learning: there every row is scored, whatever its split.
    if task.kind != "selection" and ("train" not in names or not any(n.startswith(("test", "ood")) for n in names)):
        raise _misfit(path, f"needs the split train and a test split, and has {', '.join(map(repr, sorted(names)))}")
    columns = {kind: _segment(path, frame, kind) for kind in task.segments if kind in frame.columns}
    y = _labels(path, frame, task)
    frame = frame.with_columns(y=pl.Series(y, nan_to_null=True))
    base = f"own\x1f{task.id}\x1f"
    keys = np.array([_number(f"{base}{i}") for i in frame["example_id"].to_list()], dtype=np.int64)
    groups = np.array([group_number(f"own/{task.id}", q) for q in frame["question_id"].to_list()], dtype=np.int64)
    splits = {}
    for name in sorted(
        names, key=lambda n: (("train", "validation").index(n) if n in ("train", "validation") else 2, n)
    ):
        rows = np.flatnonzero((frame["split"] == name).to_numpy())
        rows = rows[np.argsort(keys[rows])]
        # Each split holds its own cells: whatever a method finds in what it is given, it is of that split.
        own = {kind: Column(kind, Cells(series.gather(rows))) for kind, series in columns.items()}
        status = _status(y[rows], own, frame[rows], task)
        splits[name] = SplitData(
            name,
            VisibleExamples(keys[rows], own.values()),
            np.where(status == OK, y[rows], np.nan),
            groups[rows],
            status,
            frame[rows]
            .with_columns(status=pl.Series(status.tolist(), dtype=pl.String))
            .drop([c for c in columns if c in LISTS]),
        )
    missing = tuple(k for k in task.segments if k not in columns)
    return TaskData(
        task,
        OWN,
        None,
        splits,
        file_sha256(path),
        validation=OWN,
        missing=missing,
        notes=(f"data of one's own: {path.name}",),
    )


def _status(y: NDArray[np.float64], columns: dict[str, Column], rows: pl.DataFrame, task: CotTask) -> NDArray[np.str_]:
    """(n,) as published rows are judged; in a regression an empty chain of thought is a prefix like any other."""
    import polars as pl

    if task.positive is None:
        return np.where(np.isnan(y), "unlabelled", OK).astype("<U32")
    shown = [pl.col(kind).cast(pl.String) if kind not in LISTS else pl.col(kind).hash() for kind in columns]
    same = rows.select(pl.struct(e.alias(str(i)) for i, e in enumerate(shown)).hash()).to_series()
    sizes = {"cot": rows["cot"].str.len_bytes().fill_null(0).to_numpy()} if "cot" in columns else {}
    none = np.zeros(len(y), dtype=bool)
    status = row_status(y, columns, sizes, same, no_prompt=none, duplicate=none)
    status[np.isnan(y)] = "unlabelled"
    return status


def _number(named: str) -> int:
    return int.from_bytes(hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def _misfit(path: Path, why: str) -> LmassayError:
    return LmassayError("cot-data-broken", f"{path.name} {why}", "see docs/cot-data.md for the columns of such a file")


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    if path.suffix not in SUFFIXES or not path.is_file():
        why = "is no file" if not path.is_file() else f"ends in none of {', '.join(SUFFIXES)}"
        raise LmassayError(
            "bad-request", f"{path} {why}", "a source is a Parquet or JSONL file with one row an example"
        )
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        # Not polars' own reader, which makes other text of a lone surrogate and text of numbers among text.
        return pl.DataFrame(list(_lines(path)), infer_schema_length=None, strict=True)
    except (OSError, TypeError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _misfit(path, f"cannot be read: {str(error).splitlines()[0]}") from error


def _lines(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except ValueError as error:
                raise _misfit(path, f"line {number} cannot be read as strict JSON (without NaN): {error}") from error
            if not isinstance(row, dict):
                raise _misfit(path, f"line {number} cannot be read: not a JSON object")
            for kind in KINDS:
                # A column of texts and numbers would become one of texts.
                if kind not in LISTS and not isinstance(row.get(kind), str | None):
                    raise _misfit(path, f"line {number} cannot be read: {kind} is not text")
            yield row


def _segment(path: Path, frame: pl.DataFrame, kind: str) -> pl.Series:
    import polars as pl

    assert kind in KINDS
    series = frame[kind]
    if kind not in LISTS:
        if series.dtype != pl.String:
            raise _misfit(path, f"column {kind} is {series.dtype}, not text")
        return series
    cells: list[Any] = []
    for cell in series.to_list():
        parts = [_pair(path, kind, part) for part in cell or []]
        cells.append(parts)
    return pl.Series(kind, cells, dtype=pl.List(pl.Struct({"label": pl.String, "text": pl.String})))


def _pair(path: Path, kind: str, part: Any) -> dict[str, str]:
    names = ("role", "content") if kind == "message" else ("label", "text")
    if not isinstance(part, dict) or not all(isinstance(part.get(n), str) for n in names):
        raise _misfit(path, f"column {kind}: an entry is not {names[0]} and {names[1]}")
    return {"label": part[names[0]], "text": part[names[1]]}


def _labels(path: Path, frame: pl.DataFrame, task: CotTask) -> np.ndarray:
    """(n,) targets; NaN where the label is null."""
    words = {task.positive: 1.0, task.negative: 0.0} if task.positive is not None else {}
    found = []
    for label in frame["label"].to_list():
        if label is None:
            found.append(float("nan"))
        elif str(label) in words:
            found.append(words[str(label)])
        elif isinstance(label, int | float) and abs(label) <= LARGEST and (not words or label in (0, 1)):
            found.append(float(label))
        else:
            allowed = f"{task.positive}, {task.negative}, 1 or 0" if words else f"a number up to {LARGEST:g}"
            raise _misfit(path, f"has the label {str(label)[:40]!r}, which is not {allowed}")
    return np.array(found, dtype=np.float64)
