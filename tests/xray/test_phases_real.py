"""The causal phases on the real bundled model: every cell is there, and some are a whole pass with a plain hook."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from plain_passes import ids_of, read, run

from lmassay.storage.runs import ABLATIONS, OPTIONS, PATCHES
from lmassay.xray.batteries import load_battery
from lmassay.xray.run import Settings, run_xray
from lmassay.xray.task import Battery

pytestmark = [pytest.mark.real, pytest.mark.slow]

#: The shortest task of each of three families.
FAMILIES = ("arithmetic_transform", "binder_tracking", "proof_closure")


@pytest.fixture(scope="module")
def measured(smollm, tmp_path_factory):
    every = load_battery("core50").tasks
    tasks = [t for family in FAMILIES for t in sorted((t for t in every if t.family == family), key=lambda t: len(t.prompt))[:1]]  # fmt: skip
    out = tmp_path_factory.mktemp("real") / "run"
    settings = Settings(phases=("real", "controls", "patching", "ablation"), ablation="zero", prior="clean")
    run_xray(lambda: smollm, Battery("short", "1", tuple(tasks)), out, settings)
    return {t.id: t for t in tasks}, out


def test_every_component_of_every_block_is_ablated_for_every_option(smollm, measured):
    tasks, out = measured
    table = pl.read_parquet(out / ABLATIONS)
    assert table.height == 2 * smollm.n_blocks * sum(len(t.options) for t in tasks.values())
    assert table["score"].is_finite().all()
    options = pl.read_parquet(out / OPTIONS).filter(variant="real", depth="final")
    moved = table.join(options, on=["task_id", "option"], suffix="_whole")
    assert ((moved["score"] - moved["score_whole"]).abs() > 1e-3).mean() > 0.9


@pytest.mark.parametrize(("block", "kind"), [(0, "mlp"), (14, "attention"), (29, "mlp")])
def test_an_ablated_score_is_that_of_a_whole_pass_without_the_component(smollm, measured, block, kind):
    tasks, out = measured
    module = getattr(smollm.anatomy, kind)[block]
    table = pl.read_parquet(out / ABLATIONS).filter(component=f"block.{block}.{kind}")

    def edit():
        return module.register_forward_hook(
            lambda _, __, o: (torch.zeros_like(o[0]), *o[1:]) if isinstance(o, tuple) else torch.zeros_like(o)
        )

    for task in list(tasks.values())[::2]:
        for option, text in enumerate(task.options[:2]):
            context, target = ids_of(smollm, task.prompt, text)
            states, logits = run(smollm, [*context, *target], [edit])
            at = list(range(len(context) - 1, len(context) + len(target) - 1))
            final = read(smollm, states[-1:], logits, at, target)[-1]
            found = table.filter(task_id=task.id, option=option)["logprob"][0]
            assert found == pytest.approx(final, abs=1e-3)


def test_what_was_known_and_lost_is_patched_from_every_won_depth(measured):
    tasks, out = measured
    cells = pl.read_parquet(out / PATCHES)
    scores = pl.read_parquet(out / OPTIONS).filter(variant="real")
    for task in tasks.values():
        own = scores.filter(task_id=task.id).sort("depth_index", "option")
        grid = own["score"].to_numpy().reshape(-1, len(task.options))
        others = np.delete(grid, task.answer, axis=1).max(1)
        won = grid[:, task.answer] - others > 1e-4
        # `final` is the last depth; the last block before it reads the same state.
        lost = won[:-2].any() and not won[-1]
        there = cells.filter(task_id=task.id).height > 0
        assert there or not lost or set(np.flatnonzero(won[:-2])) <= {len(won) - 3}
