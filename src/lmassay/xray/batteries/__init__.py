"""Batteries by name: the two fixed ones, the balanced generator, and what other packages register."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from lmassay.errors import LmassayError, nearest
from lmassay.xray.batteries.balanced import balanced
from lmassay.xray.batteries.pilot import core50, heldout54

if TYPE_CHECKING:
    from lmassay.xray.task import Battery

ENTRY_POINTS = "lmassay.batteries"
BUILT_IN = {"core50": core50, "heldout54": heldout54}
FILE_SUFFIXES = (".jsonl", ".yaml", ".yml", ".csv")


def battery_names() -> tuple[str, ...]:
    """Names `load_battery` knows besides files."""
    return (*BUILT_IN, "balanced:N", *sorted(e.name for e in entry_points(group=ENTRY_POINTS)))


def load_battery(spec: str, *, seed: int = 0) -> Battery:
    """The battery of a name, ``balanced:N``, an entry point in ``lmassay.batteries``, or a JSONL, YAML or CSV file.

    Raises
    ------
    LmassayError
        ``unknown-battery`` with the nearest names; ``bad-battery`` for a file's faults; ``bad-request`` for an N that
        cannot be had.
    """
    if spec in BUILT_IN:
        return BUILT_IN[spec]()
    kind, _, count = spec.partition(":")
    if kind == "balanced" and count:
        if not (count.isascii() and count.isdecimal()):
            raise LmassayError("unknown-battery", f"{spec!r}: N must be a whole number", "for example balanced:100")
        return balanced(int(count), seed=seed)
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name == spec:
            made: Battery = entry.load()()
            return made
    path = Path(spec).expanduser()
    if path.suffix.lower() in FILE_SUFFIXES:
        # Reading files needs pydantic and yaml, which the built-in batteries do not.
        from lmassay.xray.battery_file import read_battery

        return read_battery(path)
    if path.is_file():
        endings = ", ".join(FILE_SUFFIXES)
        raise LmassayError("unknown-battery", f"{spec} is no battery file", f"a battery file ends in {endings}")
    raise LmassayError("unknown-battery", f"no battery {spec!r}", nearest(spec, battery_names()))
