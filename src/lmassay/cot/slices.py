"""Some rows of what is scored: asking a language model or reading a text costs, and a few hundred items tell a lot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
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
    only when every question of the class has a row. Whole questions would be few: some have sixty rows, and an
    interval needs questions. Training rows stay.

    Raises
    ------
    LmassayError
        ``bad-request`` for a limit under 1, or data that was sliced before.
    """
    if limit < 1:
        raise LmassayError("bad-request", f"a limit of {limit} rows", "give a positive number")
    if data.test_cap is not None:
        raise LmassayError(
            "bad-request", f"the test rows of {data.task.id} were capped before", "slice the data as it was loaded"
        )
    splits = dict(data.splits)
    for name in asked_splits(data):
        splits[name] = select(data[name], _rows(data[name], limit, seed, data.task.kind))
    return replace(
        data,
        splits=splits,
        fingerprint=_sliced(data.fingerprint, limit, seed),
        # Training rows that were capped before change nothing about which rows are scored.
        uncapped=_sliced(data.uncapped, limit, seed) if data.uncapped else "",
        test_cap=limit,
        whole=data.uncapped or data.fingerprint,
        notes=(*data.notes, _note(data, splits, limit, seed)),
    )


def asked_splits(data: TaskData) -> tuple[str, ...]:
    """Splits whose rows are asked about or scored: validation and tests, or all of a task of selection."""
    return tuple(data.splits) if data.task.kind == "selection" else scored_splits(data)


def asked_rows(split: SplitData, kind: str) -> NDArray[np.int64]:
    """Places of its usable rows. A selection has no label, so its rows are unlabelled and count all the same."""
    return np.arange(len(split)) if kind == "selection" else np.flatnonzero(split.usable)


def _sliced(fingerprint: str, limit: int, seed: int) -> str:
    return hashlib.sha256(f"{fingerprint}\x1fslice\x1f{limit}\x1f{seed}".encode()).hexdigest()


def _note(data: TaskData, splits: Mapping[str, SplitData], limit: int, seed: int) -> str:
    rows = [
        f"{name} {len(splits[name]):,} of {len(data[name]):,} rows, {len(np.unique(splits[name].groups))} of"
        f" {len(np.unique(data[name].groups))} questions"
        for name in asked_splits(data)
    ]
    most = f"{limit} {'row' if limit == 1 else 'rows'}"
    about = f"at most {most} of validation and of each test split (test_cap={limit}, seed {seed})"
    return f"{about}: {'; '.join(rows)}"


def _rows(split: SplitData, limit: int, seed: int, kind: str) -> NDArray[np.int64]:
    usable = asked_rows(split, kind)
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
