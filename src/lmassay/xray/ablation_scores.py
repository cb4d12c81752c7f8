"""Figures of ablation, from its table: what the answer loses, and what a wrong option in its place loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.evidence import no_evidence, paired_evidence
from lmassay.measures.intervals import CHANGE, Estimate, Range, mean_estimate, undefined
from lmassay.xray.aggregates import resampling_of
from lmassay.xray.phase import PhaseScores
from lmassay.xray.relabel import MATCHED_TOKEN, RANDOM_LABEL, SUFFIX, pools_of
from lmassay.xray.scored import REAL
from lmassay.xray.trajectories import WIN_LEAD, leads

if TYPE_CHECKING:
    import polars as pl

    from lmassay.xray.measured import Decided, Measured
    from lmassay.xray.scored import Floats

SIGNAL = "ablation_j"
NOT_ABLATED = "no task could be ablated"
NO_DONOR = "tasks were not ablated: their family has no other task to take outputs from"
#: Title, and the range of the mean.
FIGURES: Mapping[str, tuple[str, Range | None]] = {
    "ablation_margin": ("change of the margin at final without a component, nats, mean over attentions and MLPs", None),
    "ablation_win": ("change of the win at final without a component, mean over attentions and MLPs", CHANGE),
    "ablation_j": ("change of the share of depths won without a component, mean over attentions and MLPs", CHANGE),
}
ALL = "all"


@dataclass(frozen=True, slots=True)
class Ablated:
    """One task without each component in turn, minus the task as it is.

    Attributes
    ----------
    change : dict of str to (n_components, n_options) float64
        By figure: with each option in the role of the answer.
    """

    task: Measured
    change: dict[str, Floats]

    def under(self, condition: str) -> dict[str, Floats]:
        """(n_components,) by figure: of the answer, or expected over the options that could have been drawn."""
        answer = self.task.labels.real
        if condition == REAL:
            return {name: change[:, answer] for name, change in self.change.items()}
        pools = pools_of(self.task.task.n_tokens)
        weights = (pools.random if condition == RANDOM_LABEL else pools.matched)[answer]
        return {name: np.asarray(change @ weights) for name, change in self.change.items()}


def summarise(table: pl.DataFrame, decided: Decided, seed: int) -> PhaseScores:
    """Changes by component and family, their means, and the controls."""
    components = table.select("component", "block", "kind", "head").unique(maintain_order=True).rows(named=True)
    tasks = _ablated(table, decided, len(components))
    left_out = len(decided.tasks) - len(tasks)
    notices = (f"{left_out} {NO_DONOR}",) if left_out else ()
    if not tasks:
        rows = [no_evidence(SIGNAL, control, "psi", NOT_ABLATED) for control in (RANDOM_LABEL, MATCHED_TOKEN)]
        empty = {
            f"{name}{s}": undefined(title, NOT_ABLATED) for name, (title, _) in FIGURES.items() for s in SUFFIX.values()
        }
        return PhaseScores(empty, tuple(rows), notices=notices)
    resampling = resampling_of([t.task for t in tasks], seed, "ablation")
    changes = {condition: [t.under(condition) for t in tasks] for condition in SUFFIX}
    # A task's mean over components, so that the task stays the unit of every interval; heads are parts of attentions.
    whole = [at for at, component in enumerate(components) if component["head"] is None]
    means = {
        condition: {name: [float(task[name][whole].mean()) for task in changes[condition]] for name in FIGURES}
        for condition in SUFFIX
    }
    scores: dict[str, Estimate] = {
        f"{name}{suffix}": mean_estimate(
            means[condition][name],
            resampling,
            title=title if condition == REAL else f"{title} ({condition})",
            within=within,
        )
        for condition, suffix in SUFFIX.items()
        for name, (title, within) in FIGURES.items()
    }
    return PhaseScores(
        scores=scores,
        # Turned round, so that a larger loss of the answer than of a wrong option is the positive direction.
        evidence=tuple(
            paired_evidence(
                SIGNAL,
                control,
                "psi",
                [-x for x in means[REAL][SIGNAL]],
                [-x for x in means[control][SIGNAL]],
                resampling,
            )
            for control in (RANDOM_LABEL, MATCHED_TOKEN)
        ),
        details={"components": _by_component(components, tasks, changes)},
        notices=notices,
    )


def _ablated(table: pl.DataFrame, decided: Decided, n_components: int) -> list[Ablated]:
    by_task = {str(task_id): rows for (task_id,), rows in table.group_by("task_id", maintain_order=True)}
    found = []
    for m in decided.tasks:
        rows = by_task.get(m.task.task_id)
        if rows is None:
            continue
        score = rows["score"].to_numpy().reshape(n_components, -1)
        margin = np.stack([leads(s[:, None])[:, 0] for s in score])
        share = rows["n_won"].to_numpy().reshape(n_components, -1) / m.wins.at.shape[1]
        found.append(
            Ablated(
                m,
                {
                    "ablation_margin": margin - leads(m.task.score[:, -1:])[:, 0],
                    "ablation_win": (margin > WIN_LEAD).astype(np.float64) - m.wins.final,
                    "ablation_j": share - m.wins.counts / m.wins.at.shape[1],
                },
            )
        )
    return found


def _by_component(
    components: Sequence[dict[str, Any]], tasks: Sequence[Ablated], changes: dict[str, list[dict[str, Floats]]]
) -> list[dict[str, Any]]:
    """One row per component, family (and all of them) and condition."""
    families = {ALL: list(range(len(tasks)))}
    for at, task in enumerate(tasks):
        families.setdefault(task.task.task.family, []).append(at)
    rows = []
    for condition in SUFFIX:
        for family, members in families.items():
            mean = {name: np.mean([changes[condition][i][name] for i in members], axis=0) for name in FIGURES}
            rows += [
                {
                    **component,
                    "family": family,
                    "condition": condition,
                    "n": len(members),
                    **{name.removeprefix("ablation_"): float(mean[name][at]) for name in FIGURES},
                }
                for at, component in enumerate(components)
            ]
    return rows
