"""Per-task measurements, taken once and shared by rates, PSI, null and Evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.xray.psi import Psi, gap_by_role, psi_by_role, psi_of
from lmassay.xray.relabel import Labels, labels_of, matched_pool
from lmassay.xray.trajectories import Wins, trajectory_class, wins_of

if TYPE_CHECKING:
    from lmassay.xray.scored import Floats, ScoredBattery, ScoredTask


@dataclass(frozen=True, slots=True)
class Measured:
    """One decidable task with its wins under every variant.

    Attributes
    ----------
    by_role : (n_options,) float64
        ``psi_bar`` with each option in the role of the answer; its mean is the expectation under no skill.
    random_gap, matched_gap : (n_options,) float64
        Win minus expected control win, by role.
    broken, swapped : Wins or None
        None where the variant was not run for this task.
    """

    task: ScoredTask
    wins: Wins
    labels: Labels
    psi: Psi
    by_role: Floats
    random_gap: Floats
    matched_gap: Floats
    broken: Wins | None
    swapped: Wins | None

    @property
    def psi_bar(self) -> float:
        """Mean PSI over all control draws."""
        return float(self.by_role[self.task.answer])

    @property
    def psi_excess(self) -> float:
        """``psi_bar`` above its mean over roles."""
        return self.psi_bar - float(self.by_role.mean())

    @property
    def won(self) -> bool:
        """Whether the answer wins at an internal depth."""
        return bool(self.wins.internal[self.labels.real])

    def expected_random(self) -> float:
        """Share of wrong options that win at an internal depth."""
        others = [i for i in range(len(self.task.options)) if i != self.labels.real]
        return float(self.wins.internal[others].mean())

    def expected_matched(self) -> float:
        """The same over the options matched in length."""
        return float(self.wins.internal[matched_pool(self.task.n_tokens, self.labels.real)].mean())

    def row(self) -> dict[str, Any]:
        """One line of the per-task table."""
        depths = self.wins.at.shape[1]
        return {
            "task_id": self.task.task_id,
            "family": self.task.family,
            "template": self.task.template,
            "class": trajectory_class(self.wins, self.labels.real),
            "n_real_win_layers": int(self.wins.counts[self.labels.real]),
            "final_correct": bool(self.wins.final[self.labels.real]),
            "final_correct_raw": bool(self.wins.raw_final[self.labels.real]),
            "j_real": self.psi.j_real,
            "j_rl": self.psi.j_random,
            "j_mt": self.psi.j_matched,
            "j_sb": None if self.broken is None else int(self.broken.counts[self.labels.real]) / depths,
            "stability_bonus": self.psi.stability,
            "psi": self.psi.psi,
            "psi_ext": self.psi.extended,
            "psi_bar": self.psi_bar,
            "psi_excess": self.psi_excess,
            "near_ties": self.wins.near_ties,
            "flags": sorted(self.task.flags),
        }


@dataclass(frozen=True, slots=True)
class Decided:
    """The measured tasks, and what became of the others."""

    tasks: tuple[Measured, ...]
    undecidable: Mapping[str, str]
    errors: Mapping[str, str]


def measure(
    scored: ScoredBattery, *, seed: int, span: int, repeats_final: bool, labels: Mapping[str, Labels] | None = None
) -> Decided:
    """Measure every task that can be decided.

    Parameters
    ----------
    labels : mapping of str to Labels, optional
        Labels drawn earlier; drawn anew without.
    """
    undecidable: dict[str, str] = {}
    errors: dict[str, str] = {}
    broken = _usable(scored.variants.get("semantics_break", ()))
    swapped = _usable(scored.variants.get("prompt_swap", ()))
    measured = []
    for task in scored.variants["real"]:
        if task.undecidable:
            undecidable[task.task_id] = next(f for f in sorted(task.flags) if f.startswith("undecidable"))
        elif not np.isfinite(task.score).all():
            errors[task.task_id] = "a score is not a finite number"
        else:
            wins = wins_of(task, repeats_final=repeats_final)
            drawn = labels[task.task_id] if labels is not None else labels_of(task, seed)
            random_gap, matched_gap = gap_by_role(wins.internal.astype(np.float64), task.n_tokens)
            other = [v.get(task.task_id) for v in (broken, swapped)]
            measured.append(
                Measured(
                    task=task,
                    wins=wins,
                    labels=drawn,
                    psi=psi_of(wins, drawn, span),
                    by_role=psi_by_role(wins.counts / wins.at.shape[1], task.n_tokens),
                    random_gap=random_gap,
                    matched_gap=matched_gap,
                    broken=None if other[0] is None else wins_of(other[0], repeats_final=repeats_final),
                    swapped=None if other[1] is None else wins_of(other[1], repeats_final=repeats_final),
                )
            )
    return Decided(tuple(measured), undecidable, errors)


def _usable(tasks: Iterable[ScoredTask]) -> dict[str, ScoredTask]:
    return {t.task_id: t for t in tasks if not t.undecidable and np.isfinite(t.score).all()}
