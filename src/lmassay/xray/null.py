"""The exact null: which option plays the answer is drawn anew, jointly inside a counterbalanced set.

Without skill, the prompts of a set are exchangeable: what an option wins under one of them says nothing about whether
it is that one's answer. So every way of dealing the set's answers to its prompts is as likely as the true one. A
preference for an option belongs to the option and is dealt with it, so it may be as strong as it likes. The group is
the symmetric one; in large sets its cyclic subgroup is enough. Outside sets the role is drawn task by task among the
task's options, which assumes that none is likelier a priori.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.xray.scored import Floats, ScoredTask

DRAWS = 10_000
#: Sets of more options than this are rotated instead of permuted: 6! is more assignments than needed.
LARGEST_PERMUTED = 5
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class NullResult:
    """One-sided p-values of the observed means, by statistic.

    Attributes
    ----------
    p : dict of str to float
        ``(1 + #{null >= observed}) / (draws + 1)``.
    n_exchangeable : int
        Tasks that stood in no counterbalanced set, whose options the null takes for exchangeable.
    """

    p: dict[str, float]
    n_exchangeable: int


def role_null(
    tasks: Sequence[ScoredTask],
    by_role: Mapping[str, Sequence[Floats]],
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
) -> NullResult:
    """Compare each statistic's mean over tasks with its mean under random answer roles.

    Parameters
    ----------
    tasks : sequence of ScoredTask
        In any order: units are sorted by name before anything is drawn.
    by_role : mapping of str to sequence of (n_options,) float64
        For each statistic and task, its value with each option in the role of the answer.
    """
    units, n_exchangeable = _units(tasks)
    names = list(by_role)
    observed = {name: sum(float(v[t.answer]) for v, t in zip(by_role[name], tasks, strict=True)) for name in names}
    reached = dict.fromkeys(names, 0)
    by_count: dict[int, list[NDArray[np.int64]]] = defaultdict(list)
    for unit in units:
        by_count[len(unit)].append(unit)
    # (n_units, n_assignments) sums for each statistic, grouped by the number of assignments.
    tables = [
        {name: np.stack([_sums(unit, by_role[name]) for unit in group]) for name in names}
        for _, group in sorted(by_count.items())
    ]
    for start in range(0, draws, _CHUNK):
        n = min(_CHUNK, draws - start)
        totals = {name: np.zeros(n) for name in names}
        for table in tables:
            n_units, n_assignments = next(iter(table.values())).shape
            drawn = rng.integers(n_assignments, size=(n, n_units))
            for name in names:
                totals[name] += table[name][np.arange(n_units), drawn].sum(1)
        for name in names:
            # Sums of the same numbers in another order may differ in the last bits; that is no difference.
            reached[name] += int((totals[name] >= observed[name] - 1e-9).sum())
    return NullResult({name: (1 + reached[name]) / (draws + 1) for name in names}, n_exchangeable)


def _units(tasks: Sequence[ScoredTask]) -> tuple[list[NDArray[np.int64]], int]:
    """Each unit: (n_assignments, n_members, 2) of task index and option index; and how many tasks stand alone."""
    sets: dict[str, list[int]] = defaultdict(list)
    for index, task in enumerate(tasks):
        sets[f"set {task.set_id}" if task.set_id is not None else f"task {task.task_id}"].append(index)
    units = []
    n_alone = 0
    for name in sorted(sets):
        members = sorted(sets[name], key=lambda i: tasks[i].task_id)
        if _is_counterbalanced([tasks[i] for i in members]):
            units.append(_set_assignments(tasks, members))
        else:
            n_alone += len(members)
            units += [np.array([[[i, o]] for o in _by_text(tasks[i])]) for i in members]
    return units, n_alone


def _by_text(task: ScoredTask) -> list[int]:
    """Option indices in the order of their texts, so that a draw names an option and not its place."""
    return sorted(range(len(task.options)), key=lambda i: task.options[i])


def _is_counterbalanced(members: Sequence[ScoredTask]) -> bool:
    """Whether answers can be dealt anew; a set that lost a prompt still deals the answers it has left."""
    texts = {frozenset(t.options) for t in members}
    answers = {t.options[t.answer] for t in members}
    return len(members) > 1 and len(texts) == 1 and len(answers) == len(members)


def _set_assignments(tasks: Sequence[ScoredTask], members: Sequence[int]) -> NDArray[np.int64]:
    # Dealt from the true assignment on, so that it is one of them and they form its orbit.
    answers = [tasks[i].options[tasks[i].answer] for i in members]
    n = len(members)
    ways = (
        list(permutations(range(n)))
        if n <= LARGEST_PERMUTED
        else [tuple((start + i) % n for i in range(n)) for start in range(n)]
    )
    return np.array(
        [[[i, tasks[i].options.index(answers[o])] for i, o in zip(members, way, strict=True)] for way in ways]
    )


def _sums(unit: NDArray[np.int64], values: Sequence[Floats]) -> Floats:
    return np.array([sum(float(values[i][o]) for i, o in way) for way in unit.tolist()])


def sign_flip_p(differences: Floats, rng: np.random.Generator, *, draws: int = DRAWS) -> float:
    """One-sided p of a mean paired difference, its signs flipped at random."""
    nonzero = differences[differences != 0]
    observed = float(nonzero.sum())
    reached = 0
    for start in range(0, draws, _CHUNK):
        n = min(_CHUNK, draws - start)
        signs = rng.integers(2, size=(n, len(nonzero))) * 2 - 1
        reached += int((signs @ nonzero >= observed - 1e-9).sum())
    return (1 + reached) / (draws + 1)
