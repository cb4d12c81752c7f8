"""The built-in batteries: what they hold, and that every answer is the right one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import permutations, product

import pytest
from battery_oracles import (
    algebra_holds,
    answer_ranks,
    constraint_options,
    entailed,
    run_binder,
    size_of_number,
    theorem_options,
)
from scipy.stats import chisquare

from lmassay.errors import LmassayError
from lmassay.xray.batteries import battery_names, load_battery
from lmassay.xray.batteries.balanced import TEMPLATES, ceilings
from lmassay.xray.batteries.closure import CONCEPTS, CONFUSABLE
from lmassay.xray.batteries.constraints import PEOPLE, THEMES
from lmassay.xray.batteries.paraphrases import paraphrase_groups
from lmassay.xray.batteries.solve import solve
from lmassay.xray.task import FAMILY_GROUPS, Battery, Task

FIXED = ("core50", "heldout54")
COMPUTING = ("arithmetic_transform", "algebra_simplification", "binder_tracking")
EXAMPLES = {
    "Start with 7. Add 5. The result is": "12",
    "Simplify x minus x. The result is": "0",
    "Let a = 3, b = a + 2. Then b equals": "5",
    "If A implies B, B implies C, then A implies": "C",
    "If a proof has both P and not P, it closes by": "contradiction",
}


@pytest.fixture(scope="module")
def large() -> Battery:
    return load_battery("balanced:1000")


def by_id(battery: Battery) -> dict[str, Task]:
    return {task.id: task for task in battery.tasks}


def right(task: Task) -> str:
    return task.options[task.answer]


class TestFixedBatteries:
    def test_core50_has_its_families_in_order(self) -> None:
        families = [t.family for t in load_battery("core50").tasks]
        counts = {"arithmetic_transform": 24, "algebra_simplification": 14}
        counts |= dict.fromkeys(("binder_tracking", "theorem_pattern", "proof_closure"), 4)
        assert families == [family for family, n in counts.items() for _ in range(n)]

    def test_heldout54_has_nine_of_each_of_six_families(self) -> None:
        assert Counter(t.family for t in load_battery("heldout54").tasks) == dict.fromkeys(FAMILY_GROUPS, 9)

    def test_the_five_example_prompts_stand_verbatim_with_their_answers(self) -> None:
        answers = {t.prompt: right(t) for t in load_battery("core50").tasks}
        assert {prompt: answers[prompt] for prompt in EXAMPLES} == EXAMPLES

    def test_ids_are_family_template_number(self) -> None:
        battery = load_battery("core50")
        assert "theorem_transitive_01" in by_id(battery)
        for name in FIXED:
            for task in load_battery(name).tasks:
                assert re.fullmatch(r"(arithmetic|algebra|binder|theorem|closure|constraint)_[a-z_]+_\d\d", task.id)

    def test_the_two_share_no_prompt(self) -> None:
        prompts = [t.prompt for name in FIXED for t in load_battery(name).tasks]
        assert len(set(prompts)) == len(prompts) == 104

    def test_the_held_out_closures_ask_for_other_concepts(self) -> None:
        asked = [{right(t) for t in load_battery(n).tasks if t.family == "proof_closure"} for n in FIXED]
        assert not asked[0] & asked[1]
        assert {"introduction", "case analysis"} <= asked[1]

    @pytest.mark.parametrize("name", FIXED)
    def test_what_the_answer_looks_like_does_not_give_it_away(self, name: str) -> None:
        battery = load_battery(name)
        index = [sum(t.answer == k for t in battery.tasks) for k in range(4)]
        length, n_length = answer_ranks(battery, len)
        size, n_size = answer_ranks(battery, size_of_number)
        assert n_length == len(battery.tasks)
        assert n_size >= 20
        assert chisquare(index).pvalue > 0.05
        assert chisquare(length).pvalue > 0.05
        assert chisquare(size).pvalue > 0.05

    def test_a_constant_rank_would_be_noticed(self) -> None:
        tasks = tuple(Task(str(k), "f", "p", ("1", "2", "3", "4"), 3, "t") for k in range(20))
        counts, _ = answer_ranks(Battery("b", "1", tasks), size_of_number)
        assert counts.tolist() == [0, 0, 0, 20]
        assert chisquare(counts).pvalue < 0.05


class TestEveryBuiltInTask:
    @pytest.mark.parametrize("name", [*FIXED, "balanced:40"])
    def test_is_well_formed(self, name: str) -> None:
        battery = load_battery(name)
        assert len(by_id(battery)) == len(battery.tasks)
        for task in battery.tasks:
            assert len(set(task.options)) == 4
            assert all(option == option.strip() != "" for option in task.options)
            assert task.prompt == task.prompt.strip()
            assert task.template.startswith(f"{task.family}/")
            nested = any(a != b and b.startswith(a) for a, b in product(task.options, repeat=2))
            assert ("option_prefix_of_other" in task.flags) == nested


def pilots(family: str) -> list[Task]:
    return [t for name in FIXED for t in load_battery(name).tasks if t.family == family]


class TestAnswers:
    """Each answer again, from the prompt's text."""

    @pytest.mark.parametrize("family", COMPUTING)
    def test_numbers_solve_to_the_labelled_answer_and_to_no_other(self, large: Battery, family: str) -> None:
        tasks = [*pilots(family), *(t for t in large.tasks if t.family == family)]
        unsolved = {t.template for t in tasks if solve(t.template, t.prompt) != right(t)}
        assert unsolved == ({"algebra_simplification/identity"} if family == "algebra_simplification" else set())

    def test_algebra_agrees_at_several_points_with_its_answer_only(self, large: Battery) -> None:
        for task in [*pilots("algebra_simplification"), *large.tasks[1000:2000]]:
            assert task.family == "algebra_simplification"
            assert [o for o in task.options if algebra_holds(task.prompt, o)] == [right(task)]

    def test_bindings_run_to_the_answer(self, large: Battery) -> None:
        told = 0
        for task in [*pilots("binder_tracking"), *large.tasks[2000:3000]]:
            assert task.family == "binder_tracking"
            held = run_binder(task.prompt)
            told += held is None
            assert held is None or str(held) == right(task)
        assert told < 250

    def test_theorems_follow_and_nothing_else_does(self, large: Battery) -> None:
        for task in large.tasks[3000:4000]:
            assert task.family == "theorem_pattern"
            assert theorem_options(task.prompt, task.options) == [right(task)]

    def test_pilot_theorems_follow_and_nothing_else_does(self) -> None:
        spoken = {
            "If M is the parent of N, then N is": "the child of M",
            "If S is north of T, then T is": "south of S",
            "If P contains Q, then Q is": "inside P",
            "If H is parallel to K, then K is parallel to": "H",
        }
        for task in pilots("theorem_pattern"):
            if re.search("implies|entails", task.prompt):
                assert entailed(task.prompt, task.options) == [right(task)]
            elif task.prompt in spoken:
                assert spoken.pop(task.prompt) == right(task)
            else:
                assert theorem_options(task.prompt, task.options) == [right(task)]
        assert not spoken

    def test_constraints_leave_the_answer_alone(self, large: Battery) -> None:
        for task in large.tasks[5000:]:
            assert task.family == "logical_constraint"
            assert constraint_options(task.prompt, task.options) == [right(task)]

    def test_pilot_constraints_leave_the_answer_alone(self) -> None:
        worlds = list(product((False, True), repeat=2))
        seats = [s for s in permutations(("Gus", "Kim", "Leo")) if s.index("Gus") < s.index("Kim") < s.index("Leo")]
        left = {
            "either_01": {"P" if p else "Q" for p, q in worlds if (p or q) and not p},
            "either_02": {"Y" if x else "X" for x, y in worlds if x != y and x},
            "both_01": {
                "RST"[k]
                for *rs, t in product((False, True), repeat=3)
                if all(rs) and not t
                for k in range(3)
                if not (*rs, t)[k]
            },
            "if_only_01": {"comes" if ida else "stays away" for ida, jon in worlds if (jon or not ida) and not jon},
            "seats_01": {s[1] for s in seats},
        }
        for task in pilots("logical_constraint"):
            possible = left.pop(task.id.removeprefix("constraint_"), None)
            if possible is None:
                assert constraint_options(task.prompt, task.options) == [right(task)]
            else:
                assert possible & set(task.options) == possible == {right(task)}
        assert not left

    def test_a_closing_step_is_named_by_the_one_state_in_the_prompt(self, large: Battery) -> None:
        states = {state: concept for concept, told in CONCEPTS.items() for state in told}
        assert len(states) == sum(len(told) for told in CONCEPTS.values())
        for task in [*pilots("proof_closure"), *large.tasks[4000:5000]]:
            assert {states[s] for s in states if f" has {s}" in task.prompt} == {right(task)}

    def test_no_closure_set_offers_two_steps_that_could_be_confused(self, large: Battery) -> None:
        for task in large.tasks[4000:5000]:
            assert not any(a in task.options and b in task.options for a, b in CONFUSABLE)


