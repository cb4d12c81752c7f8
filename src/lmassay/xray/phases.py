"""The phases of a run: those that score options, and those that measure more of the model afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from lmassay.errors import LmassayError
from lmassay.xray import ablation, geometry, patching
from lmassay.xray.plan import PHASES as SCORED
from lmassay.xray.tables import write_table

if TYPE_CHECKING:
    from lmassay.xray.measured import Decided
    from lmassay.xray.phase import Measuring, Phase, PhaseScores

#: Phases after the option scores, by name, in the order they run.
LATER: Mapping[str, Phase] = {phase.NAME: phase for phase in (patching, ablation, geometry)}
#: Every phase there is.
PHASES = (*SCORED, *LATER)
#: What a run without a word on phases holds: what its headline scores need.
DEFAULT = SCORED
ALL = "all"


def measure_phase(name: str, measuring: Measuring, folder: Path) -> str:
    """Run one phase on the model and write its table; returns the table's name."""
    phase = LATER[name]
    write_table(folder / phase.TABLE, phase.measure(measuring))
    return phase.TABLE


def summarised(names: Sequence[str], folder: Path, decided: Decided, seed: int) -> dict[str, PhaseScores]:
    """Figures of the phases that were run, from their tables.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` when a table cannot be read as what it should be.
    """
    found = {}
    for name, phase in LATER.items():
        if name not in names:
            continue
        try:
            table = pl.read_parquet(folder / phase.TABLE)
            _check(table, folder / phase.TABLE)
            found[name] = phase.summarise(table, decided, seed)
        except (OSError, pl.exceptions.PolarsError) as error:
            why = " ".join(str(error).split())[:160]
            raise LmassayError(
                "bad-run-folder", f"{folder}: {phase.TABLE}: {why}", "run its command again, in another folder"
            ) from error
    return found


def _check(table: pl.DataFrame, path: Path) -> None:
    """Refuse a table whose scores are not what its other columns say."""
    if not {"score", "logprob", "neutral"} <= set(table.columns):
        return
    off = table.select((pl.col("score") - (pl.col("logprob") - pl.col("neutral"))).abs().max()).item()
    if off is not None and off > 1e-9:
        raise LmassayError(
            "bad-run-folder",
            f"{path.parent}: {path.name}: scores differ from logprob - neutral",
            "run its command again, in another folder",
        )
