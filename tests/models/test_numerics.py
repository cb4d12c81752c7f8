"""The table of what moves scores holds every way of running, judged in the model's own precision only."""

from __future__ import annotations

import math

import pytest
import torch

from lmassay.models import numerics
from lmassay.models.numerics import BATCH_SIZES, PROMPTS, numerics_table
from lmassay.models.open import open_model
from tiny_models import tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny


FEW = PROMPTS[:2]


@pytest.fixture(scope="module", autouse=True)
def few_prompts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "PROMPTS", FEW)
        yield


@pytest.fixture(scope="module")
def table(tiny_model):
    return numerics_table(tiny_model("llama"))


def test_batch_padding_and_engine_move_a_sound_model_by_rounding_only(tiny_model, table):
    model = tiny_model("llama")
    rows = {row.what: row for row in table}
    own = [row for what, row in rows.items() if what.endswith(", float32")]
    assert {row.what for row in own} == {
        *(f"batch of {n}, right padding, float32" for n in BATCH_SIZES),
        "batch of 4, left padding, float32",
        "engine packed, float32",
        "engine cached, float32",
    }
    assert all(row.largest_change < 1e-4 and not row.exceeds for row in own)
    assert all(row.n_decisions == len(FEW) * (model.n_blocks + 1) for row in rows.values())
    assert all(row.changed_decisions == 0 for row in own)


def test_half_precision_is_reported_not_judged_and_leaves_the_model_as_it_was(tiny_model, table):
    half = [row for row in table if "float16" in row.what]
    assert [row.what for row in half] == [
        "one sequence at a time, bfloat16",
        "one sequence at a time, float16",
    ]
    assert half[0].largest_change > half[1].largest_change > 1e-5
    assert not any(row.exceeds for row in half)
    assert tiny_model("llama").dtype == torch.float32


def test_a_family_that_is_not_packed_has_no_packed_row(tiny_model):
    assert not any("packed" in row.what for row in numerics_table(tiny_model("bloom")))


def test_an_overflow_in_float16_is_a_row_and_not_the_end_of_the_table():
    hf = tiny_hf("gpt2")
    with torch.no_grad():
        hf.transformer.h[1].mlp.c_proj.bias.fill_(1e5)
        hf.transformer.h[1].mlp.c_proj.bias[::2] *= -1
    rows = numerics_table(open_model(hf, tokenizer=tiny_tokenizer()))
    assert math.isnan(rows[-1].largest_change)
    assert rows[-1].what.startswith("float16: ")
    assert "NaN or infinite logits" in rows[-1].what
    assert rows[-1].to_dict()["exceeds"] is False
