"""Fewer training rows: whole questions, classes balanced, a smaller cap's rows among those of a larger one."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.predictions import TRAIN
from lmassay.cot.task import SplitData, TaskData
from lmassay.errors import LmassayError
from lmassay.seeds import derive


def capped(data: TaskData, train_cap: int, seed: int = 0) -> TaskData:
    """The same data with at most `train_cap` training rows; every other split is as it was.

    Questions are taken whole, in the order of a hash: the next one is the first that does not add to the class that
    is ahead, while there is one. They are taken until the next does not fit, so that a smaller cap's questions are
    the first ones of a larger cap's. Where there are no more rows than that, content and fingerprint stay.

    Raises
    ------
    LmassayError
        ``bad-request`` for a cap below 1 or below the first question's rows, data without training rows, or data
        that was capped before.
    """
    if train_cap < 1:
        raise LmassayError("bad-request", f"a cap of {train_cap} training rows", "give a positive number")
    if data.train_cap is not None:
        raise LmassayError(
            "bad-request", f"the training rows of {data.task.id} were capped before", "cap the data as it was loaded"
        )
    if TRAIN not in data.splits:
        raise LmassayError("bad-request", f"task {data.task.id} has no training rows to cap", "leave the cap out")
    train = data[TRAIN]
    if len(train) <= train_cap:
        return replace(data, train_cap=train_cap, uncapped=data.fingerprint)
    rows = _rows(train, train_cap, seed, balance=data.task.kind != "regression")
    if not len(rows):
        raise LmassayError(
            "bad-request",
            f"task {data.task.id}: the first question alone has more than {train_cap} rows, and questions stay whole",
            "give a larger cap",
        )
    kept = _taken(train, rows)
    questions, before = len(np.unique(kept.groups)), len(np.unique(train.groups))
    return replace(
        data,
        splits={name: kept if name == TRAIN else split for name, split in data.splits.items()},
        fingerprint=hashlib.sha256(f"{data.fingerprint}\x1fcap\x1f{train_cap}\x1f{seed}".encode()).hexdigest(),
        train_cap=train_cap,
        uncapped=data.fingerprint,
        notes=(
            *data.notes,
            f"trained on {len(kept):,} of {len(train):,} rows, {questions} of {before} questions"
            f" (train_cap={train_cap}, seed {seed})",
        ),
    )


def _rows(train: SplitData, cap: int, seed: int, *, balance: bool) -> NDArray[np.intp]:
    """(m,) rows of the questions taken, in their order."""
    questions, place, size = np.unique(train.groups, return_inverse=True, return_counts=True)
    excess = np.zeros(len(questions), np.int64)
    if balance:
        side = np.where(train.usable, np.where(train.y == 1, 1, -1), 0)
        np.add.at(excess, place, side)
    order = sorted(range(len(questions)), key=lambda i: derive(seed, str(questions[i]), "train cap"))
    # Positions in that order, by the class which a question has more of.
    waiting: dict[int, deque[int]] = {sign: deque() for sign in (-1, 0, 1)}
    for at, i in enumerate(order):
        waiting[int(np.sign(excess[i]))].append(at)
    taken: list[int] = []
    ahead = total = 0
    while any(waiting.values()):
        allowed = [w for sign, w in waiting.items() if w and sign * ahead <= 0] or [w for w in waiting.values() if w]
        first = min(allowed, key=lambda w: w[0])
        i = order[first.popleft()]
        if total + size[i] > cap:
            break
        taken.append(i)
        ahead, total = ahead + int(excess[i]), total + int(size[i])
    return np.flatnonzero(np.isin(place, taken))


def _taken(split: SplitData, rows: NDArray[np.intp]) -> SplitData:
    return replace(
        split,
        examples=split.examples.take(rows),
        y=split.y[rows],
        groups=split.groups[rows],
        status=split.status[rows],
        hidden=split.hidden[rows],
    )
