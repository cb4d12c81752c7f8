"""Whether a real model's liking for an option gives its answer away before any question is asked."""

from __future__ import annotations

import pytest
from battery_oracles import answer_ranks
from scipy.stats import chisquare

from lmassay.models.engines import score
from lmassay.models.tree import Continuations
from lmassay.xray.batteries import load_battery
from lmassay.xray.options import NEUTRAL_PROMPT, PromptStyle

pytestmark = pytest.mark.real


@pytest.mark.parametrize("name", ["core50", "heldout54"])
def test_the_answer_has_every_rank_among_its_options_by_neutral_score(smollm, name):
    style = PromptStyle(smollm.tokens)
    battery = load_battery(name)
    options = sorted({option for task in battery.tasks for option in task.options})
    tokenised = [style.tokenise(NEUTRAL_PROMPT, [option]) for option in options]
    scored = score(smollm, [Continuations(t.context, t.options) for t in tokenised])
    neutral = {option: float(targets[0].mean(0)[-1]) for option, targets in zip(options, scored, strict=True)}
    ranks, n = answer_ranks(battery, neutral.__getitem__)
    assert n == len(battery.tasks)
    assert chisquare(ranks).pvalue > 0.05
