"""The decorator by which a task becomes known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmassay.cot.task import CotTask

#: Name of the function -> the function that makes the task.
MADE: dict[str, Callable[[], CotTask]] = {}


def cot_task(make: Callable[[], CotTask]) -> Callable[[], CotTask]:
    """Register a function that makes a `CotTask`; the function's name is the task's id.

    A package elsewhere names the same function as entry point in the group ``lmassay.cot_tasks``.

    Raises
    ------
    ValueError
        When another function has that name already.
    """
    if MADE.setdefault(make.__name__, make) is not make:
        raise ValueError(f"two tasks are called {make.__name__!r}")
    return make
