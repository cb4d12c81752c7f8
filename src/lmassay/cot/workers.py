"""Two processes over the parts of a table: this one, and one beside it that has nothing but the reader loaded.

multiprocessing would fork what polars' threads hold locked, or import the whole command again to start afresh; both
would cost more than the second process saves.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from lmassay.cot.parts import TableJob, read_part

#: A part to read: which job, which block.
Unit = tuple[int, int]


@contextmanager
def second_process(wanted: bool = True) -> Iterator[subprocess.Popen[bytes] | None]:
    """A process that waits for parts to read; None when none is wanted. Started early, it is ready when they are."""
    if not wanted:
        yield None
        return
    with subprocess.Popen([sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield child
        except BaseException:
            child.kill()
            raise
        finally:
            if child.stdin is not None and not child.stdin.closed:
                child.stdin.close()


def read_parts(
    jobs: Sequence[TableJob],
    units: Iterable[Unit],
    *,
    child: subprocess.Popen[bytes] | None = None,
    progress: Callable[[], None] | None = None,
) -> None:
    """Read and write the named parts.

    Parameters
    ----------
    units : iterable of (job, block)
    child : process or None
        What `second_process` gave. None: this process reads them all.
    progress : callable or None
        Called after each part.

    Raises
    ------
    OSError
        When a part cannot be written, in whichever process.
    """
    waiting = deque(units)
    done: Callable[[], None] = progress or (lambda: None)
    faults: list[BaseException] = []
    driver = None
    if child is not None and len(waiting) > 1:
        driver = threading.Thread(target=_drive, args=(child, jobs, waiting, faults, done), daemon=True)
        driver.start()
    try:
        while not faults:
            try:
                unit = waiting.popleft()
            except IndexError:
                break
            _read(jobs, unit)
            done()
    except BaseException:
        if child is not None:
            child.kill()
        raise
    finally:
        waiting.clear()
        if driver is not None:
            driver.join()
    if faults:
        raise faults[0]


def _read(jobs: Sequence[TableJob], unit: Unit) -> None:
    job, number = unit
    read_part(jobs[job], number)


def _drive(
    child: subprocess.Popen[bytes],
    jobs: Sequence[TableJob],
    waiting: deque[Unit],
    faults: list[BaseException],
    done: Callable[[], None],
) -> None:
    """Give the other process one part at a time, until none is left or one fails."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        _send(child.stdin, list(jobs))
        while True:
            try:
                unit = waiting.popleft()
            except IndexError:
                break
            _send(child.stdin, unit)
            fault = pickle.load(child.stdout)
            if fault is not None:
                faults.append(fault)
                break
            done()
    except (OSError, EOFError, pickle.UnpicklingError) as error:
        faults.append(OSError(getattr(error, "errno", None), "the reading process stopped"))


def _send(pipe: IO[bytes], message: Any) -> None:
    pickle.dump(message, pipe)
    pipe.flush()


def _serve() -> None:
    """The other process: parts as they come, until there are no more."""
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    jobs = pickle.load(asked)
    while True:
        try:
            unit = pickle.load(asked)
        except EOFError:
            return
        try:
            _read(jobs, unit)
        except Exception as fault:
            _send(answers, fault)
        else:
            _send(answers, None)


if __name__ == "__main__":
    _serve()
