"""Progress: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmassay.models.sampling import Pace, Progress

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


@contextmanager
def shown_pace() -> Iterator[Progress]:
    """A callback that takes a `Pace`: samples, tokens per second and time left, on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        rate = TextColumn("{task.fields[rate]} tokens/s")
        columns = (TextColumn("samples"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("samples", total=None, rate="–")

            def drawn(pace: Pace) -> None:
                bar.update(task, completed=pace.done, total=pace.total, rate=f"{pace.tokens_per_second:.0f}")

            yield drawn
        return
    last = time.monotonic()

    def plain(pace: Pace) -> None:
        nonlocal last
        if pace.done == pace.total or time.monotonic() - last > EVERY:
            last = time.monotonic()
            left = "" if pace.seconds_left is None else f", {pace.seconds_left:.0f} s left"
            rate = f"{pace.tokens_per_second:.0f} tokens/s"
            print(f"samples: {pace.done} of {pace.total}, {rate}{left}", file=sys.stderr, flush=True)

    yield plain
