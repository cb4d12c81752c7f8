"""The two relabelling controls: another option plays the answer, at no cost in forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lmassay.seeds import smallest_hash

if TYPE_CHECKING:
    from lmassay.xray.scored import Ints, ScoredTask

RANDOM_LABEL, MATCHED_TOKEN = "random_label", "matched_token"


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

    @property
    def exact(self) -> bool:
        """Whether the matched option is as long as the answer."""
        return self.length_difference == 0


def matched_pool(n_tokens: Ints, role: int) -> list[int]:
    """Options other than `role` whose token length is nearest to its own."""
    distance = np.abs(n_tokens - n_tokens[role])
    others = [i for i in range(len(n_tokens)) if i != role]
    nearest = min(int(distance[i]) for i in others)
    return [i for i in others if distance[i] == nearest]


def labels_of(task: ScoredTask, seed: int) -> Labels:
    """Draw the two control labels by hash, so that neither option order nor other tasks matter."""
    return Labels(
        real=task.answer,
        random_label=_draw(task, [i for i in range(len(task.options)) if i != task.answer], seed, RANDOM_LABEL),
        matched_token=(matched := _draw(task, matched_pool(task.n_tokens, task.answer), seed, MATCHED_TOKEN)),
        length_difference=int(task.n_tokens[matched] - task.n_tokens[task.answer]),
    )


def _draw(task: ScoredTask, eligible: Sequence[int], seed: int, condition: str) -> int:
    return smallest_hash(eligible, seed, task.task_id, condition, text=lambda i: task.options[i])
