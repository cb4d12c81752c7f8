"""Battery files that a report was given: each must be one of its runs', or it would be passed over in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lmassay.errors import LmassayError
from lmassay.reports.page.opened import OpenedRun
from lmassay.reports.page.xray import asks_the_same
from lmassay.reports.page.xray_wins import read_wins
from lmassay.storage.runs import LABELS, OPTIONS

if TYPE_CHECKING:
    from lmassay.xray.task import Battery


def refuse_unused(runs: Sequence[OpenedRun], batteries: Sequence[Battery]) -> None:
    """Refuse a battery that no run was of.

    Raises
    ------
    LmassayError
        ``bad-request`` naming the battery, and those of the runs.
    """
    asked = [run for run in runs if run.suite == "xray"]
    for battery in batteries:
        if any(_is_of(battery, run) for run in asked):
            continue
        own = dict.fromkeys(_named(run) for run in asked)
        raise LmassayError(
            "bad-request",
            f"no run was of the battery {battery.name} (sha256 {battery.content_hash[:12]})",
            f"name the file that was run; the runs are of {', '.join(own)}"
            if own
            else "leave --battery out: a run of the cot suite has no battery",
        )


def _is_of(battery: Battery, run: OpenedRun) -> bool:
    about = run.record["identity"]["battery"]
    if about.get("version") != "outside":
        return bool(battery.content_hash == about.get("sha256"))
    return {OPTIONS, LABELS} <= set(run.tables) and asks_the_same(battery, read_wins(run.path))


def _named(run: OpenedRun) -> str:
    about = run.record["identity"]["battery"]
    return f"{about['name']} (sha256 {str(about.get('sha256', ''))[:12]})"
