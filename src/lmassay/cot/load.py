"""Loading a task's data: ``load_task``."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lmassay import seeds
from lmassay.cot.release import ReleasedSplit, table_id
from lmassay.cot.split import make_split
from lmassay.cot.store import StoredTable, read_manifest
from lmassay.cot.task import LAYOUTS, REGIMES, CotTask, SplitData, TaskData
from lmassay.cot.tasks import find_task
from lmassay.errors import LmassayError, nearest
from lmassay.examples import VisibleExamples

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Tasks whose training sets the layouts `post` and `head` do not share.
TWO_REGIMES = (1, 2)
VALIDATIONS = ("published", "held_out")
OWN_HELD_OUT = "validation: a fifth of the training questions, held out by hash; the file has no such split"
NO_TEXT = "{id} is published without the text of any chain of thought: only {what} can be re-analysed"


def load_task(
    task_id: str,
    layout: str = "head",
    regime: str | None = None,
    source: str | Path | None = None,
    *,
    validation: str | None = None,
) -> TaskData:
    """A task's data from the store, or from a file of one's own.

    No text is read before it is asked for.

    Parameters
    ----------
    task_id : str
        Or the number of a published task, as a string.
    layout : str
        ``head`` or ``post``.
    regime : str or None
        ``id`` or ``ood``: which training set, for tasks 1 and 2 of the layout ``post``, and for no other.
    source : path or None
        A Parquet or JSONL file of one's own data (`lmassay.cot.own`), or ``demo``: what comes with the package
        (`lmassay.cot.demo`). None: what was imported.
    validation : str or None
        ``published``, or ``held_out``: a fifth of the training questions, drawn by hash. None: the task's default.

    Raises
    ------
    LmassayError
        ``unknown-task``, ``cot-data-missing``, ``cot-data-broken``, ``bad-request``.
    """
    task = find_task(task_id)
    if source is not None:
        from lmassay.cot.demo import DEMO, NOTE, demo_file
        from lmassay.cot.own import read_own

        if layout != "head" or regime is not None or validation is not None:
            whose = "the demo's data" if str(source) == DEMO else "data of your own"
            raise LmassayError(
                "bad-request",
                f"{whose} has no layout, regime or choice of validation sets",
                "leave them out; its splits are those that its file names",
            )
        if str(source) == DEMO:
            return _with_validation(replace(read_own(task, demo_file(task.id)), notes=(NOTE,)))
        return _with_validation(read_own(task, Path(source)))
    if layout not in LAYOUTS:
        raise LmassayError("bad-request", f"no layout {layout!r}", nearest(layout, LAYOUTS))
    if validation is not None and validation not in VALIDATIONS:
        raise LmassayError("bad-request", f"no validation set {validation!r}", nearest(validation, VALIDATIONS))
    _check_regime(task, layout, regime)
    if task.release is None:
        raise LmassayError("cot-data-missing", f"{task.id} has no published data", "name a file of its data as source")
    tables = _tables(task, layout, regime)
    splits: dict[str, SplitData] = {}
    for split, records, prompts in tables:
        made = make_split(task, split, records, prompts)
        splits[split.name] = _joined(splits[split.name], made) if split.name in splits else made
    how = validation or ("held_out" if task.release.held_out else "published")
    if how == "held_out" and "train" in splits:
        splits = _held_out(task, splits)
    used = {t.id: t.digest for _, records, prompts in tables for t in (records, prompts) if t is not None}
    content = "\x1f".join(f"{id_}={digest}" for id_, digest in sorted(used.items()))
    return TaskData(
        task,
        layout,
        regime,
        splits,
        hashlib.sha256(f"{task.id}\x1f{how}\x1f{content}".encode()).hexdigest(),
        validation=how,
        missing=task.release.missing,
        notes=_notes(task, layout, how, used),
    )


def require_segments(data: TaskData, kinds: Sequence[str]) -> None:
    """Refuse a method the segments it reads when this data does not have them.

    Raises
    ------
    LmassayError
        ``cot-data-missing``, saying what is missing and why.
    """
    lacking = [k for k in kinds if k in data.missing]
    if lacking:
        what = "its answer distributions" if data.task.kind == "regression" else "its selections and their KLs"
        raise LmassayError(
            "cot-data-missing",
            NO_TEXT.format(id=data.task.id, what=what),
            "make data with text for this task and give its file as source",
        )


def _check_regime(task: CotTask, layout: str, regime: str | None) -> None:
    if layout == "post" and task.number in TWO_REGIMES:
        if regime is None:
            raise LmassayError(
                "bad-request",
                f"{task.id} has two training sets in the layout post",
                "name one with the regime id (math) or ood (diverse questions)",
            )
        if regime not in REGIMES:
            raise LmassayError("bad-request", f"no regime {regime!r}", nearest(regime, REGIMES))
    elif regime is not None:
        raise LmassayError(
            "bad-request",
            f"{task.id} has no regimes in the layout {layout}",
            "leave the regime out; tasks 1 and 2 of the layout post have them",
        )


def _tables(
    task: CotTask, layout: str, regime: str | None
) -> list[tuple[ReleasedSplit, StoredTable, StoredTable | None]]:
    """Splits of a layout with their tables. What the layout post does not describe did not change since."""
    assert task.release is not None
    described = [s for s in task.release.splits if s.layout == layout and s.regime in (None, regime)]
    if layout == "post" and task.number not in TWO_REGIMES:
        changed = {s.name for s in described}
        described = [s for s in task.release.splits if s.layout == "head" and s.name not in changed] + described
    stored = read_manifest()
    found = []
    for split in described:
        layouts = dict.fromkeys((layout, split.layout))
        records = _first(stored, [table_id(n, task.number, split.folder, "records") for n in layouts])
        if records is None:
            raise _missing(task, layout, split, stored)
        prompts = _first(stored, [table_id(n, task.number, split.prompts, "prompts") for n in layouts])
        if prompts is None and any(s.of == "prompts" for s in task.release.shown):
            raise _missing(task, layout, split, stored, what="the prompts of ")
        found.append((split, records, prompts))
    return found


def _first(stored: dict[str, StoredTable], ids: Sequence[str]) -> StoredTable | None:
    return next((stored[i] for i in ids if i in stored), None)


def _missing(
    task: CotTask, layout: str, split: ReleasedSplit, stored: dict[str, StoredTable], what: str = ""
) -> LmassayError:
    there = sorted({i.split("/")[0] for i in stored if i.split("/")[1] == str(task.number)})
    has = (
        f"of this task the store has the layout {' and '.join(there)}"
        if there
        else "the store has nothing of this task"
    )
    return LmassayError(
        "cot-data-missing",
        f"{what}{task.id}, split {split.name} of the layout {layout}, is not in the store: {has}",
        "run `lmassay cot import SOURCE`: a checkout, an archive or published@COMMIT (see docs/cot-data.md)",
    )


def _joined(a: SplitData, b: SplitData) -> SplitData:
    """Two tables of one split, rows in the order of their keys."""
    import polars as pl

    from lmassay.examples import Cells, Column

    keys = np.r_[a.examples.keys, b.examples.keys]
    order = np.argsort(keys, kind="stable")
    columns = []
    for one, other in zip(a.examples.columns, b.examples.columns, strict=True):
        # Prompts of task 9 are few: copied, each is held once for every table.
        series = [pl.Series(c.values.pick(np.arange(len(c.values)))) for c in (one, other)]
        first = one.rows if one.rows is not None else np.arange(len(a))
        second = other.rows if other.rows is not None else np.arange(len(b))
        rows = np.r_[first, np.where(second < 0, -1, second + len(series[0]))]
        columns.append(Column(one.kind, Cells(pl.concat(series)), rows[order]))
    return SplitData(
        a.name,
        VisibleExamples(keys[order], columns),
        np.r_[a.y, b.y][order],
        np.r_[a.groups, b.groups][order],
        np.r_[a.status, b.status][order],
        pl.concat([a.hidden, b.hidden], how="diagonal_relaxed")[order],
    )


def _with_validation(data: TaskData) -> TaskData:
    """A file's data; where it has no validation rows, with some of its training questions as such."""
    if data.task.kind == "selection" or "validation" in data.splits or len(np.unique(data["train"].groups)) < 2:
        return data
    splits = _held_out(data.task, dict(data.splits))
    return replace(data, splits=splits, validation="held_out", notes=(*data.notes, OWN_HELD_OUT))


