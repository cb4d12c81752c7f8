"""At ``final``, sums of token log-probabilities are lm-evaluation-harness's log-likelihoods.

The pins were made by lm_eval 0.4.13 with ``benchmarks/lm_eval_pins.py`` on the same weights.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import pytest

from lmassay.models.engines import score
from lmassay.xray.options import PromptStyle, scorable

pytestmark = pytest.mark.real
PINS = json.loads((Path(__file__).parent / "lm_eval_pins.json").read_text())


def test_final_sums_equal_the_harness(smollm):
    style = PromptStyle(smollm.tokens)
    n = 0
    for prompt, pins in groupby(PINS, key=lambda pin: pin["context"]):
        members = list(pins)
        made = style.tokenise(prompt, [pin["continuation"].strip() for pin in members])
        assert not made.boundary_shift
        (scored,) = score(smollm, [scorable(made, "multi-token").request])
        for pin, tokens in zip(members, scored, strict=True):
            assert tokens[:, -1].sum() == pytest.approx(pin["log_likelihood"], abs=1e-4 * max(1, len(tokens)))
            n += 1
    assert n == len(PINS) == 32
