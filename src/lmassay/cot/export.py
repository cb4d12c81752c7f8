"""A task's visible text as files for work done elsewhere, with a table to put the answers in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.cot.load import require_segments
from lmassay.cot.task import SplitData, TaskData
from lmassay.errors import LmassayError
from lmassay.storage.atomic import parquet_bytes, write_bytes, write_errors, write_json, write_with

if TYPE_CHECKING:
    import polars as pl

TRAIN, VALIDATION = "train", "validation"
#: Files of an export beside one JSONL file a split.
TEMPLATE, LABELS, ABOUT = "predictions.parquet", "train_labels.parquet", "export.json"


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes
    ----------
    folder : Path
    rows : dict of str to int
        Examples by split.
    files : tuple of str
    """

    folder: Path
    rows: dict[str, int]
    files: tuple[str, ...]


def export_task(data: TaskData, folder: Path, *, train_labels: bool = False) -> Export:
    """Write what a method may see of every usable example, and a template for answers; no label unless asked for.

    ``<split>.jsonl`` has ``key`` (opaque, a string: it does not fit a double) and ``segments`` on each line.
    ``predictions.parquet`` has ``split``, ``key`` and an empty ``score`` for validation and every test split.

    Parameters
    ----------
    folder : Path
        New or empty.
    train_labels : bool
        Also write ``train_labels.parquet``: ``key``, ``group`` (opaque number of the question) and ``y``, of training
        rows only. Validation labels choose the threshold and stay with the evaluator, like those of the tests.

    Raises
    ------
    LmassayError
        ``cot-data-missing`` where the data has no text; ``bad-request`` for a task of selection or a folder in use;
        ``out-folder-unwritable``, ``disk-full``.
    """
    if data.task.kind == "selection" or "cot" in data.missing:
        require_segments(data, ["cot"])
        raise LmassayError(
            "bad-request",
            f"{data.task.id} asks for sentences, not scores, so there is nothing to predict",
            "see cot tasks",
        )
    _claim(folder)
    files, rows = [], {}
    for name, split in data.splits.items():
        path = folder / f"{name}.jsonl"
        rows[name] = int(split.usable.sum())
        write_with(path, lambda temporary, split=split: _write_lines(temporary, split))  # type: ignore[misc]
        files.append(path.name)
    if train_labels and TRAIN in data.splits:
        write_bytes(folder / LABELS, parquet_bytes(_labels(data[TRAIN])))
        files.append(LABELS)
    write_bytes(folder / TEMPLATE, parquet_bytes(template(data)))
    # Last, so that a folder with it is whole.
    write_json(folder / ABOUT, about(data, rows))
    return Export(folder, rows, (*files, TEMPLATE, ABOUT))


def template(data: TaskData) -> pl.DataFrame:
    """``split``, ``key``, ``score`` (null) for every usable row that is to be scored."""
    import polars as pl

    frames = [
        pl.DataFrame(
            {"split": [name] * len(keys), "key": [str(k) for k in keys]},
            schema={"split": pl.String, "key": pl.String},
        )
        for name in scored_splits(data)
        for keys in [data[name].examples.keys[data[name].usable].tolist()]
    ]
    return pl.concat(frames).with_columns(score=pl.lit(None, dtype=pl.Float64))


def scored_splits(data: TaskData) -> tuple[str, ...]:
    """Validation, whose scores give the threshold, and the test splits."""
    return tuple(name for name in data.splits if name != TRAIN)


def about(data: TaskData, rows: dict[str, int]) -> dict[str, Any]:
    """``export.json``: what these files are, and how to send answers back."""
    task = data.task
    # Data of one's own is named by its file, which only its owner knows.
    where = {"own": " --source FILE", "head": ""}.get(data.layout, f" --layout {data.layout}")
    where += f" --regime {data.regime}" if data.regime else ""
    return {
        "task": task.id,
        "question": task.question,
        "subject": task.subject,
        "kind": task.kind,
        "higher_score_means": task.positive or f"more {task.unit}".rstrip(),
        "layout": data.layout,
        "regime": data.regime,
        "validation": data.validation,
        "data_sha256": data.fingerprint,
        "rows": rows,
        "answers": (
            f"fill the column score of {TEMPLATE} (any order, Parquet, CSV or JSONL; empty where there is no answer) "
            f"and run: lmassay cot score {task.id} {TEMPLATE} --name NAME{where}"
        ),
        "notes": list(data.notes),
    }


def _claim(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strangers = sorted(child.name for child in folder.iterdir())
    except OSError as error:
        raise LmassayError(
            "out-folder-unwritable", f"cannot write to {folder}: {error.strerror or error}", "choose another folder"
        ) from error
    if strangers:
        raise LmassayError(
            "bad-request", f"{folder} is not empty: it holds {', '.join(strangers[:3])}", "choose a new or empty folder"
        )


def _lines(split: SplitData) -> Iterator[str]:
    for example in split.examples.take(split.usable):
        segments = [
            {"kind": s.kind, "text": s.text} | ({"label": s.label} if s.label is not None else {})
            for s in example.segments
        ]
        # ASCII, so that a lone surrogate can be written and read back.
        yield json.dumps({"key": str(example.key), "segments": segments}, ensure_ascii=True)


def _write_lines(path: Path, split: SplitData) -> None:
    with write_errors(path), path.open("w", encoding="ascii") as file:
        for line in _lines(split):
            file.write(line + "\n")


def _labels(split: SplitData) -> pl.DataFrame:
    import polars as pl

    used = split.usable
    return pl.DataFrame(
        {"key": [str(k) for k in split.examples.keys[used].tolist()], "group": split.groups[used], "y": split.y[used]}
    )
