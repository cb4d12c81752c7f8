"""The weights that come with the package answer what they were never trained on."""

from __future__ import annotations

import pytest

from lmassay.xray.calibrate.measured import measured
from lmassay.xray.calibrate.shipped import FOLDER, SEED, made, shipped
from lmassay.xray.calibrate.skills import GROUPS, calibration_battery, held_out
from lmassay.xray.calibrate.training import SKILLED, accuracy


@pytest.mark.tiny
@pytest.mark.parametrize("group", GROUPS)
def test_a_shipped_model_answers_unseen_tasks(group):
    assert float(accuracy(shipped(group), held_out(group, SEED))) >= SKILLED
    assert float(accuracy(shipped(group), calibration_battery(group, SEED).tasks)) > 0.85


@pytest.mark.tiny
@pytest.mark.parametrize("group", GROUPS)
def test_a_shipped_model_is_detected_by_every_figure(group):
    found = measured(shipped(group), 0, group, 0, group, SEED)
    assert found.psi_excess_p == pytest.approx(1 / 10_001)
    assert found.survives
    assert set(found.rows.values()) == {"survives"}
    assert found.xray_score == 4
    assert found.psi > 0


def test_the_weights_stay_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3_000_000


@pytest.mark.tiny
@pytest.mark.slow
def test_the_recipe_makes_a_skilled_model_again():
    stack, steps = made("logic")
    assert steps <= 400
    assert float(accuracy(stack, calibration_battery("logic", SEED).tasks)) > 0.85
