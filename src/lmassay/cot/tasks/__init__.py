"""Tasks by name: the nine published ones, one file each, and what other packages register."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from lmassay.cot.tasks.registry import MADE, cot_task
from lmassay.errors import LmassayError, nearest

if TYPE_CHECKING:
    from lmassay.cot.task import CotTask

__all__ = ["cot_task", "find_task", "task_ids", "tasks"]

ENTRY_POINTS = "lmassay.cot_tasks"


@cache
def _import_all() -> None:
    """Once a process: reading what every installed package declares takes longer than opening a task."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            made = entry.load()
            if made not in MADE.values():
                cot_task(made)
        except Exception as error:
            raise LmassayError(
                "bad-request",
                f"task {entry.name!r} ({entry.value}) cannot be imported: {type(error).__name__}: {error}",
                "mend or reinstall the package it comes from",
            ) from error


def tasks() -> tuple[CotTask, ...]:
    """Every task: the published ones in their order, then those of other packages by name.

    Raises
    ------
    LmassayError
        ``bad-request`` for a package whose task cannot be imported.
    """
    _import_all()
    found = [make() for make in MADE.values()]
    return tuple(sorted(found, key=lambda t: (t.number == 0, t.number, t.id)))


def task_ids() -> tuple[str, ...]:
    """Ids of `tasks`."""
    return tuple(task.id for task in tasks())


def find_task(name: str) -> CotTask:
    """The task of an id, or of a published task's number.

    Raises
    ------
    LmassayError
        ``unknown-task`` with the nearest ids.
    """
    found = tasks()
    for task in found:
        if name == task.id or (task.number and name == str(task.number)):
            return task
    raise LmassayError("unknown-task", f"no task {name!r}", nearest(name, (t.id for t in found)))
