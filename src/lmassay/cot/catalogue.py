"""What `cot tasks` lists and `cot show` finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lmassay.cot.release import table_id
from lmassay.cot.store import read_manifest
from lmassay.cot.tasks import tasks
from lmassay.errors import LmassayError, nearest

if TYPE_CHECKING:
    from lmassay.cot.task import CotTask, TaskData
    from lmassay.examples import VisibleExample


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task, the records its splits have, and whether the store has them.

    Attributes
    ----------
    task : CotTask
    layout : str
    sizes : dict of str to int
        Records of each split: of the store where it has them, else of the release.
    state : str
        ``imported``, ``in part``, ``not imported``; ``own data`` for a task without a release.
    """

    task: CotTask
    layout: str
    sizes: dict[str, int]
    state: str


def list_tasks(layout: str = "head") -> list[TaskRow]:
    """Every task under a layout; splits of the layout post's two regimes are called ``train (id)`` and so on."""
    stored = read_manifest()
    rows = []
    for task in tasks():
        sizes: dict[str, int] = {}
        there = wanted = 0
        splits = task.release.splits if task.release else ()
        described = [s for s in splits if s.layout == layout]
        if layout == "post" and task.number > 2:
            changed = {s.name for s in described}
            described = [s for s in splits if s.layout == "head" and s.name not in changed] + described
        for split in described:
            ids = [table_id(n, task.number, split.folder, "records") for n in (layout, split.layout)]
            table = next((stored[i] for i in ids if i in stored), None)
            wanted += 1
            there += table is not None
            name = f"{split.name} ({split.regime})" if split.regime else split.name
            sizes[name] = sizes.get(name, 0) + (table.rows if table else split.records)
        state = (
            "own data" if not wanted else ("imported" if there == wanted else "in part" if there else "not imported")
        )
        rows.append(TaskRow(task, layout, sizes, state))
    return rows


def find_example(data: TaskData, name: str) -> tuple[str, VisibleExample]:
    """The split and the example of a name: its key, its id, the last part of its id, or ``SPLIT:ROW``.

    Raises
    ------
    LmassayError
        ``bad-request`` with the nearest ids.
    """
    split, _, row = name.partition(":")
    if split in data.splits and row.isascii() and row.isdecimal():
        if int(row) >= len(data[split]):
            raise LmassayError("bad-request", f"{split} has {len(data[split])} rows", "rows are counted from 0")
        return split, data[split].examples[int(row)]
    if name.isascii() and name.isdecimal():
        for split, part in data.splits.items():
            at = np.flatnonzero(part.examples.keys == int(name))
            if len(at):
                return split, part.examples[int(at[0])]
    for split, part in data.splits.items():
        ids = part.hidden["example_id"]
        at = np.flatnonzero(((ids == name) | ids.str.ends_with(f"/{name}")).to_numpy())
        if len(at):
            return split, part.examples[int(at[0])]
    some = [i for part in data.splits.values() for i in part.hidden["example_id"].head(200).to_list()]
    raise LmassayError(
        "bad-request",
        f"{data.task.id} has no example {name!r}",
        f"{nearest(name, some[:8])}; or SPLIT:ROW, such as test:0",
    )
