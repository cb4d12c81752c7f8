"""What known-answer models are asked: nothing tested is trained on, and every word has an id."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from lmassay.measures.intervals import FEW
from lmassay.xray.calibrate.skills import (
    BOTH,
    GROUPS,
    OTHER_QUESTIONS,
    calibration_battery,
    held_out,
    other_questions,
    training,
)
from lmassay.xray.calibrate.words import LARGEST_NUMBER, encoded, vocabulary, word_tokenizer
from lmassay.xray.options import NEUTRAL_PROMPT
from lmassay.xray.semantics_break import TAILS, break_prompt

SEEDS = (0, 5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("group", GROUPS)
def test_no_tested_set_is_trained_on_or_decides_when_training_ends(group, seed):
    tested, unseen, trained = calibration_battery(group, seed).tasks, held_out(group, seed), training(group, seed)
    sets = [{task.set_id for task in part} for part in (tested, unseen, trained)]
    assert not sets[0] & sets[1]
    assert not sets[0] & sets[2]
    assert not sets[1] & sets[2]
    # By the numbers in the prompt too: another naming of a tested question is a tested question.
    numbers = [{(t.template, *re.findall(r"\d+", t.prompt)) for t in part if "closure" not in t.family}
               for part in (tested, unseen, trained)]  # fmt: skip
    assert not numbers[0] & numbers[2]
    assert not numbers[1] & numbers[2]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_s_battery_has_enough_templates_for_a_verdict_and_whole_sets(group):
    tasks = calibration_battery(group, 0).tasks
    assert len({task.template for task in tasks}) >= FEW
    answers = Counter((task.set_id, task.options[task.answer]) for task in tasks)
    assert set(answers.values()) == {1}
    assert set(Counter(task.set_id for task in tasks).values()) == {4}


def test_a_groups_tested_sets_are_part_of_both():
    both = {task.set_id for task in calibration_battery(BOTH, 3).tasks}
    assert both == {t.set_id for group in ("logic", "compute") for t in calibration_battery(group, 3).tasks}


@pytest.mark.parametrize("seed", SEEDS)
def test_operands_stay_in_the_stated_range(seed):
    """The first operand has eight values from the smallest of its wording on, all within 2 to 13; the second 2 to 25."""
    for task in (*training("compute", seed), *calibration_battery("compute", seed).tasks):
        numbers = [int(n) for n in re.findall(r"\d+", task.prompt)]
        constant = {"collect": 1, "add_twice": 10}.get(task.template.split("/")[1])
        if constant is not None:
            numbers.remove(constant)
        assert len(numbers) == 2
        assert all(2 <= n <= 25 for n in numbers)
        assert min(numbers) <= 13


def test_every_word_a_model_meets_has_an_id_of_its_own_and_broken_prompts_too():
    for seed in SEEDS:
        battery = calibration_battery(BOTH, seed)
        texts = [break_prompt(task, seed).prompt for task in battery.tasks]
        texts += [task.prompt for task in (*battery.tasks, *training(BOTH, seed), *held_out(BOTH, seed))]
        texts += [option for task in battery.tasks for option in task.options]
        texts += [f"{prompt} {answer}" for prompt, answer in other_questions(BOTH, seed)]
        assert not [text for text in (*texts, NEUTRAL_PROMPT) if 0 in encoded(text)]
    assert str(LARGEST_NUMBER) in vocabulary()


def test_the_tokenizer_and_the_training_read_a_text_alike():
    tokenizer = word_tokenizer()
    texts = [task.prompt for task in calibration_battery(BOTH, 0).tasks] + ["Expand (q + 4)^12. Then: q = 3q + 1; it's"]
    for text in texts:
        assert tokenizer.encode(text, add_special_tokens=False) == encoded(text)
        assert tokenizer.encode(text) == encoded(text)


def test_other_questions_are_not_those_of_the_control():
    words = {word.lower() for tail in TAILS for word in tail.split()} - {"the", "is"}
    assert not words & {*OTHER_QUESTIONS, *OTHER_QUESTIONS.values()}
    pairs = other_questions("logic", 0)
    assert pairs
    assert not [prompt for prompt, _ in pairs if any(prompt.lower().endswith(tail) for tail in TAILS)]
    for prompt, answer in pairs:
        noun = re.search(r"[Tt]he (\w+) is$", prompt)[1]
        assert OTHER_QUESTIONS[noun] == answer
