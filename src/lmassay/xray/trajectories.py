"""Wins: at which depths an option leads every other, and what becomes of it at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lmassay.xray.scored import Floats, Ints, ScoredTask

#: Nats an option must lead by: the agreed numeric agreement of the engines. Less is a tie, and a tie is no win.
WIN_LEAD = 1e-4
#: Leads under this are counted, since another machine may decide them otherwise.
NEAR_TIE = 1e-3

Bools = NDArray[np.bool_]


def leads(score: Floats) -> Floats:
    """(n_options, n_depths) scores -> lead of each option over the best other one, nats."""
    ordered = np.sort(score, axis=0)
    best, second = ordered[-1], ordered[-2]
    # A tied best has itself as second, so its lead is zero.
    return np.asarray(np.where(score == best, best - second, score - best))


@dataclass(frozen=True, slots=True)
class Wins:
    """Who wins where, for one task under one variant.

    Attributes
    ----------
    at : (n_options, n_depths) bool
        Wins by the prior-normalised score.
    raw_final : (n_options,) bool
        Wins at ``final`` by the log-probability alone.
    near_ties : int
        Depths at which the best lead is under `NEAR_TIE`.
    repeats_final : bool
        Whether the last but one depth is the last block, which repeats ``final``.
    """

    at: Bools
    raw_final: Bools
    near_ties: int
    repeats_final: bool

    @property
    def counts(self) -> Ints:
        """(n_options,) depths won, ``final`` included."""
        return np.asarray(self.at.sum(1))

    @property
    def internal(self) -> Bools:
        """(n_options,) whether won at any depth but ``final``."""
        return np.asarray(self.at[:, :-1].any(1))

    @property
    def internal_strict(self) -> Bools:
        """(n_options,) the same without the last block, whose lens is the output itself."""
        return np.asarray(self.distinct[:, :-1].any(1))

    @property
    def final(self) -> Bools:
        """(n_options,) whether won at ``final``."""
        return np.asarray(self.at[:, -1])

    @property
    def distinct(self) -> Bools:
        """(n_options, distinct depths) wins without the repeated last block."""
        return np.delete(self.at, -2, axis=1) if self.repeats_final else self.at

    def stable(self, span: int) -> Bools:
        """(n_options,) whether at least `span` consecutive distinct depths are won."""
        distinct = self.distinct
        if distinct.shape[1] < span:
            return np.zeros(len(distinct), np.bool_)
        windows = np.lib.stride_tricks.sliding_window_view(distinct, span, axis=1)
        return np.asarray(np.any(np.all(windows, axis=2), axis=1))


def wins_of(task: ScoredTask, *, repeats_final: bool) -> Wins:
    """Wins of every option, so that relabelling is a choice of row.

    Parameters
    ----------
    repeats_final : bool
        Whether the last but one depth is the last block, whose lens is the output itself (``depths="paper"``).
    """
    lead = leads(task.score)
    raw = leads(task.logprob[:, -1:])
    return Wins(
        at=lead > WIN_LEAD,
        raw_final=(raw > WIN_LEAD)[:, 0],
        near_ties=int((lead.max(0) < NEAR_TIE).sum()),
        repeats_final=repeats_final,
    )


def trajectory_class(wins: Wins, label: int) -> str:
    """``never_known``, ``known_then_lost``, ``known_and_kept`` or ``only_final``."""
    if wins.internal[label]:
        return "known_and_kept" if wins.final[label] else "known_then_lost"
    return "only_final" if wins.final[label] else "never_known"
