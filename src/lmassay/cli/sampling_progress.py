"""Progress of sampling: tokens per second and the time left, on a bar, or now and then in a line off a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lmassay.cli.progress import EVERY
from lmassay.models.sampling import Pace, Progress


def words(what: str, pace: Pace) -> str:
    """One line: ``rollouts: 12 of 50, 180 tokens/s, 2:05 left``."""
    left = pace.seconds_left
    ending = "" if left is None else f", {int(left) // 60}:{int(left) % 60:02d} left"
    return f"{what}: {pace.done} of {pace.total}, {pace.tokens_per_second:.0f} tokens/s{ending}"


@contextmanager
def shown_pace(what: str) -> Iterator[Progress]:
    """A callback for an engine's `progress`, shown on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        with Bar(TextColumn("{task.description}"), BarColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what)

            def drawn(pace: Pace) -> None:
                bar.update(task, description=words(what, pace), completed=pace.done, total=pace.total)

            yield drawn
        return
    last = time.monotonic()

    def plain(pace: Pace) -> None:
        nonlocal last
        if pace.done == pace.total or time.monotonic() - last > EVERY:
            last = time.monotonic()
            print(words(what, pace), file=sys.stderr, flush=True)

    yield plain
