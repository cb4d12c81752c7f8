"""A score is the mean over an option's own tokens: what a short and a long option are worth beside each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmassay.xray.in_memory import option_scores, plan_battery
from lmassay.xray.run import Settings
from lmassay.xray.task import Battery, Task

pytestmark = pytest.mark.tiny

OPTIONS = ("12", "the result is 12", "x implies y, so the result is not 7", "B", "zero and one and two")
BATTERY = Battery("own", "1", (Task("t0", "sums", "The result", OPTIONS, 0, "t0", None, None, ()),))


def _sums(model, prompt, options):
    """Sum of log-probabilities and number of tokens of each option, one whole pass each, in float64."""
    found = []
    for option in options:
        own, whole = model.tokens.encode(prompt), model.tokens.encode(f"{prompt} {option}")
        start = len(model.tokens.prefix) + len(own)
        ids = torch.tensor([[*model.tokens.prefix, *whole]])
        with torch.inference_mode():
            logs = torch.log_softmax(model.hf(ids).logits[0].double(), -1)
        found.append((sum(float(logs[i - 1, ids[0, i]]) for i in range(start, ids.shape[1])), ids.shape[1] - start))
    return found


def test_a_score_is_divided_by_the_options_own_tokens_and_not_by_the_longest(tiny_model):
    """I-35, I-37: ragged options, in one batch."""
    model = tiny_model("llama")
    scored = option_scores(model, plan_battery(model, BATTERY, Settings(phases=("real",))), Settings(phases=("real",)))
    task = scored.variants["real"][0]
    sums = _sums(model, "The result", OPTIONS)
    assert task.n_tokens.tolist() == [n for _, n in sums]
    assert len(set(task.n_tokens.tolist())) > 2
    means = np.array([total / n for total, n in sums])
    np.testing.assert_allclose(task.logprob[:, -1], means, atol=1e-4)
    # Dividing decides: by the sums the options would stand in another order.
    assert np.argsort(means).tolist() != np.argsort([total for total, _ in sums]).tolist()
    assert np.argsort(task.logprob[:, -1]).tolist() == np.argsort(means).tolist()
