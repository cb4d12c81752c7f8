"""What a phase after the option scores gets, and what it gives: a table measured once, and figures from the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import polars as pl

    from lmassay.evidence import Evidence
    from lmassay.measures.intervals import Estimate
    from lmassay.models.language_model import LanguageModel
    from lmassay.storage.parts import Parts
    from lmassay.xray.measured import Decided
    from lmassay.xray.plan import RunPlan


@dataclass(frozen=True)
class Measuring:
    """What a phase measures with.

    Attributes
    ----------
    plan : RunPlan
        Token ids of every prompt and option.
    decided : Decided
        Wins and control labels of the tasks that can be decided.
    options : mapping of str to str
        The phase's own settings (``ablation``, ``prior``, ...); part of the run's identity.
    parts : callable
        ``parts(columns)`` keeps finished shards of this phase on disk, so that an interrupted run goes on.
    progress : callable or None
        Called with (shards done, shards in all).
    """

    model: LanguageModel
    plan: RunPlan
    decided: Decided
    seed: int
    batch_tokens: int
    options: Mapping[str, Any]
    parts: Callable[[Sequence[str]], Parts]
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class PhaseScores:
    """Figures of one phase.

    Attributes
    ----------
    scores : mapping of str to Estimate
        Named figures, which stand beside the others of ``scores.json``.
    evidence : tuple of Evidence
        Not yet judged: Holm's correction is over all rows of the run.
    details : mapping
        JSON-ready tables of the phase (by depth, by component), for reports.
    """

    scores: Mapping[str, Estimate] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


class Phase(Protocol):
    """A phase after the option scores: one module that has these four names.

    Attributes
    ----------
    NAME : str
        As in ``--phases``.
    TABLE : str
        File of its cells in the run folder.
    """

    NAME: str
    TABLE: str

    def measure(self, measuring: Measuring) -> pl.DataFrame:
        """Run the model and return the table, a row per cell."""
        ...

    def summarise(self, table: pl.DataFrame, decided: Decided, seed: int) -> PhaseScores:
        """All figures of the phase, from its table and without a model."""
        ...