def _held_out(task: CotTask, splits: dict[str, SplitData]) -> dict[str, SplitData]:
    """A share of the training questions as validation set, drawn by hash."""
    share = task.release.held_out if task.release and task.release.held_out else 0.2
    train = splits["train"]
    groups = sorted({int(g) for g in train.groups}, key=lambda g: seeds.digest(0, str(g), "held-out validation"))
    held = np.isin(train.groups, groups[: max(1, round(share * len(groups)))])
    return {
        "train": select(train, np.flatnonzero(~held), "train"),
        "validation": select(train, np.flatnonzero(held), "validation"),
        **{name: s for name, s in splits.items() if name not in ("train", "validation")},
    }


def select(split: SplitData, rows: np.ndarray, name: str | None = None) -> SplitData:
    """Some rows of a split; no text is copied."""
    return replace(
        split,
        name=name or split.name,
        examples=split.examples.take(rows),
        y=split.y[rows],
        groups=split.groups[rows],
        status=split.status[rows],
        hidden=split.hidden[rows],
    )


def _notes(task: CotTask, layout: str, validation: str, used: dict[str, str]) -> tuple[str, ...]:
    notes = []
    if validation == "held_out":
        notes.append("validation: a fifth of the training questions, held out by hash; not the published set")
    if layout == "post" and any(id_.startswith("head/") for id_ in used):
        notes.append("tables that the layout post shares with head were imported as head")
    if layout == "post" and task.number == 4:
        notes.append("ood_test is the set before 26 April 2026; which one the published figures used is unknown")
    return tuple(notes)
