"""Phase 6: whether a question is won at the same depths however it is put."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from lmassay.evidence import Evidence, no_evidence, paired_evidence, unpaired_evidence
from lmassay.measures.intervals import Resampling
from lmassay.seeds import generator
from lmassay.xray.trajectories import wins_of

if TYPE_CHECKING:
    from lmassay.xray.scored import ScoredTask
    from lmassay.xray.trajectories import Wins

SIGNAL, CONTROL = "jaccard_strict", "wrong options"
NOT_RUN, NO_PAIR, NO_WIN = "phase not run", "no group has two wordings that can be decided", "no group has a win"


@dataclass(frozen=True, slots=True)
class GroupStability:
    """One paraphrase group.

    Attributes
    ----------
    jaccard : Fraction or None
        Mean over pairs of wordings of the overlap of won internal depths, two empty sets counting as 1; None under two
        wordings.
    jaccard_wrong : Fraction or None
        The same with a wrong option as answer, mean over those that win at least once; None where none does.
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
    jaccard_wrong: Fraction | None
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
        won = [_won(w, t.answer) for w, t in zip(wins, members, strict=True)]
        measured.append(
            GroupStability(
                group=name,
                family=wordings[0].family,
                jaccard=_overlap(won),
                jaccard_wrong=_wrong(members, wins),
                any_win=any(won),
                win_rate=_share([bool(depths) for depths in won]),
                final_accuracy=_share([bool(w.final[t.answer]) for w, t in zip(wins, members, strict=True)]),
                n_wordings=len(members),
                n_undecided=len(wordings) - len(members),
            )
        )
    return measured


def _won(wins: Wins, option: int) -> frozenset[int]:
    return frozenset(np.flatnonzero(wins.at[option, :-1]).tolist())


def _overlap(won: Sequence[frozenset[int]]) -> Fraction | None:
    pairs = [jaccard(a, b) for a, b in combinations(won, 2)]
    return sum(pairs, Fraction()) / len(pairs) if pairs else None


def _wrong(tasks: Sequence[ScoredTask], wins: Sequence[Wins]) -> Fraction | None:
    """Mean overlap of the wrong options that win at least once; options are told by their text."""
    shared = set.intersection(*({*t.options} - {t.options[t.answer]} for t in tasks)) if tasks else set()
    found = []
    for option in shared:
        won = [_won(w, t.options.index(option)) for w, t in zip(wins, tasks, strict=True)]
        overlap = _overlap(won)
        if any(won) and overlap is not None:
            found.append(overlap)
    return sum(found, Fraction()) / len(found) if found else None


def stability_evidence(groups: Sequence[GroupStability], seed: int) -> Evidence:
    """Overlap of the answer's won depths against the wrong options' of the same groups.

    An option that the model simply likes is won at the same depths however it is asked. Groups whose answer never wins
    are left out, as in ``jaccard_strict``; a group without a wrong option that wins counts for the answer alone.
    """
    usable = [g for g in groups if g.jaccard is not None]
    winning = [g for g in usable if g.any_win]
    if not winning:
        return no_evidence(SIGNAL, CONTROL, "rate", (NO_WIN if usable else NO_PAIR) if groups else NOT_RUN)
    own = [float(g.jaccard or 0) for g in winning]
    wrong = [np.nan if g.jaccard_wrong is None else float(g.jaccard_wrong) for g in winning]
    if np.isnan(wrong).all():
        return no_evidence(SIGNAL, CONTROL, "rate", "no wrong option wins where the answer does")
    compare = unpaired_evidence if np.isnan(wrong).any() else paired_evidence
    return compare(SIGNAL, CONTROL, "rate", own, wrong, resampling_of_groups(winning, seed))


def resampling_of_groups(groups: Sequence[GroupStability], seed: int) -> Resampling:
    """Resamples of whole groups."""
    return Resampling([g.group for g in groups], generator(seed, "paraphrase groups", "interval"))


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
