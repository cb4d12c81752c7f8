"""Some rows of what is scored: asking a language model costs, and a few hundred items tell a lot."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.export import scored_splits
from lmassay.cot.load import select
from lmassay.cot.task import SplitData, TaskData
from lmassay.errors import LmassayError
from lmassay.seeds import derive


def sliced(data: TaskData, limit: int, seed: int = 0) -> TaskData:
    """At most `limit` usable rows of validation and of each test split, classes as even as they can be.

    Rows are taken in the order of a hash, so that a smaller slice is part of a larger one; a question is returned to
    only when every question of the class has a row. Training rows stay.

    Raises
    ------
    LmassayError
        ``bad-request`` for a limit under 1.
    """
    if limit < 1:
        raise LmassayError("bad-request", f"a limit of {limit} rows", "give a positive number")
    splits = dict(data.splits)
    for name in scored_splits(data):
        splits[name] = select(data[name], _rows(data[name], limit, seed, data.task.kind))
    return replace(
        data,
        splits=splits,
        fingerprint=hashlib.sha256(f"{data.fingerprint}\x1fslice\x1f{limit}\x1f{seed}".encode()).hexdigest(),
        notes=(*data.notes, f"a slice: at most {limit} rows of validation and of each test split (seed {seed})"),
    )


def _rows(split: SplitData, limit: int, seed: int, kind: str) -> NDArray[np.int64]:
    usable = np.flatnonzero(split.usable)
    keys = split.examples.keys
    order = sorted(usable.tolist(), key=lambda i: derive(seed, str(int(keys[i])), "monitor slice"))
    if kind in ("regression", "selection"):
        classes = [order]
    else:
        classes = [[i for i in order if split.y[i] == c] for c in (1.0, 0.0)]
    turns = [_by_turn(split, rows) for rows in classes]
    # One of each class in turn; when one class has no more, the other goes on.
    mixed = [row for _, _, row in sorted((place, side, row) for side, rows in enumerate(turns) for place, row in rows)]
    return np.sort(np.array(mixed[:limit], dtype=np.int64))


def _by_turn(split: SplitData, rows: list[int]) -> list[tuple[int, int]]:
    """(place, row): first a row of each question, then a second of each, and so on."""
    seen: dict[int, int] = {}
    turns = []
    for at, row in enumerate(rows):
        group = int(split.groups[row])
        turns.append((seen.get(group, 0), at, row))
        seen[group] = seen.get(group, 0) + 1
    return [(place, row) for place, (_, _, row) in enumerate(sorted(turns))]
