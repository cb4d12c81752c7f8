"""The semantics-break control: what is perturbed, what stays, and what is flagged."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.xray.batteries import load_battery
from lmassay.xray.batteries.solve import solve
from lmassay.xray.semantics_break import SHIFTED_FAMILIES, TAILS, WORDS, break_prompt
from lmassay.xray.task import Task

SEEDS = range(40)


def task(prompt: str, family: str = "arithmetic_transform", template: str = "mine", **fields: object) -> Task:
    made = Task("mine", family, prompt, ("12", "13", "14", "15"), 0, template)
    return replace(made, **fields)


def broken(prompt: str, seed: int = 0, **fields: object) -> str:
    return break_prompt(task(prompt, **fields), seed).prompt


class TestNumbers:
    @given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6), st.integers(0, 99))
    def test_every_number_grows_by_two_to_five_and_nothing_else_changes(self, numbers: list[int], seed: int) -> None:
        prompt = "Start with " + " then ".join(map(str, numbers)) + " and stop"
        after = broken(prompt, seed)
        moved = [int(d) - n for d, n in zip(re.findall(r"\d+", after), numbers, strict=True)]
        assert set(moved) <= {2, 3, 4, 5}
        assert re.sub(r"\d+", "N", after) == re.sub(r"\d+", "N", prompt)

    def test_each_number_has_a_draw_of_its_own(self) -> None:
        moved = {tuple(int(d) for d in re.findall(r"\d+", broken("0 plus 0 equals", seed))) for seed in SEEDS}
        assert {a for a, _ in moved} == {b for _, b in moved} == {2, 3, 4, 5}
        assert any(a != b for a, b in moved)

    @pytest.mark.parametrize(
        ("prompt", "pattern"),
        [
            ("Simplify 2x plus 3x. The result is", r"Simplify [4-7]x plus [5-8]x\. The result is"),
            ("Simplify x^2 times x", r"Simplify x\^[4-7] times x"),
            ("Expand 3(x + 4)", r"Expand [5-8]\(x \+ ([6-9])\)"),
            ("Let x1 = 3, A2 = x1 + 1. Then A2 equals", r"Let x1 = [5-8], A2 = x1 \+ [3-6]\. Then A2 equals"),
            ("v1.2 and t_3 hold 5", r"v1\.2 and t_3 hold (7|8|9|10)"),
            ("Add 1.5 to 2.25", r"Add [3-6]\.5 to [4-7]\.25"),
            ("Add 1 to -3.", r"Add [3-6] to -[5-8]\."),
            ("Spend 1,000 of 20,999", r"Spend 1,00[2-5] of 21,00[1-4]"),
            ("Seven and two", r"(Nine|Ten|Eleven|Twelve) and (four|five|six|seven)"),
            ("zero and SIX", r"(two|three|four|five) and (Eight|Nine|Ten|Eleven)"),
            ("twenty is nineteen", r"2[2-5] is 2[1-4]"),
            ("eighteen", r"(twenty|2[1-3])"),
            ("twenty-one plus 2", r"twenty-one plus [4-7]"),
            ("Someone has 2 tentacles", r"Someone has [4-7] tentacles"),
        ],
    )
    def test_what_counts_as_a_number(self, prompt: str, pattern: str) -> None:
        for seed in SEEDS:
            assert re.fullmatch(pattern, broken(prompt, seed)), broken(prompt, seed)

    def test_a_shifted_word_stays_a_word_up_to_twenty(self) -> None:
        for value, word in enumerate(WORDS):
            for seed in SEEDS:
                after = broken(f"Add {word} to it", seed).split()[1]
                shown = WORDS.index(after) if after in WORDS else int(after)
                assert shown - value in {2, 3, 4, 5}
                assert (after in WORDS) == (shown <= 20)

    def test_a_prompt_without_a_number_loses_its_tail_and_says_so(self) -> None:
        for family in SHIFTED_FAMILIES:
            made = break_prompt(task("Simplify x minus x. The result is", family), 0)
            assert made.flags == {"tail_rule"}
            assert re.fullmatch(r"Simplify x minus x\. The \w+ is", made.prompt)

    def test_digits_without_end_are_no_number(self) -> None:
        assert break_prompt(task("1" * 6000 + " is"), 0).flags == {"tail_rule"}


class TestTails:
    @pytest.mark.parametrize(
        ("prompt", "head"),
        [
            ("P holds. Then it closes by", "P holds."),
            ("Is P so? Then it closes by", "Is P so?"),
            ("P; Q; so it closes by", "P; Q;"),
            ("If A implies B, B implies C, then A implies", "If A implies B, B implies C,"),
            ("A holds, so B. Then, one sees, C", "A holds, so B."),
            ("What does the proof that has nothing close by", "What does the proof that"),
            ("Version 1.5 of the proof closes by", "Version 1.5 of"),
            ("Given A, what follows?", "Given A,"),
            ("So it closes by", ""),
            ("by", ""),
        ],
    )
    def test_what_follows_the_last_mark_is_replaced(self, prompt: str, head: str) -> None:
        for seed in SEEDS:
            after = broken(prompt, seed, family="proof_closure")
            assert after.startswith(head)
            tail = after.removeprefix(head)
            assert tail.strip().lower() in TAILS
            assert tail.startswith(" ") == bool(head)

    def test_a_new_sentence_starts_with_a_capital(self) -> None:
        assert re.search(r"\. The \w+ is$", broken("P holds. Then it closes by", family="proof_closure"))
        assert re.search(r", the \w+ is$", broken("If P, then it closes by", family="proof_closure"))

    def test_the_menu_is_used_in_full(self) -> None:
        assert {broken("by", seed, family="proof_closure").lower() for seed in SEEDS} == set(TAILS)

    @pytest.mark.parametrize("family", ["theorem_pattern", "proof_closure", "logical_constraint"])
    def test_it_is_the_logic_families_own_rule(self, family: str) -> None:
        assert break_prompt(task("If 2 of them hold, then it is", family), 0).flags == frozenset()

    def test_a_family_of_the_users_gets_it_flagged(self) -> None:
        made = break_prompt(task("Of 3 towns, the capital is", "capitals"), 0)
        assert made.flags == {"tail_rule"}
        assert made.prompt.startswith("Of 3 towns, the ")


class TestOwnAndStillTrue:
    def test_a_broken_prompt_of_the_tasks_own_wins(self) -> None:
        made = break_prompt(task("Add 3 to 4. You get", broken_prompt="Add blue to 4. You get"), 0)
        assert (made.prompt, made.flags) == ("Add blue to 4. You get", {"own_broken_prompt"})

    def test_a_label_that_stays_true_is_flagged_and_only_then(self) -> None:
        subtract = Task(
            "t", "arithmetic_transform", "9 minus 4 equals", ("5", "6", "7", "8"), 0, "arithmetic_transform/minus"
        )
        seen = set()
        for seed in SEEDS:
            made = break_prompt(subtract, seed)
            a, b = map(int, re.findall(r"\d+", made.prompt))
            assert ("answer_still_true" in made.flags) == (a - b == 5)
            seen.add(a - b == 5)
        assert seen == {True, False}

    @pytest.mark.parametrize("name", ["core50", "heldout54", "balanced:40"])
    def test_a_built_in_task_asks_something_else_or_is_flagged(self, name: str) -> None:
        for t in load_battery(name).tasks:
            made = break_prompt(t, 0)
            assert made.prompt != t.prompt
            if t.family in SHIFTED_FAMILIES and "tail_rule" not in made.flags:
                now = solve(t.template, made.prompt)
                assert now is not None
                assert (now == t.options[t.answer]) == ("answer_still_true" in made.flags)

    @pytest.mark.parametrize("prompt", ["Add up to 3", "Divide 7 by 0", "Add " + "9" * 6000 + " and 2"])
    @pytest.mark.parametrize("template", ["arithmetic_transform/add", "arithmetic_transform/divide"])
    def test_a_users_prompt_under_a_template_of_ours_does_no_harm(self, prompt: str, template: str) -> None:
        assert break_prompt(task(prompt, template=template), 0).prompt != prompt
        assert solve(template, "no number here") is None


class TestInvariance:
    @given(st.permutations(range(4)), st.sampled_from(range(50)), st.integers(0, 5))
    def test_the_order_of_options_changes_nothing(self, order: list[int], at: int, seed: int) -> None:
        t = load_battery("core50").tasks[at]
        moved = replace(t, options=tuple(t.options[i] for i in order), answer=order.index(t.answer))
        assert break_prompt(moved, seed) == break_prompt(t, seed)

    @given(st.text(max_size=60), st.sampled_from(["arithmetic_transform", "proof_closure", "mine"]))
    def test_any_text_gives_a_prompt_without_a_trailing_space(self, prompt: str, family: str) -> None:
        after = broken(prompt.rstrip(), family=family)
        assert after
        assert after == after.rstrip()
