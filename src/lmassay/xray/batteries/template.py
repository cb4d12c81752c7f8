"""Templates: a wording whose answers are computed, posed in counterbalanced fours."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lmassay.seeds import digest

#: Tasks of one counterbalanced set, and options of every built-in task.
SET_SIZE = 4


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and its computed answer.

    Attributes
    ----------
    names : tuple of str
        Symbols and names in the prompt that stand for anything: another choice of them is the same question.
    """

    prompt: str
    answer: str
    names: tuple[str, ...] = ()

    @property
    def canonical(self) -> str:
        """The prompt with its names replaced in order of appearance; numbers stay, since the answer depends on them."""
        if not self.names:
            return self.prompt
        order: dict[str, str] = {}
        pattern = (
            r"(?<![A-Za-z])(?:" + "|".join(map(re.escape, sorted(self.names, key=len, reverse=True))) + r")(?![A-Za-z])"
        )
        return re.sub(pattern, lambda m: order.setdefault(m.group(), f"<{len(order)}>"), self.prompt)


@dataclass(frozen=True, slots=True)
class Template:
    """One wording of one family.

    Attributes
    ----------
    n_sets : int
        Counterbalanced sets it can pose without repeating a canonical form: its true ceiling.
    pose : callable
        ``pose(set index, names seed) -> four questions`` whose answers are distinct and serve as each other's options.
    """

    family: str
    name: str
    n_sets: int
    pose: Callable[[int, int], tuple[Question, ...]]


def shuffled(items: list[str], seed: int, purpose: str) -> list[str]:
    """The items in the order of their hashes."""
    return sorted(items, key=lambda item: digest(seed, item, purpose))


def rotated(items: list[str], by: int) -> list[str]:
    """The items, starting `by` places later."""
    by %= len(items)
    return items[by:] + items[:by]
