"""The prompt-swap control: whose prompt is borrowed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.xray.batteries import load_battery
from lmassay.xray.prompt_swap import Swap, swap_prompts
from lmassay.xray.task import Battery, Task

BATTERIES = {name: load_battery(name) for name in ("core50", "heldout54", "balanced:20")}


def task(
    name: str, prompt: str, answer: str, template: str = "t", family: str = "f", set_id: str | None = None
) -> Task:
    options = ("w", "x", "y", "z")
    return Task(name, family, prompt, options, options.index(answer), template, set_id)


def battery(*tasks: Task) -> Battery:
    return Battery("b", "1", tasks)


@pytest.mark.parametrize("name", BATTERIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_built_in_task_borrows_another_prompt_with_another_answer(name: str, seed: int) -> None:
    tasks = {t.id: t for t in BATTERIES[name].tasks}
    swaps = swap_prompts(BATTERIES[name], seed)
    assert swaps.keys() == tasks.keys()
    for own, swap in swaps.items():
        assert swap.donor is not None
        donor, mine = tasks[swap.donor], tasks[own]
        assert swap.prompt == donor.prompt != mine.prompt
        assert donor.options[donor.answer] != mine.options[mine.answer]
        assert donor.family == mine.family
        assert ("swap_within_family" in swap.flags) == (donor.template != mine.template)


def test_a_task_of_a_set_borrows_inside_its_set() -> None:
    tasks = {t.id: t for t in BATTERIES["balanced:20"].tasks}
    for own, swap in swap_prompts(BATTERIES["balanced:20"], 0).items():
        assert swap.donor is not None
        assert tasks[swap.donor].set_id == tasks[own].set_id
        assert swap.flags == frozenset()


def test_the_set_comes_before_the_template_and_the_template_before_the_family() -> None:
    near = task("near", "p1", "x", set_id="s")
    alike = [task(f"alike{k}", f"q{k}", "y") for k in range(20)]
    far = [task(f"far{k}", f"r{k}", "z", template="u") for k in range(20)]
    own = task("own", "p0", "w", set_id="s")
    for seed in range(10):
        assert swap_prompts(battery(own, near, *alike, *far), seed)["own"].donor == "near"
        in_template = swap_prompts(battery(own, *alike, *far), seed)["own"]
        assert (in_template.donor or "").startswith("alike")
        assert in_template.flags == frozenset()
        in_family = swap_prompts(battery(own, *far), seed)["own"]
        assert (in_family.donor or "").startswith("far")
        assert in_family.flags == {"swap_within_family"}


def test_tasks_without_a_set_are_no_set_together() -> None:
    own, stranger = task("own", "p", "w", family="g"), task("stranger", "q", "x", family="h", template="u")
    assert swap_prompts(battery(own, stranger), 0)["own"].donor is None


def test_a_donor_with_the_same_answer_is_passed_over() -> None:
    own, same, other = task("own", "p", "w"), task("same", "q", "w"), task("other", "r", "x", template="u")
    for seed in range(10):
        swap = swap_prompts(battery(own, same, other), seed)["own"]
        assert (swap.donor, swap.flags) == ("other", {"swap_within_family"})


def test_a_donor_with_the_same_prompt_is_passed_over() -> None:
    own, same = task("own", "p", "w"), task("same", "p", "x")
    assert swap_prompts(battery(own, same), 0)["own"] == Swap(None, None, frozenset({"no_swap_partner"}))


def test_a_task_alone_in_its_family_has_no_partner_and_says_so() -> None:
    own, stranger = task("own", "p", "w", family="g"), task("stranger", "q", "x", family="h")
    stranger = replace(stranger, template="u")
    swaps = swap_prompts(battery(own, stranger), 0)
    assert set(swaps.values()) == {Swap(None, None, frozenset({"no_swap_partner"}))}


def test_the_seed_decides_among_equals() -> None:
    tasks = [task("own", "p", "w"), *(task(f"d{k}", f"q{k}", "x") for k in range(5))]
    assert {swap_prompts(battery(*tasks), seed)["own"].donor for seed in range(60)} == {f"d{k}" for k in range(5)}


@given(st.randoms(use_true_random=False), st.sampled_from(sorted(BATTERIES)))
@settings(max_examples=25)
def test_neither_the_order_of_tasks_nor_of_options_changes_a_swap(rng: Random, name: str) -> None:
    tasks = []
    for t in BATTERIES[name].tasks:
        order = list(range(4))
        rng.shuffle(order)
        tasks.append(replace(t, options=tuple(t.options[i] for i in order), answer=order.index(t.answer)))
    rng.shuffle(tasks)
    assert swap_prompts(battery(*tasks), 0) == swap_prompts(BATTERIES[name], 0)


@given(st.sets(st.sampled_from([t.id for t in BATTERIES["balanced:20"].tasks])))
@settings(max_examples=25)
def test_leaving_out_tasks_changes_a_swap_only_where_they_were_the_donor(gone: set[str]) -> None:
    before = swap_prompts(BATTERIES["balanced:20"], 0)
    kept = [t for t in BATTERIES["balanced:20"].tasks if t.id not in gone]
    after = swap_prompts(battery(*kept), 0)
    for t in kept:
        if before[t.id].donor not in gone:
            assert after[t.id] == before[t.id]
