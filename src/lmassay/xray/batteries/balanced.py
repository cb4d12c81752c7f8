"""`balanced:N`: N tasks per family in counterbalanced sets, drawn from all templates alike."""

from __future__ import annotations

import numpy as np

from lmassay.errors import LmassayError
from lmassay.seeds import derive, digest
from lmassay.xray.batteries import algebra, arithmetic, binders, closure, constraints, theorems
from lmassay.xray.batteries.paraphrases import paraphrase_groups
from lmassay.xray.batteries.template import SET_SIZE, Template
from lmassay.xray.task import Battery, Task

VERSION = "1"
TEMPLATES: dict[str, tuple[Template, ...]] = {
    module.FAMILY: module.TEMPLATES for module in (arithmetic, algebra, binders, theorems, closure, constraints)
}


def ceilings() -> dict[str, int]:
    """Family -> tasks it can pose without repeating a canonical form."""
    return {family: SET_SIZE * sum(t.n_sets for t in templates) for family, templates in TEMPLATES.items()}


def balanced(n: int, *, seed: int = 0) -> Battery:
    """`n` tasks per family; a smaller battery of the same seed is part of a larger one.

    Raises
    ------
    LmassayError
        ``bad-request`` when `n` is not a positive multiple of four, or beyond a family's ceiling.
    """
    if n < SET_SIZE or n % SET_SIZE:
        raise LmassayError(
            "bad-request",
            f"balanced:{n}: tasks come in counterbalanced sets of {SET_SIZE}",
            f"ask for a multiple of {SET_SIZE}, such as balanced:{max(SET_SIZE, n // SET_SIZE * SET_SIZE)}",
        )
    for family, ceiling in ceilings().items():
        if n > ceiling:
            raise LmassayError(
                "bad-request",
                f"balanced:{n}: {family} has {ceiling} tasks that differ",
                f"ask for at most balanced:{min(ceilings().values())}",
            )
    tasks = [task for family in TEMPLATES for task in _family(family, n // SET_SIZE, seed)]
    return Battery(f"balanced:{n}", VERSION, tuple(tasks), paraphrase_groups())


def _family(family: str, n_sets: int, seed: int) -> list[Task]:
    """Sets dealt to the templates in turn; one that is used up is passed over."""
    orders = {
        t.name: np.random.default_rng(derive(seed, f"{family}/{t.name}", "order of sets")).permutation(t.n_sets)
        for t in TEMPLATES[family]
    }
    tasks: list[Task] = []
    turn = 0
    while len(tasks) < n_sets * SET_SIZE:
        for template in TEMPLATES[family]:
            if turn < template.n_sets and len(tasks) < n_sets * SET_SIZE:
                tasks += posed_set(template, int(orders[template.name][turn]), seed)
        turn += 1
    return tasks


def posed_set(template: Template, index: int, seed: int) -> list[Task]:
    """One counterbalanced set of a template as tasks."""
    questions = template.pose(index, seed)
    set_id = f"{template.family}/{template.name}/{index}"
    options = tuple(sorted((q.answer for q in questions), key=lambda o: digest(seed, set_id, "option order", o)))
    return [
        Task(
            id=f"{set_id}/{k}",
            family=template.family,
            prompt=question.prompt,
            options=options,
            answer=options.index(question.answer),
            template=f"{template.family}/{template.name}",
            set_id=set_id,
            flags=prefix_flag(options),
        )
        for k, question in enumerate(questions)
    ]


def prefix_flag(options: tuple[str, ...]) -> tuple[str, ...]:
    """``option_prefix_of_other`` where the text of one option begins another's."""
    nested = any(a != b and b.startswith(a) for a in options for b in options)
    return ("option_prefix_of_other",) if nested else ()
