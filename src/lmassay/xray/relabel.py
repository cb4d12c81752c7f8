"""The two relabelling controls: another option plays the answer, at no cost in forward passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lmassay.seeds import smallest_hash
from lmassay.xray.scored import REAL

if TYPE_CHECKING:
    from lmassay.xray.scored import Floats, Ints, ScoredTask

RANDOM_LABEL, MATCHED_TOKEN = "random_label", "matched_token"
#: Conditions that share the task's own prompt -> suffix of their figures.
SUFFIX = {REAL: "", RANDOM_LABEL: "_rl", MATCHED_TOKEN: "_mt"}


@dataclass(frozen=True, slots=True)
class Labels:
    """Which option plays the answer under each condition, and how well the matched one matches.

    Attributes
    ----------
    length_difference : int
        Tokens of the matched option minus tokens of the answer.
    """

    real: int
    random_label: int
    matched_token: int
    length_difference: int

    def under(self, condition: str) -> int:
        """The option that plays the answer under a condition of `SUFFIX`."""
        return {REAL: self.real, RANDOM_LABEL: self.random_label, MATCHED_TOKEN: self.matched_token}[condition]

    @property
    def exact(self) -> bool:
        """Whether the matched option is as long as the answer."""
        return self.length_difference == 0


@dataclass(frozen=True, slots=True)
class Pools:
    """Chance of each option to be drawn as a control, for every option in the role of the answer.

    Attributes
    ----------
    random : (n_options, n_options) float64
        Uniform over the other options; rows are roles and sum to one.
    matched : (n_options, n_options) float64
        Uniform over the other options whose token length is nearest to the role's.
    """

    random: Floats
    matched: Floats


def pools_of(n_tokens: Ints) -> Pools:
    """Both pools from the (n_options,) token lengths."""
    k = len(n_tokens)
    other = ~np.eye(k, dtype=np.bool_)
    distance = np.abs(n_tokens[:, None] - n_tokens[None, :]).astype(np.float64)
    distance[~other] = np.inf
    nearest = distance == distance.min(1, keepdims=True)
    return Pools(random=other / (k - 1), matched=nearest / nearest.sum(1, keepdims=True))


def labels_of(task: ScoredTask, seed: int) -> Labels:
    """Draw the two control labels by hash, so that neither option order nor other tasks matter."""
    pools = pools_of(task.n_tokens)
    return Labels(
        real=task.answer,
        random_label=_draw(task, pools.random, seed, RANDOM_LABEL),
        matched_token=(matched := _draw(task, pools.matched, seed, MATCHED_TOKEN)),
        length_difference=int(task.n_tokens[matched] - task.n_tokens[task.answer]),
    )


def _draw(task: ScoredTask, pool: Floats, seed: int, condition: str) -> int:
    eligible = np.flatnonzero(pool[task.answer]).tolist()
    return smallest_hash(eligible, seed, task.task_id, condition, text=lambda i: task.options[i])
