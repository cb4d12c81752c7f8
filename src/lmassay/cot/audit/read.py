"""A file of one's own for the audit: one row an example, whatever task it is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.cot.audit.fields import ROW
from lmassay.cot.audit.inputs import TRAIN, Audited, above_median
from lmassay.cot.audit.questions import shown_questions
from lmassay.cot.task import SplitData
from lmassay.errors import LmassayError, nearest
from lmassay.examples import KINDS, Cells, Column, VisibleExamples
from lmassay.storage.fingerprint import file_sha256

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.task import CotTask

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv")
#: What the columns may be called: ours first.
NAMES = {"example_id": ("id",), "question_id": ("group", "question"), "split": (), "label": ("y",)}
LISTS = {"option": ("label", "text"), "message": ("role", "content")}
#: Numbers with more distinct values are a regression's target.
CLASSES = 2


def read_audited(path: Path, task: str | None = None) -> Audited:
    """A file as the audit takes it.

    Needed: `label`. Optional: `example_id`, `question_id` (else every row is a question of its own), `split` (else
    one split, `all`), and the segments a method would see: `prompt`, `cot`, `suggestion`, `answer` (text), `option`
    and `message` (lists; JSON in a CSV). Every other column counts as hidden.

    Parameters
    ----------
    path : Path
    task : str or None
        A task's id, whose words for the classes the labels are; None: the labels' own two values.

    Raises
    ------
    LmassayError
        ``bad-request``, ``cot-data-broken``, ``unknown-task``.
    """
    import polars as pl

    from lmassay.cot.tasks import find_task

    known = find_task(task) if task is not None else None
    frame = _named(_read(path))
    if "label" not in frame.columns:
        raise _misfit(path, f"has no column 'label' ({nearest('label', frame.columns[:50])})")
    if not frame.height:
        raise _misfit(path, "has no rows")
    n = frame.height
    defaults = {
        "example_id": [str(i) for i in range(n)],
        "question_id": [str(i) for i in range(n)],
        "split": ["all"] * n,
    }
    notes = [f"the file has no column {name}" for name in defaults if name not in frame.columns]
    frame = frame.with_columns(
        pl.col(name).cast(pl.String) if name in frame.columns else pl.Series(name, values)
        for name, values in defaults.items()
    )
    if frame.select(pl.col("question_id", "split").null_count()).sum_horizontal().item():
        raise _misfit(path, "has a row without question_id or split")
    y, words, target = _labels(path, frame, known)
    columns = {kind: _segment(path, frame[kind], kind) for kind in KINDS if kind in frame.columns}
    hidden = frame.drop(list(columns)).with_columns(pl.Series("y", y, nan_to_null=True), pl.Series(ROW, np.arange(n)))
    names = sorted(frame["split"].unique().to_list(), key=lambda s: (s != TRAIN, not s.startswith("val"), s))
    at = frame["split"].to_numpy()
    order = np.concatenate([np.flatnonzero(at == s) for s in names])
    groups = np.unique(frame["question_id"].to_numpy().astype(str), return_inverse=True)[1]
    parts = {s: _part(s, np.flatnonzero(at == s), columns, y, groups, hidden) for s in names}
    return Audited(
        name=path.name,
        splits=tuple(names),
        split=np.repeat(np.arange(len(names)), [len(p) for p in parts.values()]),
        y=y[order],
        groups=groups[order].astype(np.int64),
        examples=tuple(p.examples for p in parts.values()),
        hidden=hidden[order],
        label_words=words,
        target=target,
        questions={s: shown_questions(p) for s, p in parts.items()},
        notes=tuple(notes),
        fingerprint=file_sha256(path),
    )


def _part(
    name: str, rows: np.ndarray, columns: dict[str, pl.Series], y: np.ndarray, groups: np.ndarray, hidden: pl.DataFrame
) -> SplitData:
    shown = VisibleExamples(rows, (Column(kind, Cells(series), rows) for kind, series in columns.items()))
    return SplitData(name, shown, y[rows], groups[rows], np.full(len(rows), "ok"), hidden[rows])


def _misfit(path: Path, why: str) -> LmassayError:
    return LmassayError("cot-data-broken", f"{path.name} {why}", "see docs/cot-audit.md for the columns of such a file")


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    if path.suffix not in SUFFIXES or not path.is_file():
        why = "is no file" if not path.is_file() else f"ends in none of {', '.join(SUFFIXES)}"
        raise LmassayError("bad-request", f"{path} {why}", "give a Parquet, JSONL or CSV file, or the id of a task")
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        if path.suffix == ".csv":
            return pl.read_csv(path, infer_schema_length=None)
        return pl.read_ndjson(path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise _misfit(path, f"cannot be read: {first[:200]}") from error


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns under our names."""
    renamed = {}
    for ours, others in NAMES.items():
        theirs = next((o for o in others if o in frame.columns), None)
        if ours not in frame.columns and theirs is not None:
            renamed[theirs] = ours
    return frame.rename(renamed)


