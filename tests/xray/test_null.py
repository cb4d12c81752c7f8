"""The role null keeps its nominal error on models without skill, preferences included."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from made import task

from lmassay.xray.null import role_null, sign_flip_p
from lmassay.xray.psi import psi_by_role
from lmassay.xray.relabel import pools_of

BATTERIES, TASKS, OPTIONS, DEPTHS = 2000, 24, 4, 14
POOLS = pools_of(np.ones(OPTIONS, int))


def _tasks(*, sets: bool):
    names = [f"word {i}" for i in range(OPTIONS)]
    return [
        task(
            np.zeros((OPTIONS, DEPTHS)),
            answer=i % OPTIONS,
            name=f"task {i:03d}",
            options=names,
            set_id=f"set {i // OPTIONS}" if sets else None,
        )
        for i in range(TASKS)
    ]


def _by_role(winners):
    """(tasks, depths) winners -> psi_bar by role, centred."""
    rows = []
    for row in winners:
        by_role = psi_by_role(np.bincount(row, minlength=OPTIONS) / DEPTHS, POOLS)
        rows.append(by_role - by_role.mean())
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sets", "preference"),
    [(False, None), (True, None), (True, (0.7, 0.1, 0.1, 0.1))],
    ids=["single", "sets", "preference"],
)
def test_p_is_below_five_percent_in_three_to_seven_percent_of_batteries(sets, preference):
    tasks = _tasks(sets=sets)
    rng = np.random.default_rng(1)
    below = 0
    for _ in range(BATTERIES):
        # One option wins a run of depths at a time: neighbouring depths agree, as they do in models.
        first = rng.choice(OPTIONS, size=(TASKS, 3), p=preference)
        winners = np.repeat(first, [5, 5, 4], axis=1)
        null = role_null(tasks, {"p": _by_role(winners)}, rng, draws=399)
        below += null.p["p"] < 0.05
    assert 0.03 <= below / BATTERIES <= 0.07


def test_a_preference_outside_sets_breaks_the_null_which_is_why_it_is_announced():
    tasks = _tasks(sets=False)
    rng = np.random.default_rng(2)
    # The preferred word is the right answer more often than chance: preference looks like skill.
    tasks = [t if i % 2 else task(t.score, answer=0, name=t.task_id, options=t.options) for i, t in enumerate(tasks)]
    below = 0
    for _ in range(100):
        winners = rng.choice(OPTIONS, size=(TASKS, DEPTHS), p=(0.7, 0.1, 0.1, 0.1))
        null = role_null(tasks, {"p": _by_role(winners)}, rng, draws=199)
        assert null.n_exchangeable == TASKS
        below += null.p["p"] < 0.05
    assert below > 50


def test_skill_is_found_inside_sets():
    tasks = _tasks(sets=True)
    winners = np.array([[t.answer] * DEPTHS for t in tasks])
    null = role_null(tasks, {"p": _by_role(winners)}, np.random.default_rng(0), draws=999)
    assert null.n_exchangeable == 0
    assert null.p["p"] == 1 / 1000


def test_the_drawn_null_is_the_enumerated_one():
    """Two sets of three: all 36 joint assignments, counted out."""
    names = ["a", "b", "c"]
    tasks = [task(np.zeros((3, 4)), answer=i % 3, name=f"t{i}", options=names, set_id=f"s{i // 3}") for i in range(6)]
    values = [np.random.default_rng(i).normal(size=3) for i in range(6)]
    observed = sum(v[t.answer] for v, t in zip(values, tasks, strict=True))
    sums = [
        sum(values[i][a] for i, a in enumerate((*first, *second)))
        for first, second in itertools.product(itertools.permutations(range(3)), repeat=2)
    ]
    exact = np.mean([s >= observed - 1e-9 for s in sums])
    drawn = role_null(tasks, {"p": values}, np.random.default_rng(0), draws=20_000).p["p"]
    assert drawn == pytest.approx(exact, abs=0.01)


def test_a_preference_common_to_a_set_changes_no_assignment():
    tasks = _tasks(sets=True)
    values = [np.array([0.9, 0.3, 0.2, 0.1])] * TASKS
    assert role_null(tasks, {"p": values}, np.random.default_rng(0), draws=99).p["p"] == 1.0


def test_task_order_changes_no_p():
    tasks = _tasks(sets=True)
    values = [np.random.default_rng(i).normal(size=OPTIONS) for i in range(TASKS)]
    order = np.random.default_rng(5).permutation(TASKS)
    first = role_null(tasks, {"p": values}, np.random.default_rng(0), draws=500)
    second = role_null(
        [tasks[i] for i in order], {"p": [values[i] for i in order]}, np.random.default_rng(0), draws=500
    )
    assert first == second


def test_sign_flips_give_the_enumerated_p():
    differences = np.array([1.0, 1.0, -1.0, 0.0, 1.0])
    exact = np.mean([sum(s) >= 2 for s in itertools.product((1, -1), repeat=4)])
    assert sign_flip_p(differences, np.random.default_rng(0), draws=20_000) == pytest.approx(exact, abs=0.01)


def test_a_set_that_lost_a_prompt_deals_the_answers_it_has_left():
    tasks = [t for i, t in enumerate(_tasks(sets=True)[:4]) if i != 2]
    values = [np.array([0.0, 1.0, 9.0, 4.0]), np.array([2.0, 1.0, 9.0, 0.0]), np.array([0.0, 3.0, 9.0, 1.0])]
    dealt = [sum(v[a] for v, a in zip(values, way, strict=True)) for way in itertools.permutations((0, 1, 3))]
    observed = sum(v[t.answer] for v, t in zip(values, tasks, strict=True))
    null = role_null(tasks, {"p": values}, np.random.default_rng(0), draws=20_000)
    assert null.n_exchangeable == 0
    assert null.p["p"] == pytest.approx(np.mean([d >= observed for d in dealt]), abs=0.01)


def test_a_set_that_is_not_counterbalanced_is_drawn_task_by_task():
    one = _tasks(sets=True)[:4]
    repeated = [*one[:3], task(one[3].score, answer=0, name="task 003", options=one[3].options, set_id=one[3].set_id)]
    null = role_null(repeated, {"p": [np.eye(4)[0]] * 4}, np.random.default_rng(0), draws=99)
    assert null.n_exchangeable == 4


def test_a_large_set_is_rotated_through_its_true_assignment():
    """Seven prompts: seven rotations, each as likely, the true one among them."""
    names = [f"word {i}" for i in range(7)]
    answers = [3, 0, 6, 1, 5, 2, 4]
    tasks = [task(np.zeros((7, 3)), answer=a, name=f"t{i}", options=names, set_id="s") for i, a in enumerate(answers)]
    # Only the true assignment wins everything.
    values = [np.eye(7)[a] for a in answers]
    p = role_null(tasks, {"p": values}, np.random.default_rng(0), draws=20_000).p["p"]
    assert p == pytest.approx(1 / 7, abs=0.01)


def test_statistics_are_rotated_together():
    tasks = _tasks(sets=True)
    values = [np.random.default_rng(i).normal(size=OPTIONS) for i in range(TASKS)]
    twice = role_null(tasks, {"a": values, "b": values}, np.random.default_rng(0), draws=500)
    assert twice.p["a"] == twice.p["b"]
