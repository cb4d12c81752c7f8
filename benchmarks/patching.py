"""Patching against a full forward pass per cell and option, in one run on SmolLM2-135M.

    python benchmarks/patching.py [core50] [--every 8] [--sample 60]

The grid is the run's own: every won internal depth of every condition's known-then-lost tasks, with every block after
it. Ours is timed on every Nth task, the plain way on a sample of those tasks' cells, scaled by their number.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import numpy as np
import torch

from lmassay.models.edits import Replace
from lmassay.models.engines import score
from lmassay.models.language_model import LanguageModel
from lmassay.models.open import open_model
from lmassay.models.patching import Cell, patched_means
from lmassay.models.trace import Batch, trace
from lmassay.models.tree import Continuations
from lmassay.xray.batteries import load_battery
from lmassay.xray.collect import collect
from lmassay.xray.options import PromptStyle
from lmassay.xray.patching import cells_of_task
from lmassay.xray.plan import items_of, plan_run
from lmassay.xray.scores import compute_scores
from work import announce, peak_mb, seconds


def grid(model: LanguageModel, battery: str) -> tuple[list[Continuations], list[list[Cell]]]:
    """Prompts of the tasks with a cell, and their cells."""
    items = items_of(load_battery(battery), ("real",), 0)
    plan = plan_run(items, PromptStyle(model.tokens), "multi-token", context_length=model.context_length)
    wanted = [request for p in plan.items for request in (p.own, p.neutral)]
    values = {
        (request.context, target): tokens.mean(0)
        for request, targets in zip(wanted, score(model, wanted), strict=True)
        for target, tokens in zip(request.targets, targets, strict=True)
    }
    decided = compute_scores(collect(plan, values, model.depths, "multi-token"), seed=0).decided
    own = {p.item.task_id: p.own for p in plan.items}
    cells = {m.task.task_id: cells_of_task(m, model.n_blocks) for m in decided.tasks}
    return [own[t] for t, c in cells.items() if c], [c for c in cells.values() if c]


@torch.inference_mode()
def plain(model: LanguageModel, request: Continuations, cell: Cell, target: tuple[int, ...]) -> float:
    """One cell and option: a clean pass for the source, and a whole pass with the patch."""
    ids = torch.tensor([[*request.context, *target[:-1]]])
    batch = Batch(ids, torch.ones_like(ids), torch.arange(ids.shape[1])[None])
    cols = torch.arange(len(request.context) - 1, ids.shape[1])
    rows = torch.zeros_like(cols)
    source = trace(model, batch, rows, cols, (cell[0],)).states[0]
    logits = trace(model, batch, rows, cols, (), edits=[Replace(f"block.{cell[1]}", rows, cols, source)], logits=True)
    assert logits.logits is not None
    return float(torch.log_softmax(logits.logits, -1)[torch.arange(len(target)), torch.tensor(target)].mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("battery", nargs="?", default="core50")
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--peak", choices=["score", "patch"])
    arguments = parser.parse_args()
    model = open_model("smollm2-135m")
    requests, cells = grid(model, arguments.battery)
    if arguments.peak:
        if arguments.peak == "patch":
            patched_means(model, requests[:: arguments.every], cells[:: arguments.every])
        print(peak_mb())
        return
    announce()
    whole = sum(len(c) * len(r.targets) for r, c in zip(requests, cells, strict=True))
    requests, cells = requests[:: arguments.every], cells[:: arguments.every]
    n = sum(len(c) * len(r.targets) for r, c in zip(requests, cells, strict=True))
    found: list[np.ndarray] = []
    fast = seconds(lambda: found.extend(patched_means(model, requests, cells)))
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(arguments.sample):
        at = int(
            rng.choice(len(requests), p=[len(c) * len(r.targets) / n for r, c in zip(requests, cells, strict=True)])
        )
        drawn.append((at, int(rng.integers(len(cells[at]))), int(rng.integers(len(requests[at].targets)))))
    plains: list[float] = []
    slow = seconds(
        lambda: plains.extend(plain(model, requests[a], cells[a][c], requests[a].targets[o]) for a, c, o in drawn)
    )
    slow *= n / len(drawn)
    gap = max(abs(float(found[a][c, o]) - p) for (a, c, o), p in zip(drawn, plains, strict=True))
    print(f"{arguments.battery}: {len(requests)} tasks, {n} of {whole} cells x options; agreement {gap:.1e} nats")
    print(f"plain {slow:.0f} s, lmassay {fast:.1f} s: {slow / fast:.1f} times faster")
    peaks = [
        float(
            subprocess.run(
                [sys.executable, __file__, arguments.battery, "--every", str(arguments.every), "--peak", what],
                check=True, capture_output=True, text=True,
            ).stdout.splitlines()[-1]
        )
        for what in ("score", "patch")
    ]  # fmt: skip
    print(f"peak {peaks[1]:.0f} MB, of the option scores alone {peaks[0]:.0f} MB: {peaks[1] / peaks[0]:.2f} times")


if __name__ == "__main__":
    main()
