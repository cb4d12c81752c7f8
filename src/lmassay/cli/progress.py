"""Progress: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

#: Seconds between plain lines.
EVERY = 10.0


@contextmanager
def shown(what: str) -> Iterator[Callable[[int, int], None]]:
    """A callback ``(done, total)``, shown on standard error."""
    with shown_stages() as progress:
        yield partial(progress, what)


@contextmanager
def shown_stages() -> Iterator[Callable[[str, int, int], None]]:
    """A callback ``(stage, done, total)``, shown on standard error, one bar a stage."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            tasks: dict[str, TaskID] = {}

            def drawn(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bar.add_task(what, total=total)
                bar.update(tasks[what], completed=done, total=total)

            yield drawn
        return
    last = time.monotonic()

    def plain(what: str, done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last > EVERY:
            last = time.monotonic()
            print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)

    yield plain
