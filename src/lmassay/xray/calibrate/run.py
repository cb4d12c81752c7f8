"""The calibration: many models of known skill through the suite, each one's result kept, and the rates of all."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmassay.errors import LmassayError
from lmassay.seeds import derive
from lmassay.storage.atomic import write_json
from lmassay.storage.runs import claimed
from lmassay.xray.calibrate import negatives
from lmassay.xray.calibrate.measured import ModelResult, measured
from lmassay.xray.calibrate.rates import FIGURES, Rate, goal, rates_of
from lmassay.xray.calibrate.skills import (
    BOTH,
    FIRST_VALUES,
    GROUPS,
    calibration_battery,
    held_out,
    other_questions,
    training,
)
from lmassay.xray.calibrate.training import (
    SKILLED,
    accuracy,
    right_answers,
    shuffled_answers,
    shuffled_tasks,
    train,
)

SUITE = "xray-calibrate"
#: Raised whenever models, training or batteries change: results of two recipes are not mixed in one folder.
RECIPE = 1
RESULT, MODELS = "calibration.json", "models"
#: Models trained on answers that are not the prompt's, by how the answers are shuffled.
SHUFFLES = {"shuffled_tasks": shuffled_tasks, "shuffled_answers": shuffled_answers}
SHUFFLED = "shuffled_tasks"
#: Neither skilled nor without signal: of every part of the models reported apart, this many are of the kind.
APART = {"mentions": 5, "shuffled_answers": 3}
NEGATIVES = tuple(kind for kind in negatives.MODELS if kind not in APART)
#: Of every part of the positives this many are of the group; who needs both skills takes longest to learn them.
SKILLS = {"logic": 2, "compute": 2, "both": 1}
#: Of the negatives that are not trained, this many of every part are of the kind.
PARTS = {kind: 2 if kind == "untrained" else 1 for kind in NEGATIVES}
#: Models trained as one stack, and constructed models of one unit of work.
STACK, CONSTRUCTED = 6, 20
#: Steps of training on shuffled answers: about what skill takes.
SHUFFLED_STEPS = 400
#: Batteries the models are dealt to.
BATTERIES = 8

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many models of each part, and the seed of all.

    Attributes
    ----------
    positives : int
        Over the three groups of skill.
    negatives : int
        Untrained and cue-following, over their kinds.
    shuffled : int
        Trained with answers shuffled over the tasks of a template.
    apart : int
        Models that read something off the prompt though none is skilled.
    """

    positives: int = 102
    negatives: int = 400
    shuffled: int = 24
    apart: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.positives, self.negatives, self.shuffled, self.apart) < 0 or self.seed < 0:
            raise LmassayError("bad-request", "numbers of models and --seed are not negative", "see --help")
        if not self.positives + self.negatives + self.shuffled + self.apart:
            raise LmassayError("bad-request", "no model to calibrate on", "ask for some --positives or --negatives")


@dataclass(frozen=True, slots=True)
class Unit:
    """Models made and measured together."""

    kind: str
    indices: tuple[int, ...]
    battery_seed: int
    seed: int

    def seed_of(self, index: int) -> int:
        """Of one model's weights and training."""
        return derive(self.seed, f"{self.kind}/{index}", "calibration model")


def units_of(counts: Counts) -> list[Unit]:
    """All models in units; trained ones first, since they take longest."""
    units = [
        *_dealt(SKILLS, counts.positives, counts.seed),
        *_dealt({SHUFFLED: 1}, counts.shuffled, counts.seed),
        *_dealt(PARTS, counts.negatives, counts.seed),
        *_dealt(APART, counts.apart, counts.seed),
    ]
    return sorted(units, key=lambda unit: unit.kind not in (*GROUPS, *SHUFFLES))


def _dealt(parts: Mapping[str, int], n: int, seed: int) -> Iterator[Unit]:
    """`n` models over the kinds in proportion, the first kinds taking what is left over."""
    turns = [kind for kind, times in parts.items() for _ in range(times)]
    for kind in parts:
        mine = sum(turns[place % len(turns)] == kind for place in range(n))
        size = STACK if kind in (*GROUPS, *SHUFFLES) else CONSTRUCTED
        for number, start in enumerate(range(0, mine, size)):
            battery = seed * BATTERIES + number % BATTERIES
            yield Unit(kind, tuple(range(start, min(start + size, mine))), battery, seed)


def work(unit: Unit) -> list[ModelResult]:
    """Make a unit's models and measure them."""
    if unit.kind in (*GROUPS, *SHUFFLES):
        return _trained(unit)
    build = negatives.MODELS[unit.kind]
    found = []
    for index in unit.indices:
        seed = unit.seed_of(index)
        half = unit.kind == "half_right"
        battery = negatives.half_right_battery(calibration_battery(BOTH, unit.battery_seed), seed) if half else None
        found.append(measured(build(seed), 0, unit.kind, index, BOTH, unit.battery_seed, battery=battery))
    return found


