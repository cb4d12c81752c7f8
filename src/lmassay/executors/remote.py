"""On a Ray cluster: a worker for each place, items handed out as workers become free, lost workers replaced."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.executors.job import Job, Worker

#: Seconds an address may take to answer.
ANSWER_S = 20.0
#: How often a worker may be lost before its items are given up.
RESTARTS = 8
MISSING = "ray is not installed"
INSTALL = "run `pip install 'lmassay[ray]'`"


@dataclass(frozen=True)
class Ray:
    """Workers on a cluster, or on a Ray started on this machine where no address is given.

    Attributes
    ----------
    address : str or None
        ``auto``, ``host:port`` or ``ray://host:port``.
    workers : int
        Processes, each with the job open.
    cpus, gpus : float
        What each worker needs; a fraction shares a card.
    """

    address: str | None = None
    workers: int = 1
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise LmassayError("bad-request", f"{self.workers} workers", "give one or more")
        if importlib.util.find_spec("ray") is None:
            raise LmassayError("bad-request", MISSING, INSTALL)

    def run(self, job: Job, items: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Results as they come; an item whose worker died is handed to its successor by Ray."""
        if not items:
            return
        ray = _ray()
        with self._connected():
            needs = {"num_cpus": self.cpus, "num_gpus": self.gpus}
            made = ray.remote(max_restarts=RESTARTS, max_task_retries=RESTARTS, **needs)(_Worker)
            actors = [made.remote(job) for _ in range(min(self.workers, len(items)))]
            # An actor for which the cluster has no room yet is given no item: it opens the job first.
            running: dict[Any, tuple[int | None, Any]] = {actor.run.remote(None): (None, actor) for actor in actors}
            waiting, left = list(reversed(items)), len(items)
            try:
                while left:
                    (done,), _ = ray.wait(list(running), num_returns=1)
                    item, actor = running.pop(done)
                    result = _got(done, item)
                    if waiting:
                        following = waiting.pop()
                        running[actor.run.remote(following)] = (following, actor)
                    if item is not None:
                        left -= 1
                        yield item, result
            finally:
                for actor in actors:
                    ray.kill(actor)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Join the cluster, or start one here; one that was there before stays as it was."""
        ray = _ray()
        if ray.is_initialized():
            yield
            return
        if self.address is not None:
            _must_answer(self.address)
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(
                address=self.address,
                num_cpus=None if self.address else max(os.cpu_count() or 1, math.ceil(self.workers * self.cpus)),
                log_to_driver=False,
                include_dashboard=None if self.address else False,
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise _silent(self.address or "the Ray of this machine", str(error)) from error
        try:
            yield
        finally:
            ray.shutdown()


def _ray() -> Any:
    """The library, which is an extra; untyped, so that types are checked alike with and without it."""
    return importlib.import_module("ray")


class _Worker:
    """The job on a worker's machine."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.opened: Worker | None = None

    def run(self, item: int | None) -> Any:
        """One item, or nothing but opening; an error of ours is handed back whole, for Ray would wrap it."""
        try:
            if self.opened is None:
                self.opened = self.job.open()
            return None if item is None else self.opened.run(item)
        except LmassayError as error:
            return _Failure(error.code, error.what, error.do, error.exit_status)


@dataclass(frozen=True, slots=True)
class _Failure:
    code: str
    what: str
    do: str
    exit_status: int


def _got(reference: Any, item: int | None) -> Any:
    ray = _ray()
    try:
        result = ray.get(reference)
    except ray.exceptions.RayError as error:
        why, what = str(error).strip().splitlines(), "opening" if item is None else f"item {item}"
        raise LmassayError(
            "executor-lost",
            f"{what} failed on a worker: {why[-1] if why else type(error).__name__}",
            "see that workers have this package, the model and the data, and run the same command again",
            exit_status=FAILED_PART_WAY,
        ) from error
    if isinstance(result, _Failure):
        raise LmassayError(result.code, result.what, result.do, exit_status=result.exit_status)
    return result


def _must_answer(address: str) -> None:
    """Knock first: Ray itself waits for minutes, and says what is wrong in a page of its own log."""
    import socket

    if address in ("auto", "local"):
        return
    place = address.removeprefix("ray://")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        raise LmassayError("bad-request", f"{address!r} is no address", "write host:port, ray://host:port or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S):
            return
    except (OSError, OverflowError) as error:
        raise _silent(address, str(error)) from error


def _silent(address: str, why: str) -> LmassayError:
    said = " ".join(why.split())[:200]
    return LmassayError(
        "executor-lost",
        f"no Ray answers at {address}: {said}",
        "start it with `ray start --head` and pass its address, or leave --address out to start one here",
        exit_status=FAILED_PART_WAY,
    )
