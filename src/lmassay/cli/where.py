"""Options that say where work is done, and the executor they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lmassay.executors.job import Executor

ExecutorName = Annotated[str, typer.Option("--executor", help="local, or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Of a Ray: host:port, ray://host:port or auto; default: one started here.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes on Ray, each with a model open.")]
Gpus = Annotated[float, typer.Option(min=0, help="Cards that each worker on Ray takes.")]


def chosen_executor(name: str, address: str | None, workers: int, gpus: float) -> Executor | None:
    """The executor of that name; None for this process.

    Raises
    ------
    LmassayError
        ``bad-request``: no such executor, options of another, or what it needs is not installed.
    """
    from lmassay.errors import LmassayError, nearest

    if name == "ray":
        from lmassay.executors.remote import Ray

        return Ray(address, workers=workers, gpus=gpus)
    if name != "local":
        raise LmassayError("bad-request", f"no executor {name!r}", nearest(name, ("local", "ray")))
    for given, option in ((address is not None, "--address"), (workers != 1, "--workers"), (gpus != 0, "--gpus")):
        if given:
            raise LmassayError("bad-request", f"{option} is of a Ray", "add --executor ray")
    return None
