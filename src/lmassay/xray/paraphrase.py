"""Phase 6: whether a question is won at the same depths however it is put."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from lmassay.xray.trajectories import wins_of

if TYPE_CHECKING:
    from lmassay.xray.scored import ScoredTask


@dataclass(frozen=True, slots=True)
class GroupStability:
    """One paraphrase group.

    Attributes
    ----------
    jaccard : Fraction or None
        Mean over pairs of wordings of the overlap of won internal depths, two empty sets counting as 1; None under two
        wordings.
    any_win : bool
        Whether any wording wins anywhere: without, the group's 1.0 says nothing.
    win_rate, final_accuracy : float or None
        Over wordings; None without any.
    n_wordings, n_undecided : int
        Wordings measured, and wordings that could not be (options that share a token, scores that are no numbers).
    """

    group: str
    family: str
    jaccard: Fraction | None
    any_win: bool
    win_rate: float | None
    final_accuracy: float | None
    n_wordings: int
    n_undecided: int


def jaccard(a: frozenset[int], b: frozenset[int]) -> Fraction:
    """Overlap over union; 1 for two empty sets, as in the paper."""
    return Fraction(len(a & b), len(a | b)) if a | b else Fraction(1)


def group_stability(tasks: Sequence[ScoredTask], *, repeats_final: bool) -> list[GroupStability]:
    """Group the wordings (`template` is the group) and measure each group by the wordings that can be decided."""
    groups: dict[str, list[ScoredTask]] = defaultdict(list)
    for task in tasks:
        groups[task.template].append(task)
    measured = []
    for name, wordings in groups.items():
        members = [task for task in wordings if task.finite and not task.undecidable]
        wins = [wins_of(task, repeats_final=repeats_final) for task in members]
        won = [frozenset(np.flatnonzero(w.at[t.answer, :-1]).tolist()) for w, t in zip(wins, members, strict=True)]
        pairs = [jaccard(a, b) for a, b in combinations(won, 2)]
        measured.append(
            GroupStability(
                group=name,
                family=wordings[0].family,
                jaccard=sum(pairs, Fraction()) / len(pairs) if pairs else None,
                any_win=any(won),
                win_rate=_share([bool(depths) for depths in won]),
                final_accuracy=_share([bool(w.final[t.answer]) for w, t in zip(wins, members, strict=True)]),
                n_wordings=len(members),
                n_undecided=len(wordings) - len(members),
            )
        )
    return measured


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