def _labels(path: Path, frame: pl.DataFrame, task: CotTask | None) -> tuple[np.ndarray, tuple[str, str], str]:
    """(n,) 1, 0 or NaN; the words of the two classes; what 1 means."""
    import polars as pl

    series = frame["label"]
    if task is not None and task.positive is not None and task.negative is not None:
        negative, positive = task.negative, task.positive
        found = [_of_words(path, v, negative, positive) for v in series.to_list()]
        return np.array(found), (negative, positive), f"{positive} against {negative}"
    if series.dtype == pl.Boolean:
        series = series.cast(pl.Int64)
    if series.dtype.is_numeric():
        values = series.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
        if np.isinf(values).any():
            raise _misfit(path, "has an infinite label")
        distinct = np.unique(values[~np.isnan(values)])
        if len(distinct) > CLASSES:
            train = (frame["split"] == TRAIN).to_numpy()
            made, target = above_median(values, values[train] if train.any() else values)
            return made, ("low", "high"), target
        return _two(path, values, [f"{v:g}" for v in distinct], distinct)
    if series.dtype != pl.String:
        raise _misfit(path, f"column label is {series.dtype}, neither text nor a number")
    names = sorted({v for v in series.to_list() if v})
    at = {v: i for i, v in enumerate(names, 1)}
    values = np.array([at[v] if v else np.nan for v in series.to_list()], np.float64)
    return _two(path, values, names, np.arange(1, len(names) + 1, dtype=np.float64))


def _two(
    path: Path, values: np.ndarray, names: list[str], distinct: np.ndarray
) -> tuple[np.ndarray, tuple[str, str], str]:
    if len(distinct) > CLASSES:
        raise _misfit(path, f"has {len(distinct)} different labels, such as {', '.join(map(repr, names[:3]))}")
    if not len(distinct):
        raise _misfit(path, "has no label in any row")
    one = distinct[-1] if len(distinct) == CLASSES or distinct[-1] != 0 else np.inf
    y = np.where(np.isnan(values), np.nan, (values == one).astype(np.float64))
    words = (names[0], names[-1]) if len(names) == CLASSES else (f"not {names[0]}", names[0])
    return y, words, f"{words[1]} against {words[0]}"


def _of_words(path: Path, value: object, negative: str, positive: str) -> float:
    if value is None:
        return float("nan")
    if str(value) in (positive, negative):
        return float(str(value) == positive)
    if isinstance(value, int | float) and value in (0, 1):
        return float(value)
    raise _misfit(path, f"has the label {str(value)[:40]!r}, which is not {positive}, {negative}, 1 or 0")


def _segment(path: Path, series: pl.Series, kind: str) -> pl.Series:
    import polars as pl

    if kind not in LISTS:
        if series.dtype == pl.Null:
            return series.cast(pl.String)
        if series.dtype.is_numeric() and path.suffix == ".csv":
            # Answers such as 1 and 2, which a CSV cannot tell from numbers.
            return series.cast(pl.String)
        if series.dtype != pl.String:
            raise _misfit(path, f"column {kind} is {series.dtype}, not text")
        return series
    cells = [[_pair(path, kind, part) for part in _cell(path, kind, cell)] for cell in series.to_list()]
    return pl.Series(kind, cells, dtype=pl.List(pl.Struct({"label": pl.String, "text": pl.String})))


def _cell(path: Path, kind: str, cell: Any) -> list[Any]:
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError as error:
            raise _misfit(path, f"column {kind}: {cell[:40]!r} is no JSON") from error
    if cell is not None and not isinstance(cell, list):
        raise _misfit(path, f"column {kind}: a cell is no list")
    return cell or []


def _pair(path: Path, kind: str, part: Any) -> dict[str, str]:
    names = LISTS[kind]
    if not isinstance(part, dict) or not all(isinstance(part.get(n), str) for n in names):
        raise _misfit(path, f"column {kind}: an entry is not {names[0]} and {names[1]}")
    return {"label": part[names[0]], "text": part[names[1]]}
