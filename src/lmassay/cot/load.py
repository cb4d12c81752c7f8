"""Loading a task's data: ``load_task``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from lmassay.cot.task import TaskData


def load_task(
    task_id: str,
    layout: str = "head",
    regime: str | None = None,
    source: str | Path | None = None,
    *,
    validation: str | None = None,
) -> TaskData:
    """A task's data from the store, or from a source that is not imported.

    Parameters
    ----------
    task_id : str
        Or the number of a published task, as a string.
    layout : str
        ``head`` or ``post``.
    regime : str or None
        ``id`` or ``ood``: which training set, for tasks 1 and 2 of the layout ``post``.
    source : path or None
        A Parquet file of one's own data, or a folder in the layout of the Parquet export. None: what was imported.
    validation : str or None
        ``published`` or ``held_out``. None: the task's default.
    """
    raise NotImplementedError
