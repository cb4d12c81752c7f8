"""What every benchmark measures: the distinct prompts and options of a battery, as token ids."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lmassay.models.language_model import LanguageModel
from lmassay.models.tree import Continuations
from lmassay.xray.batteries import load_battery
from lmassay.xray.options import PromptStyle
from lmassay.xray.plan import Item, items_of, plan_run

LONG = Path(__file__).parent / "long_prompts.jsonl"
SEED = 0


def requests(
    model: LanguageModel, battery: str, variants: tuple[str, ...] = ("real", "semantics_break")
) -> list[Continuations]:
    """Each distinct context with its distinct options, for the variants' own prompts (no neutral prompt)."""
    chosen = load_battery(str(LONG) if battery == "long" else battery)
    items: list[Item] = [i for i in items_of(chosen, ("real", "controls"), SEED) if i.variant in variants]
    planned = plan_run(items, PromptStyle(model.tokens), "multi-token", context_length=model.context_length)
    distinct: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
    for item in planned.items:
        distinct.setdefault(item.own.context, {}).update(dict.fromkeys(item.own.targets))
    return [Continuations(context, tuple(targets)) for context, targets in distinct.items()]


def pairs(work: list[Continuations]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every distinct prompt x option once."""
    return [(request.context, target) for request in work for target in request.targets]


def seconds(run: Callable[[], object], repeats: int = 1) -> float:
    """The best of `repeats` wall-clock times."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def peak_mb() -> float:
    """Peak resident memory of this process, MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def largest_gap(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """Largest difference of two lists of (n_tokens, n_depths) log-probabilities."""
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


def announce() -> None:
    """Say on what the figures were taken."""
    import torch

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
