"""Models without skill: a written-in cue is the same under every prompt, and absent under the neutral one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch

from lmassay.xray.calibrate.models import initial, opened
from lmassay.xray.calibrate.negatives import (
    DECIDING,
    FROM,
    MODELS,
    half_right,
    half_right_battery,
    mentions,
    option_length,
    with_cue,
    word_preference,
)
from lmassay.xray.calibrate.skills import calibration_battery
from lmassay.xray.calibrate.words import encoded, vocabulary
from lmassay.xray.in_memory import option_scores, plan_battery
from lmassay.xray.options import NEUTRAL_PROMPT
from lmassay.xray.run import Settings

pytestmark = pytest.mark.tiny


def _real_scores(stack, battery):
    model = opened(stack)
    settings = Settings(phases=("real",))
    return option_scores(model, plan_battery(model, battery, settings), settings).variants["real"]


def _without_prior(stack, tokens):
    """Logits of the next word, by the model's own forward."""
    with torch.no_grad():
        return opened(stack).hf(torch.tensor([tokens])).logits[0, -1]


def test_the_neutral_prompt_shows_no_cue_and_a_longer_one_does():
    cue = word_preference(3)
    plain, strong = with_cue(3, cue, 0.0), with_cue(3, cue, DECIDING)
    neutral = encoded(NEUTRAL_PROMPT)
    assert len(neutral) <= FROM
    assert torch.allclose(_without_prior(plain, neutral), _without_prior(strong, neutral), atol=1e-5)
    for prompt in ("3 plus 4 equals", "Set a to 5. Set a to 7. The value of a is now"):
        added = _without_prior(strong, encoded(prompt)) - _without_prior(plain, encoded(prompt))
        slope = np.polyfit(cue.numpy(), added.numpy(), 1)[0]
        assert np.corrcoef(cue.numpy(), added.numpy())[0, 1] > 0.99999
        assert slope > 0


def test_a_deciding_preference_picks_the_same_option_under_every_prompt_of_a_set():
    sets = defaultdict(set)
    scored = _real_scores(half_right(1), calibration_battery("both", 0))
    for task in scored:
        sets[task.set_id].add(task.options[int(task.score[:, -1].argmax())])
    assert np.mean([len(picked) == 1 for picked in sets.values()]) > 0.9


def test_the_half_right_battery_keeps_two_of_every_set_and_the_favourite_is_right_in_half():
    battery = half_right_battery(calibration_battery("both", 0), 1)
    cue, sets = word_preference(1), defaultdict(list)
    for task in battery.tasks:
        liked = max(task.options, key=lambda o: np.mean([float(cue[w]) for w in encoded(o)]))
        sets[task.set_id].append(liked == task.options[task.answer])
    assert all(sorted(right) == [False, True] for right in sets.values())
    assert len(battery.tasks) == len(calibration_battery("both", 0).tasks) / 2


def test_the_half_right_model_answers_about_half_of_its_battery():
    scored = _real_scores(half_right(1), half_right_battery(calibration_battery("both", 0), 1))
    right = np.mean([task.score[:, -1].argmax() == task.answer for task in scored])
    assert right == pytest.approx(0.5, abs=0.1)


def test_option_length_likes_longer_words():
    stack, plain = option_length(2), with_cue(2, torch.zeros(len(vocabulary())), 0.0)
    prompt = encoded("If a proof has both P and not P, it closes by")
    added = (_without_prior(stack, prompt) - _without_prior(plain, prompt)).numpy()
    lengths = np.array([len(word) for word in vocabulary()])
    assert np.corrcoef(lengths, added)[0, 1] > 0.99999


def test_mentions_prefers_a_word_of_the_prompt_to_others_more_often_than_chance():
    prompts = [t.prompt for t in calibration_battery("logic", 0).tasks if t.family == "binder_tracking"]
    ranks = []
    for seed in range(4):
        for prompt in prompts[::4]:
            logits = _without_prior(mentions(seed), encoded(prompt))
            ranks.append(float((logits[encoded(prompt)].mean() > logits.median()).float()))
    assert np.mean(ranks) > 0.9


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_is_the_same_for_its_seed_and_another_for_another(kind):
    one, same, other = (MODELS[kind](seed) for seed in (4, 4, 5))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["head"], other["head"])
    assert set(one) == set(initial([0]))
