"""In this process, one item after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lmassay.executors.job import Job, Worker


@dataclass(frozen=True)
class Local:
    """The executor that needs nothing."""

    def run(self, job: Job, items: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Open the job if there is anything to do, and do it."""
        if not items:
            return
        worker = job.open()
        for item in items:
            yield item, worker.run(item)


@dataclass(frozen=True)
class Opened:
    """A job that this process has open already. It is not picklable."""

    worker: Worker

    def open(self) -> Worker:
        """What was opened."""
        return self.worker