def _trained(unit: Unit) -> list[ModelResult]:
    seeds = [unit.seed_of(index) for index in unit.indices]
    shuffle = SHUFFLES.get(unit.kind)
    group = unit.kind if shuffle is None else BOTH
    tasks, unseen = training(group, unit.battery_seed), held_out(group, unit.battery_seed)
    others = other_questions(group, unit.battery_seed)
    if shuffle is not None:
        wrong = [[*shuffle(tasks, seed), *others] for seed in seeds]
        stack, steps = train(seeds, wrong, steps=SHUFFLED_STEPS)
    else:
        right = [*right_answers(tasks), *others]
        stack, steps = train(seeds, [right] * len(seeds), lambda now: accuracy(now, unseen) >= SKILLED)
    known = accuracy(stack, unseen).tolist()
    return [
        measured(stack, at, unit.kind, index, group, unit.battery_seed, held_out_accuracy=known[at], steps=steps[at])
        for at, index in enumerate(unit.indices)
    ]


def run_calibration(
    counts: Counts, out: Path, *, workers: int = 1, command: str = "", progress: Progress | None = None
) -> dict[str, Any]:
    """Work off all units and write ``calibration.json``; finished models are found again.

    Raises
    ------
    LmassayError
        ``bad-request``, ``run-folder-mismatch``, ``out-folder-unwritable``, ``run-folder-in-use``.
    """
    if workers < 1:
        raise LmassayError("bad-request", f"--workers {workers}: at least one is needed", "leave it out for one")
    units = units_of(counts)
    with claimed(out) as folder:
        folder.bind({"suite": SUITE, "recipe": RECIPE, **asdict(counts)}, command=command)
        (out / MODELS).mkdir(exist_ok=True)
        results = {(m.kind, m.index): m for unit in units for m in _kept(out, unit)}
        total = sum(len(unit.indices) for unit in units)
        if progress is not None:
            progress(len(results), total)
        left = [unit for unit in units if any((unit.kind, i) not in results for i in unit.indices)]
        try:
            for found in _worked(left, workers):
                for result in found:
                    write_json(_path(out, result.kind, result.index), result.to_dict())
                    results[result.kind, result.index] = result
                if progress is not None:
                    progress(len(results), total)
        except KeyboardInterrupt:
            folder.update(status="interrupted")
            raise
        ordered = [results[unit.kind, index] for unit in units for index in unit.indices]
        document = summary(counts, ordered)
        write_json(out / RESULT, document)
        folder.update(status="done")
        return document


def _worked(units: Sequence[Unit], workers: int) -> Iterator[list[ModelResult]]:
    if workers == 1:
        yield from map(work, units)
        return
    # A forked child would inherit torch's threads in whatever state they are.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_one_thread) as pool:
        waiting = [pool.submit(work, unit) for unit in units]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            for future in waiting:
                future.cancel()


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _path(out: Path, kind: str, index: int) -> Path:
    return out / MODELS / f"{kind}-{index:04d}.json"


def _kept(out: Path, unit: Unit) -> Iterator[ModelResult]:
    """Results of the unit that an earlier command finished."""
    for index in unit.indices:
        # One that is not whole is made again.
        with suppress(OSError, ValueError, TypeError):
            yield ModelResult(**json.loads(_path(out, unit.kind, index).read_text(encoding="utf-8")))


def is_skilled(model: ModelResult) -> bool:
    """Whether training ended with the skill; a model that never got it is no positive."""
    return model.held_out_accuracy is not None and model.held_out_accuracy >= SKILLED


def summary(counts: Counts, models: Sequence[ModelResult]) -> dict[str, Any]:
    """Rates by kind and over all positives and negatives, and the goal, from the models' results alone."""
    positives = [m for m in models if m.kind in GROUPS and is_skilled(m)]
    without = [m for m in models if m.kind in (*NEGATIVES, SHUFFLED)]
    parts = {
        "positives": {group: [m for m in positives if m.kind == group] for group in GROUPS},
        "negatives": {kind: [m for m in without if m.kind == kind] for kind in (*NEGATIVES, SHUFFLED)},
        "apart": {kind: [m for m in models if m.kind == kind] for kind in APART},
    }
    pooled = {"positives": rates_of(positives), "negatives": rates_of(without)}
    return {
        "schema_version": 1,
        "suite": SUITE,
        "identity": {"recipe": RECIPE, **asdict(counts)},
        "operands": {"values_of_the_first": FIRST_VALUES},
        "goal": goal(pooled["positives"], pooled["negatives"]),
        "figures": {name: title for name, (_, title) in FIGURES.items()},
        "pooled": {part: _plain(rates) for part, rates in pooled.items()},
        "kinds": {
            part: {kind: _plain(rates_of(found)) | _about(found) for kind, found in kinds.items()}
            for part, kinds in parts.items()
        },
        "n_unskilled": sum(m.kind in GROUPS and not is_skilled(m) for m in models),
        "models": [m.to_dict() for m in models],
    }


def _plain(rates: dict[str, Rate]) -> dict[str, Any]:
    return {name: found.to_dict() for name, found in rates.items()}


def _about(models: Sequence[ModelResult]) -> dict[str, Any]:
    """Means a reader needs to know what kind of models these are."""
    if not models:
        return {"mean_final_accuracy": None, "mean_psi": None}
    return {
        "mean_final_accuracy": sum(m.final_accuracy for m in models) / len(models),
        "mean_psi": sum(m.psi for m in models) / len(models),
    }