NAMES = {
    "arithmetic_transform": r"(?!)",
    "algebra_simplification": r"(?<![A-Za-z])[a-z](?![A-Za-z])",
    "binder_tracking": rf"(?<![A-Za-z])[a-z](?![A-Za-z])|\b(?:{'|'.join(PEOPLE)})\b",
    "theorem_pattern": r"\b[A-Z]\b",
    "proof_closure": r"(?!)",
    "logical_constraint": rf"\b(?:{'|'.join([*PEOPLE, *(v for values in THEMES.values() for v in values)])})\b",
}


def canonical(family: str, prompt: str) -> str:
    """Names in order of appearance; numbers are values here, and stay."""
    seen: dict[str, str] = {}
    return re.sub(NAMES[family], lambda m: seen.setdefault(m.group(), f"#{len(seen)}"), prompt)


class TestBalanced:
    def test_n_tasks_of_each_of_six_families(self, large: Battery) -> None:
        assert Counter(t.family for t in large.tasks) == dict.fromkeys(FAMILY_GROUPS, 1000)

    def test_at_least_16_templates_a_family_all_in_use(self) -> None:
        used: dict[str, set[str]] = defaultdict(set)
        for task in load_battery("balanced:100").tasks:
            used[task.family].add(task.template)
        assert set(used) == set(FAMILY_GROUPS)
        assert min(map(len, used.values())) >= 16

    def test_each_option_of_a_set_is_the_answer_of_exactly_one(self, large: Battery) -> None:
        sets: dict[str | None, list[Task]] = defaultdict(list)
        for task in large.tasks:
            sets[task.set_id].append(task)
        assert None not in sets
        assert len(sets) == 1500
        for members in sets.values():
            assert len({t.template for t in members}) == len({t.options for t in members}) == 1
            assert sorted(right(t) for t in members) == sorted(members[0].options)

    @pytest.mark.parametrize("family", FAMILY_GROUPS)
    def test_no_canonical_form_stands_twice_in_a_whole_family(self, family: str) -> None:
        forms: set[str] = set()
        n = 0
        for template in TEMPLATES[family]:
            for index in range(template.n_sets):
                asked = template.pose(index, 0)
                assert len({q.answer for q in asked}) == 4
                forms |= {canonical(family, q.prompt) for q in asked}
                n += 4
        assert n == len(forms) == ceilings()[family]

    def test_every_family_reaches_a_thousand(self) -> None:
        assert min(ceilings().values()) >= 1000

    def test_beyond_the_lowest_ceiling_is_refused_with_the_ceiling(self) -> None:
        family, ceiling = min(ceilings().items(), key=lambda item: item[1])
        assert len(load_battery(f"balanced:{ceiling}").tasks) == 6 * ceiling
        with pytest.raises(LmassayError, match=f"{family} has {ceiling} tasks") as caught:
            load_battery(f"balanced:{ceiling + 4}")
        assert caught.value.code == "bad-request"

    @pytest.mark.parametrize(("n", "offered"), [(0, 4), (1, 4), (6, 4), (101, 100), (999, 996)])
    def test_n_that_is_no_multiple_of_four_is_refused_with_one_that_is(self, n: int, offered: int) -> None:
        with pytest.raises(LmassayError, match=rf"multiple of 4, such as balanced:{offered}$") as caught:
            load_battery(f"balanced:{n}")
        assert caught.value.code == "bad-request"

    @pytest.mark.parametrize("seed", [0, 1])
    def test_a_smaller_battery_is_part_of_a_larger(self, seed: int) -> None:
        small, large = (set(load_battery(f"balanced:{n}", seed=seed).tasks) for n in (100, 1000))
        assert small < large

    def test_the_seed_decides_what_is_asked(self) -> None:
        hashes = [load_battery("balanced:16", seed=seed).content_hash for seed in (0, 0, 1)]
        assert hashes[0] == hashes[1] != hashes[2]

    def test_where_the_answer_stands_is_uniform(self, large: Battery) -> None:
        assert chisquare(list(Counter(t.answer for t in large.tasks).values())).pvalue > 0.05

    def test_no_prompt_stands_twice(self, large: Battery) -> None:
        assert len({t.prompt for t in large.tasks}) == len(large.tasks)


