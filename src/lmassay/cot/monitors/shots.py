"""Which training examples a monitor is shown with their answers: balanced, by hash, never of the item's question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.monitors.asking import SHOT_CHARS, Asking
from lmassay.cot.monitors.prompts import right_reply, visible_chars
from lmassay.cot.monitors.templates import DISTRIBUTION, Template
from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.seeds import derive

if TYPE_CHECKING:
    from lmassay.cot.task import SplitData

#: Candidates looked at for each shot wanted; more than any item can rule out.
_POOL = 12


@dataclass(frozen=True, slots=True)
class Shot:
    """One example with its answer.

    Attributes
    ----------
    example : VisibleExample
    group : int
        Its question.
    reply : str
        The reply that would have been right.
    """

    example: VisibleExample
    group: int
    reply: str


class Shots:
    """Shots for any item, of which nearly all items get the same: what is said before an item can then be cached.

    Parameters
    ----------
    train : SplitData
        Training rows.

    Raises
    ------
    LmassayError
        ``bad-request`` where there are not enough short examples of a class, or no answers that could be shown.
    """

    def __init__(self, train: SplitData, template: Template, asking: Asking) -> None:
        self.n = asking.shots
        self._sides = _sides(train, template, asking)

    def of(self, example: VisibleExample, group: int) -> tuple[Shot, ...]:
        """The shots for one item: other questions, other prompts, alternating classes, no question twice.

        Raises
        ------
        LmassayError
            ``bad-request`` when too few are left.
        """
        own = example.text("prompt", "message")
        chosen: list[Shot] = []
        used = {group}
        for i in range(self.n):
            side = self._sides[i % len(self._sides)]
            fitting = (
                s for s in side if s.group not in used and (not own or s.example.text("prompt", "message") != own)
            )
            shot = next(fitting, None)
            if shot is None:
                raise LmassayError(
                    "bad-request",
                    f"{self.n} examples are to be shown and only {i} of other questions can be",
                    "ask for fewer --shots",
                )
            used.add(shot.group)
            chosen.append(shot)
        return tuple(chosen)

    @property
    def keys(self) -> list[str]:
        """Keys of the shots that items usually get, for the record."""
        nowhere = VisibleExample(-1, ())
        return [str(s.example.key) for s in self.of(nowhere, -1)]


def _sides(train: SplitData, template: Template, asking: Asking) -> tuple[list[Shot], ...]:
    """Candidates of each class, in the order of a hash; in regression one list."""
    rows = np.flatnonzero(train.usable)
    keys = train.examples.keys[rows]
    order = rows[np.argsort([derive(asking.seed, str(k), "monitor shot") for k in keys.tolist()])]
    distributions = _distributions(train) if template.kind == DISTRIBUTION else None
    classes: Sequence[float | None] = (None,) if template.kind == DISTRIBUTION else (1.0, 0.0)
    if derive(asking.seed, template.task, "monitor first shot") % 2:
        classes = classes[::-1]
    sides = tuple(_side(train, order, wanted, template, asking, distributions) for wanted in classes)
    if not all(sides):
        raise LmassayError(
            "bad-request",
            f"task {template.task} has no training example of every class under {SHOT_CHARS:,} characters to show",
            "leave --shots out",
        )
    return sides


def _side(
    train: SplitData,
    order: NDArray[np.int64],
    wanted: float | None,
    template: Template,
    asking: Asking,
    distributions: Sequence[Mapping[str, float] | None] | None,
) -> list[Shot]:
    found: list[Shot] = []
    questions: set[int] = set()
    for row in order.tolist():
        if (wanted is not None and train.y[row] != wanted) or int(train.groups[row]) in questions:
            continue
        distribution = distributions[row] if distributions is not None else None
        if distributions is not None and not distribution:
            continue
        example = train.examples[row]
        if visible_chars(example) > SHOT_CHARS:
            continue
        reply = right_reply(template, asking, float(train.y[row]), dict(distribution) if distribution else None)
        found.append(Shot(example, int(train.groups[row]), reply))
        questions.add(int(train.groups[row]))
        if len(found) >= asking.shots + _POOL:
            break
    return found


def _distributions(train: SplitData) -> list[Mapping[str, float] | None]:
    """(n,) the answer distribution of each training row."""
    if "answer_distribution" not in train.hidden.columns:
        raise LmassayError(
            "bad-request",
            "the data has no answer_distribution, so there is no answer that could be shown",
            "leave --shots out, or add the column",
        )
    return [_as_mapping(cell) for cell in train.hidden["answer_distribution"].to_list()]


def _as_mapping(cell: Any) -> Mapping[str, float] | None:
    if not cell:
        return None
    if isinstance(cell, Mapping):
        return {str(k): float(v) for k, v in cell.items() if v is not None}
    return {str(part["key"]): float(part["value"]) for part in cell}
