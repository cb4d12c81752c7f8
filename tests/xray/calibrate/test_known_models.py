"""A stack of models is so many models, and each is the Hugging Face model it is exported to."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from lmassay.xray.calibrate.models import WIDTH, hugging_face, initial, opened
from lmassay.xray.calibrate.skills import calibration_battery, training
from lmassay.xray.calibrate.training import log_probs, packed, right_answers, shuffled_answers, shuffled_tasks, train
from lmassay.xray.calibrate.words import encoded

PAIRS = right_answers(calibration_battery("both", 1).tasks[::9])


def _hugging_face_means(model, pairs):
    """Mean log-probability of each continuation, one sequence at a time, by the model's own forward."""
    found = []
    for prompt, continuation in pairs:
        ids, target = encoded(prompt), encoded(continuation)
        with torch.no_grad():
            table = torch.log_softmax(model(torch.tensor([[*ids, *target]])).logits[0].double(), -1)
        found.append(sum(float(table[len(ids) - 1 + i, word]) for i, word in enumerate(target)) / len(target))
    return torch.tensor(found)


@pytest.mark.tiny
def test_what_is_trained_is_the_model_that_is_exported():
    stack = initial([3, 4])
    for name in stack:
        # Off their starting values, so that a dropped bias or norm weight shows.
        stack[name] = stack[name] + 0.1 * torch.randn(stack[name].shape, generator=torch.Generator().manual_seed(1))
    ours = log_probs(stack, packed(PAIRS).for_each(2))
    for index in range(2):
        assert torch.allclose(ours[index], _hugging_face_means(hugging_face(stack, index), PAIRS).float(), atol=1e-5)


def test_a_model_is_drawn_from_its_own_seed_whoever_stands_beside_it():
    alone, beside = initial([8]), initial([7, 8])
    assert all(torch.equal(alone[name][0], beside[name][1]) for name in alone)
    assert not torch.equal(beside["head"][0], beside["head"][1])


@pytest.mark.tiny
def test_an_exported_model_passes_the_self_check_and_keeps_its_untied_head():
    model = opened(initial([0]), name="it")
    assert (model.name, model.n_blocks, model.packing) == ("it", 2, True)
    assert not torch.equal(model.anatomy.head.weight, model.anatomy.embedding.weight)
    assert model.anatomy.head.in_features == WIDTH


def test_exporting_leaves_the_callers_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    hugging_face(initial([0]))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.tiny
def test_models_of_a_stack_train_as_if_alone_even_when_another_one_leaves():
    """The one that leaves first takes its moments along, and the other's stay."""

    def first_leaves(stack):
        return torch.tensor([True, False]) if len(stack["head"]) == 2 else torch.tensor([False])

    together, steps = train([1, 2], [PAIRS, PAIRS], first_leaves, steps=60)
    assert steps == [50, 60]
    alone, _ = train([2], [PAIRS], steps=60)
    short, _ = train([1], [PAIRS], steps=60)
    ours = log_probs(together, packed(PAIRS).for_each(2))[1]
    assert torch.allclose(ours, log_probs(alone, packed(PAIRS).for_each(1))[0], atol=2e-2)
    assert not torch.allclose(together["head"][0], short["head"][0], atol=1e-3)


@pytest.mark.tiny
def test_models_of_a_stack_may_train_on_pairs_of_different_lengths():
    short, long = [("3 plus 4 equals", "7")], [("If a proof has both P and not P, it closes by", "case analysis")]
    together, _ = train([1, 2], [short, long], steps=20)
    for index, pairs in enumerate((short, long)):
        alone, _ = train([index + 1], [pairs], steps=20)
        everyone = packed(pairs)
        ours = log_probs({name: t[index : index + 1] for name, t in together.items()}, everyone.for_each(1))
        assert torch.allclose(ours, log_probs(alone, everyone.for_each(1)), atol=1e-3)


def test_answers_shuffled_over_tasks_are_those_of_the_template_and_right_by_chance_only():
    tasks = training("both", 0)
    by_template = {t.template: Counter() for t in tasks}
    for task in tasks:
        by_template[task.template][task.options[task.answer]] += 1
    # Two tasks drawn from one template at random have the same answer this often.
    chance = np.mean(
        [sum(n * n for n in c.values()) / c.total() ** 2 for c in by_template.values() for _ in range(c.total())]
    )
    right = []
    for seed in range(3):
        dealt = {name: Counter() for name in by_template}
        for task, (prompt, answer) in zip(tasks, shuffled_tasks(tasks, seed), strict=True):
            assert prompt == task.prompt
            dealt[task.template][answer] += 1
            right.append(answer == task.options[task.answer])
        assert dealt == by_template
    assert np.mean(right) == pytest.approx(chance, abs=0.01)


def test_shuffled_answers_are_options_of_the_task_and_the_answer_a_quarter_of_the_time():
    tasks = calibration_battery("both", 0).tasks
    right = n = 0
    for seed in range(20):
        for task, (prompt, option) in zip(tasks, shuffled_answers(tasks, seed), strict=True):
            assert prompt == task.prompt
            assert option in task.options
            right += option == task.options[task.answer]
            n += 1
    assert right / n == pytest.approx(0.25, abs=0.03)
