"""Whether a task of a large battery costs what a task of a small one does, in one run on SmolLM2-135M.

    python benchmarks/scale.py [--small 100] [--large 1000] [--sampled 40]

Forward passes: shards of both batteries' plans, spread evenly over each, are scored in turn, so that whatever else
the machine does falls on both; a battery's time is scaled from its sampled shards by their scored pairs. All else
(planning, collecting, statistics, tables) and peak memory: each battery in a process of its own, in which the first
and longest shard is scored and the others are filled with random log-probabilities.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lmassay.models.engines import score
from lmassay.models.language_model import LanguageModel
from lmassay.models.open import open_model
from lmassay.xray.batteries import load_battery
from lmassay.xray.collect import collect
from lmassay.xray.options import PromptStyle
from lmassay.xray.plan import PHASES, RunPlan, items_of, plan_run
from lmassay.xray.scores import compute_scores
from lmassay.xray.tables import write_tables
from work import announce, peak_mb


def planned(model: LanguageModel, n: int) -> tuple[RunPlan, int]:
    battery = load_battery(f"balanced:{n}")
    plan = plan_run(
        items_of(battery, PHASES, 0), PromptStyle(model.tokens), "multi-token", context_length=model.context_length
    )
    return plan, len(battery.tasks)


def pairs_of(plan: RunPlan, shards: range | list[int]) -> int:
    return sum(len(request.targets) for at in shards for request in plan.shards[at])


def timed(model: LanguageModel, sizes: tuple[int, int], sampled: int) -> list[float]:
    """Seconds of forward passes per task of each battery, shards taken in turn."""
    plans = [planned(model, n) for n in sizes]
    chosen = [np.linspace(0, len(p.shards) - 1, min(sampled, len(p.shards))).astype(int).tolist() for p, _ in plans]
    score(model, plans[0][0].shards[0][:1])
    spent = [0.0, 0.0]
    done: list[list[int]] = [[], []]
    for step in range(max(map(len, chosen))):
        for which in (0, 1) if step % 2 else (1, 0):
            if step < len(chosen[which]):
                at = chosen[which][step]
                start = time.perf_counter()
                score(model, plans[which][0].shards[at])
                spent[which] += time.perf_counter() - start
                done[which].append(at)
    found = []
    for (plan, n_tasks), seconds, shards in zip(plans, spent, done, strict=True):
        whole, part = pairs_of(plan, range(len(plan.shards))), pairs_of(plan, shards)
        print(f"{n_tasks} tasks: {len(shards)} of {len(plan.shards)} shards, {part} of {whole} pairs scored")
        found.append(seconds * whole / part / n_tasks)
    return found


def rest(n: int) -> None:
    """All but the forward passes, and the peak: printed as JSON."""
    model = open_model("smollm2-135m")
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    plan, n_tasks = planned(model, n)
    spent = time.perf_counter() - start
    score(model, plan.shards[0])
    before = peak_mb()
    values = {
        (request.context, target): rng.normal(-5, 1, len(model.depths))
        for shard in plan.shards
        for request in shard
        for target in request.targets
    }
    start = time.perf_counter()
    scored = collect(plan, values, model.depths, "multi-token")
    scores = compute_scores(scored, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), scored, scores)
    spent += time.perf_counter() - start
    print(json.dumps({"seconds": spent / n_tasks, "scoring_mb": before, "peak_mb": peak_mb()}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=int, default=100)
    parser.add_argument("--large", type=int, default=1000)
    parser.add_argument("--sampled", type=int, default=40)
    parser.add_argument("--rest", type=int)
    arguments = parser.parse_args()
    if arguments.rest:
        rest(arguments.rest)
        return
    announce()
    sizes = (arguments.small, arguments.large)
    others = []
    for n in sizes:
        said = subprocess.run([sys.executable, __file__, "--rest", str(n)], check=True, capture_output=True, text=True)
        others.append(json.loads(said.stdout.splitlines()[-1]))
        print(f"balanced:{n}: peak {others[-1]['peak_mb']:.0f} MB, {others[-1]['scoring_mb']:.0f} MB after scoring")
    forward = timed(open_model("smollm2-135m"), sizes, arguments.sampled)
    totals = [f + o["seconds"] for f, o in zip(forward, others, strict=True)]
    for n, f, o in zip(sizes, forward, others, strict=True):
        print(f"balanced:{n}: {f * 1e3:.1f} ms a task in forward passes, {o['seconds'] * 1e3:.1f} ms in all else")
    print(f"balanced:{sizes[1]} costs {totals[1] / totals[0]:.3f} times balanced:{sizes[0]} per task")


if __name__ == "__main__":
    main()