class TestParaphrases:
    def test_eight_groups_of_five_wordings(self) -> None:
        groups = paraphrase_groups()
        assert [len(g.wordings) for g in groups] == [5] * 8
        assert len({w for g in groups for w in g.wordings}) == 40

    def test_the_base_wording_is_the_core50_tasks_own_with_its_answer(self) -> None:
        tasks = by_id(load_battery("core50"))
        for group in paraphrase_groups():
            base = tasks[group.base_task_id]
            assert (group.wordings[0], group.family) == (base.prompt, base.family)
            assert group.options[group.answer] == right(base)
            assert len(set(group.options)) == 4

    def test_the_published_addition_wordings_are_among_them(self) -> None:
        (addition,) = [g for g in paraphrase_groups() if g.id == "addition"]
        assert addition.wordings[:4] == (
            "7 plus 5 equals",
            "What is 7 + 5? The answer is",
            "Begin with 7 and add 5. You get",
            "Calculate 7 + 5. The result is",
        )

    @pytest.mark.parametrize("name", [*FIXED, "balanced:4"])
    def test_every_built_in_battery_brings_them(self, name: str) -> None:
        assert load_battery(name).paraphrases == paraphrase_groups()


class TestNames:
    @pytest.mark.parametrize(
        ("spec", "hint"),
        [
            ("core5", "core50"),
            ("heldout", "heldout54"),
            ("balanced", "balanced:N"),
            ("?!", "known: balanced:N, core50"),
        ],
    )
    def test_an_unknown_name_gets_the_nearest(self, spec: str, hint: str) -> None:
        with pytest.raises(LmassayError, match=hint) as caught:
            load_battery(spec)
        assert caught.value.code == "unknown-battery"

    @pytest.mark.parametrize("count", ["-4", "4.0", "many", "²", "٤"])
    def test_a_count_that_is_no_number_is_refused(self, count: str) -> None:
        with pytest.raises(LmassayError, match="whole number"):
            load_battery(f"balanced:{count}")

    def test_another_package_can_register_a_battery(self, monkeypatch: pytest.MonkeyPatch) -> None:
        theirs = Battery("theirs", "1", (Task("a", "f", "p", ("x", "y"), 0, "t"),))

        class Entry:
            name = "theirs"

            def load(self) -> object:
                return lambda: theirs

        monkeypatch.setattr("lmassay.xray.batteries.entry_points", lambda group: [Entry()])
        assert load_battery("theirs") is theirs
        assert battery_names() == ("core50", "heldout54", "balanced:N", "theirs")
