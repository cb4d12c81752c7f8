"""The text of every question: what the task shows of it, or what the store has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lmassay.cot.release import table_id
from lmassay.cot.store import StoredTable, read_manifest
from lmassay.cot.tasks import tasks
from lmassay.examples import texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmassay.cot.release import Release
    from lmassay.cot.task import SplitData, TaskData


def question_texts(data: TaskData) -> dict[str, dict[str, str]]:
    """Split -> question id -> text; the store's prompts where there are some, else the shown prompt or first turn."""
    found = {name: shown_questions(split) for name, split in data.splits.items()}
    release = data.task.release
    if release is None or data.layout == "own":
        return found
    stored = read_manifest()
    named = next((f.name for f in release.prompt_fields if f.is_text), None)
    if named is None:
        return found
    asked: dict[str, str] = {}
    for split in release.splits:
        for layout in dict.fromkeys((data.layout, split.layout)):
            table = stored.get(table_id(layout, data.task.number, split.prompts, "prompts"))
            if table is not None:
                asked |= _asked(table, release, named)
                break
    return {
        name: {q: asked.get(q, text) for q, text in held.items()} | _unseen(data.splits[name], asked)
        for name, held in found.items()
    }


def _unseen(split: SplitData, asked: Mapping[str, str]) -> dict[str, str]:
    return {q: asked[q] for q in split.hidden["question_id"].unique().to_list() if q in asked}


def _asked(table: StoredTable, release: Release, field: str) -> dict[str, str]:
    """Question id -> text of a table of prompts."""
    frame = table.frame()
    held = table.texts(field, frame).pick(np.arange(frame.height))
    return {q: t for q, t in zip(frame[release.question].to_list(), held, strict=True) if t}


def shown_questions(split: SplitData) -> dict[str, str]:
    """Question id -> the prompt of its first example, or the first turn of its conversation."""
    kinds = split.examples.kinds
    ids = split.hidden["question_id"].to_list()
    first: dict[str, int] = {}
    for row, q in enumerate(ids):
        first.setdefault(q, row)
    if "prompt" in kinds:
        held = texts(split.examples.take(list(first.values())), "prompt")
    elif "message" in kinds:
        held = [next((s.text for s in e.of("message")), "") for e in split.examples.take(list(first.values()))]
    else:
        return {}
    return {q: t for q, t in zip(first, held, strict=True) if t.strip()}


def other_questions(data: TaskData) -> dict[str, frozenset[str]]:
    """Task id and split -> folded question texts of the other published tasks in the store."""
    from lmassay.cot.audit.inputs import fold

    if data.task.release is None or data.layout == "own":
        return {}
    stored = read_manifest()
    found: dict[str, frozenset[str]] = {}
    for task in tasks():
        if task.release is None or task.id == data.task.id:
            continue
        field = next((f.name for f in task.release.prompt_fields if f.is_text), None)
        if field is None:
            continue
        for split in task.release.splits:
            table = stored.get(table_id("head", task.number, split.prompts, "prompts"))
            if table is not None and split.layout == "head":
                texts_ = frozenset(fold(t) for t in _asked(table, task.release, field).values())
                found[f"{task.id} {split.name}" if split.prompts else task.id] = texts_
    return found
