"""Progress: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds between plain lines.
EVERY = 10.0


@contextmanager
def shown(what: str) -> Iterator[Callable[[int, int], None]]:
    """A callback ``(done, total)``, shown on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    last = time.monotonic()

    def plain(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last > EVERY:
            last = time.monotonic()
            print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)

    yield plain
