"""Per-task measurements, taken once and shared by rates, PSI, null and Evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.xray.psi import Psi, psi_by_role, psi_of
from lmassay.xray.relabel import Labels, labels_of, pools_of
from lmassay.xray.scored import PROMPT_SWAP, REAL, SEMANTICS_BREAK
from lmassay.xray.trajectories import Wins, trajectory_class, wins_of

if TYPE_CHECKING:
    from lmassay.xray.scored import Floats, ScoredBattery, ScoredTask


@dataclass(frozen=True, slots=True)
class Controlled:
    """What the answer wins under a control that has prompts of its own.

    Attributes
    ----------
    won : bool
        Whether at an internal depth.
    share : float
        Depths won, as a share of all depths.
    """

    won: bool
    share: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One decidable task with its wins under every variant.

    Attributes
    ----------
    by_role : (n_options,) float64
        ``psi_bar`` with each option in the role of the answer; its mean is the expectation under no skill.
    random_win, matched_win : (n_options,) float64
        Expected internal win of each control, by role.
    broken, swapped : Controlled or None
        None where the variant was not run for this task.
    """

    task: ScoredTask
    wins: Wins
    labels: Labels
    psi: Psi
    by_role: Floats
    random_win: Floats
    matched_win: Floats
    broken: Controlled | None
    swapped: Controlled | None

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

    def under(self, control: str) -> Controlled | None:
        """The control named `control`, where it was run."""
        return {SEMANTICS_BREAK: self.broken, PROMPT_SWAP: self.swapped}[control]

    @property
    def expected_random(self) -> float:
        """Share of wrong options that win at an internal depth."""
        return float(self.random_win[self.labels.real])

    @property
    def expected_matched(self) -> float:
        """The same over the options matched in length."""
        return float(self.matched_win[self.labels.real])

    def row(self) -> dict[str, Any]:
        """One line of the per-task table."""
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
            "j_sb": None if self.broken is None else self.broken.share,
            "stability_bonus": self.psi.stability,
            "psi": self.psi.psi,
            "psi_ext": self.psi.extended,
            "psi_bar": self.psi_bar,
            "psi_excess": self.psi_excess,
            "answer_n_tokens": int(self.task.n_tokens[self.labels.real]),
            "prompt_n_tokens": self.task.n_prompt_tokens,
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
        Labels drawn earlier; a task without any is drawn anew.
    """
    undecidable: dict[str, str] = {}
    errors: dict[str, str] = {}
    broken, swapped = (
        {
            task.task_id: _controlled(task, repeats_final)
            for task in scored.variants.get(name, ())
            if task.finite and not task.undecidable
        }
        for name in (SEMANTICS_BREAK, PROMPT_SWAP)
    )
    measured = []
    for task in scored.variants[REAL]:
        if task.undecidable:
            undecidable[task.task_id] = next(f for f in sorted(task.flags) if f.startswith("undecidable"))
        elif not task.finite:
            errors[task.task_id] = "a score is not a finite number"
        else:
            wins = wins_of(task, repeats_final=repeats_final)
            drawn = (labels or {}).get(task.task_id) or labels_of(task, seed)
            pools = pools_of(task.n_tokens)
            internal = wins.internal.astype(np.float64)
            measured.append(
                Measured(
                    task=task,
                    wins=wins,
                    labels=drawn,
                    psi=psi_of(wins, drawn, span),
                    by_role=psi_by_role(wins.counts / wins.at.shape[1], pools),
                    random_win=pools.random @ internal,
                    matched_win=pools.matched @ internal,
                    broken=broken.get(task.task_id),
                    swapped=swapped.get(task.task_id),
                )
            )
    return Decided(tuple(measured), undecidable, errors)


def _controlled(task: ScoredTask, repeats_final: bool) -> Controlled:
    wins = wins_of(task, repeats_final=repeats_final)
    return Controlled(won=bool(wins.internal[task.answer]), share=float(wins.counts[task.answer] / wins.at.shape[1]))
