"""What an executor works off: a job that a worker opens once, and whose items it then does by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Worker(Protocol):
    """A job opened on some machine."""

    def run(self, item: int) -> Any:
        """Do one item. What it returns must be small and picklable: large results go to files."""
        ...


class Job(Protocol):
    """A picklable description of work."""

    def open(self) -> Worker:
        """Load what the items need. Heavy: called once on each worker."""
        ...


class Executor(Protocol):
    """Somewhere to work."""

    def run(self, job: Job, items: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Number and result of each item, in the order in which they are finished.

        An error that an item raises comes out here. An item whose worker was lost is done again by another.
        """
        ...
