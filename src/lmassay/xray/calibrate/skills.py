"""What the known-answer models are asked: templates small models learn, and which of their sets are tested.

The templates are the battery's own. Where numbers are computed, both operands come from stated ranges; nothing that is
tested is trained on: a tested set's operands never occur in its own wording, under whatever names.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from lmassay.seeds import derive
from lmassay.xray.batteries.balanced import TEMPLATES, posed_set
from lmassay.xray.batteries.numbers import SPAN
from lmassay.xray.batteries.paraphrases import paraphrase_groups
from lmassay.xray.batteries.template import SET_SIZE, Template
from lmassay.xray.semantics_break import TAIL_FAMILIES, TAILS, break_prompt
from lmassay.xray.task import Battery, Task

LOGIC, COMPUTE, BOTH = "logic", "compute", "both"
GROUPS = (LOGIC, COMPUTE, BOTH)
#: Logic: read off which variable was set to what, and name what closes a proof. Compute: add.
WORDINGS: dict[str, dict[str, tuple[str, ...]]] = {
    LOGIC: {
        "binder_tracking": ("let_copy", "set_copy", "set_again", "set_before", "code_swap"),
        "proof_closure": ("closes", "finished", "ends", "closed", "done", "rule"),
    },
    COMPUTE: {
        "arithmetic_transform": ("add", "plus", "increase", "sum", "more_than", "add_twice"),
        "algebra_simplification": ("add_like", "constants", "powers_multiply", "collect"),
    },
}
#: Values of the first operand, from the smallest of its wording on; the second has all of its own (2 to 25).
FIRST_VALUES = 8
#: Sets of each template that are tested, and that decide when training ends.
TESTED, HELD_OUT = 2, 2
#: Choices of names (variables, letters) a training prompt comes in.
NAMINGS = 3
#: Other questions, none of the control's, and what is answered to them: a skilled model answers what it is asked, and
#: does not name what closes the proof whatever is asked.
OTHER_QUESTIONS = {
    "tree": "green", "wall": "white", "bread": "warm", "road": "long", "coat": "blue", "tea": "hot", "hill": "steep",
    "lamp": "bright", "cup": "empty", "shoe": "brown", "cloud": "grey", "bell": "loud",
}  # fmt: skip
#: Other questions each training state comes with.
OTHERS_EACH = 2


def chosen_templates(group: str) -> list[Template]:
    """The group's templates, in a fixed order."""
    parts = (LOGIC, COMPUTE) if group == BOTH else (group,)
    return [
        next(t for t in TEMPLATES[family] if t.name == name)
        for part in parts
        for family, names in WORDINGS[part].items()
        for name in names
    ]


def n_usable(template: Template) -> int:
    """Sets of a template within the stated operand ranges."""
    return min(template.n_sets, FIRST_VALUES * SPAN // SET_SIZE)


def _dealt(template: Template, seed: int) -> list[int]:
    """The template's sets in the order they are dealt: some tested, some held out, the others trained on.

    By the template's own name, so that its tested sets are the same whatever group a model is of.
    """
    purpose = f"{template.family}/{template.name}"
    order = np.random.default_rng(derive(seed, purpose, "calibration split")).permutation(n_usable(template))
    return [int(index) for index in order]


@cache
def calibration_battery(group: str, seed: int) -> Battery:
    """The battery a model is measured on: its own group's tested sets, and the paraphrase groups.

    Models without skill are measured on both groups'.
    """
    return Battery(f"calibration:{group}:{seed}", "1", _posed(group, seed, slice(0, TESTED)), paraphrase_groups())


@cache
def held_out(group: str, seed: int) -> tuple[Task, ...]:
    """Tasks that are neither trained on nor tested: they decide when a model is skilled."""
    return _posed(group, seed, slice(TESTED, TESTED + HELD_OUT))


@cache
def training(group: str, seed: int) -> tuple[Task, ...]:
    """All other sets, in several namings; a wording without names comes once."""
    seen: dict[str, Task] = {}
    for naming in range(NAMINGS):
        for task in _posed(group, seed, slice(TESTED + HELD_OUT, None), derive(seed, str(naming), "naming")):
            seen.setdefault(task.prompt, task)
    return tuple(seen.values())


def _posed(group: str, seed: int, dealt: slice, naming: int | None = None) -> tuple[Task, ...]:
    names = seed if naming is None else naming
    return tuple(
        task
        for template in chosen_templates(group)
        for index in _dealt(template, seed)[dealt]
        for task in posed_set(template, index, names)
    )


@cache
def other_questions(group: str, seed: int) -> tuple[tuple[str, str], ...]:
    """Training prompts with another question in place of their own, and its answer.

    For the families whose broken prompt loses its question; where numbers are shifted the question stays.
    """
    found = []
    for task in training(group, seed):
        if task.family in TAIL_FAMILIES:
            broken = break_prompt(task, seed).prompt
            head = broken[: -len(next(tail for tail in TAILS if broken.lower().endswith(tail)))]
            nouns = sorted(OTHER_QUESTIONS, key=lambda noun: derive(seed, task.id, f"other question {noun}"))
            for noun in nouns[:OTHERS_EACH]:
                the = "the" if broken[len(head)].islower() else "The"
                found.append((f"{head}{the} {noun} is", OTHER_QUESTIONS[noun]))
    return tuple(found)
