"""The prompt-swap control: a task's options under another task's prompt, so that only this prompt's content is gone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmassay.seeds import smallest_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmassay.xray.task import Battery, Task


@dataclass(frozen=True, slots=True)
class Swap:
    """Whose prompt stands in for a task's own.

    Attributes
    ----------
    prompt, donor : str or None
        None where the battery has no other task to borrow from.
    flags : frozenset of str
        ``swap_within_family`` where the template has no other task, ``no_swap_partner`` where there is none at all.
    """

    prompt: str | None
    donor: str | None
    flags: frozenset[str]


def swap_prompts(battery: Battery, seed: int) -> Mapping[str, Swap]:
    """Task id -> swap: a task of the same set if there is one, else of the template, else of the family.

    A donor whose prompt is the task's own, or whose right answer is too, would leave the content in place and is
    passed over.
    """
    by_set: dict[str | None, list[Task]] = defaultdict(list)
    by_template: dict[str, list[Task]] = defaultdict(list)
    by_family: dict[str, list[Task]] = defaultdict(list)
    for task in battery.tasks:
        by_set[task.set_id].append(task)
        by_template[task.template].append(task)
        by_family[task.family].append(task)
    swaps = {}
    for task in battery.tasks:
        pools = (
            (by_set[task.set_id] if task.set_id is not None else [], frozenset[str]()),
            (by_template[task.template], frozenset[str]()),
            (by_family[task.family], frozenset({"swap_within_family"})),
        )
        swaps[task.id] = Swap(None, None, frozenset({"no_swap_partner"}))
        for pool, flags in pools:
            donors = [other for other in pool if _differs(task, other)]
            if donors:
                donor = smallest_hash(donors, seed, task.id, "prompt_swap", text=lambda other: other.id)
                swaps[task.id] = Swap(donor.prompt, donor.id, flags)
                break
    return swaps


def _differs(task: Task, other: Task) -> bool:
    return other.prompt != task.prompt and other.options[other.answer] != task.options[task.answer]
