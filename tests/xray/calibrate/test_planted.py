"""Planted depths: where the answer appears, and where it is lost, is known."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest

from lmassay.storage.parts import Parts
from lmassay.xray import patching
from lmassay.xray.calibrate.models import opened
from lmassay.xray.calibrate.planted import (
    expected_depths,
    right_patch,
    with_appended,
    with_destroying_tail,
    with_prepended,
)
from lmassay.xray.calibrate.shipped import SEED, shipped
from lmassay.xray.calibrate.skills import calibration_battery
from lmassay.xray.in_memory import option_scores, plan_battery
from lmassay.xray.measured import measure
from lmassay.xray.phase import Measuring
from lmassay.xray.run import Settings
from lmassay.xray.trajectories import trajectory_class, wins_of

pytestmark = pytest.mark.tiny
SETTINGS = Settings(phases=("real",))
GROUP = "both"


@cache
def _scored(build, **arguments):
    model = opened(build(shipped(GROUP), **arguments))
    plan = plan_battery(model, calibration_battery(GROUP, SEED), SETTINGS)
    return model, plan, option_scores(model, plan, SETTINGS)


def _as_it_is(stack):
    return stack


def _tasks(build, **arguments):
    return _scored(build, **arguments)[2].variants["real"]


@pytest.mark.parametrize(("prepended", "appended"), [(1, 0), (4, 0), (0, 1), (0, 3)])
def test_identity_blocks_repeat_a_depth_and_change_none(prepended, appended):
    """Every depth of the longer model shows one known depth of the original."""
    longer = _tasks(with_prepended, k=prepended) if prepended else _tasks(with_appended, k=appended)
    shown = expected_depths(shipped(GROUP), prepended=prepended, appended=appended)
    for task, original in zip(longer, _tasks(_as_it_is), strict=True):
        assert task.score.shape[1] == len(shown)
        assert np.abs(task.score - original.score[:, shown]).max() < 1e-5


@pytest.mark.parametrize("k", [1, 4])
def test_no_win_that_depends_on_the_prompt_comes_before_the_planted_block(k):
    """Up to there the lens sees the last word and its place: prompts of a set that share both share the winner."""
    sets = {}
    depends = 0
    for task in _tasks(with_prepended, k=k):
        at = wins_of(task, repeats_final=True).at
        winners = [tuple(task.options[i] for i in np.flatnonzero(column)) for column in at.T]
        assert len(set(winners[: k + 1])) == 1
        # Within a set of one wording over numbers, all prompts are equally long.
        if task.family != "proof_closure":
            first = sets.setdefault(task.set_id, winners)
            assert winners[: k + 1] == first[: k + 1]
            depends += winners[k + 1 :] != first[k + 1 :]
    assert depends > 50


def test_a_destroying_tail_makes_every_skilled_task_known_then_lost():
    """Where the options are single words: the order of their scores is turned round exactly."""
    skilled = {
        before.task_id
        for before in _tasks(_as_it_is)
        if set(before.n_tokens) == {1} and wins_of(before, repeats_final=True).final[before.answer]
    }
    found = {
        task.task_id: trajectory_class(wins_of(task, repeats_final=True), task.answer)
        for task in _tasks(with_destroying_tail)
    }
    assert len(skilled) > 60
    assert {found[task_id] for task_id in skilled} == {"known_then_lost"}


def test_the_one_right_patch_restores_what_the_tail_destroys(tmp_path):
    """From the model's own last block into the reversing one, and nowhere else from there."""
    model, plan, scored = _scored(with_destroying_tail)
    decided = measure(scored, seed=0, span=2, repeats_final=True, labels=None)
    measuring = Measuring(
        model=model,
        plan=plan,
        decided=decided,
        seed=0,
        batch_tokens=1024,
        options={"prior": "edited"},
        parts=lambda columns: Parts(tmp_path, columns),
    )
    table = patching.measure(measuring)
    right = right_patch(shipped(GROUP))
    own = {task.task_id: task for task in _tasks(_as_it_is)}
    n = 0
    for m in decided.tasks:
        original = own[m.task.task_id]
        lost = trajectory_class(m.wins, m.labels.real) == "known_then_lost"
        if not (lost and wins_of(original, repeats_final=True).final[original.answer]):
            continue
        cells = table.filter(pl.col("task_id") == m.task.task_id, pl.col("source_index") == right.source)
        assert cells["target_block"].unique().to_list() == [right.target]
        restored = cells.sort("option")["score"].to_numpy()
        assert np.abs(restored - original.score[:, -1]).max() < 1e-4
        assert int(restored.argmax()) == m.task.answer
        n += 1
    assert n > 60


def test_a_patch_into_a_block_before_the_tail_is_turned_round_all_the_same(tmp_path):
    """Early states carried to the model's own last block meet the reversing block; carried into it they are read."""
    model, plan, scored = _scored(with_destroying_tail)
    decided = measure(scored, seed=0, span=2, repeats_final=True, labels=None)
    measuring = Measuring(model, plan, decided, 0, 1024, {"prior": "edited"}, lambda columns: Parts(tmp_path, columns))
    table = patching.measure(measuring)
    real = {t.task_id: t for t in scored.variants["real"]}
    right = right_patch(shipped(GROUP))
    checked = 0
    for (task_id, source, target), rows in table.group_by("task_id", "source_index", "target_block"):
        task, score = real[task_id], rows.sort("option")["score"].to_numpy()
        if target == right.target:
            assert np.abs(score - task.score[:, source]).max() < 1e-4
        elif target == right.target - 1 and set(task.n_tokens) == {1}:
            # The state is that of `source`, reversed.
            assert np.array_equal(np.argsort(score), np.argsort(-task.score[:, source]))
            checked += 1
    assert checked > 5
