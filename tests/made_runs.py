"""Finished runs of made-up models over the two fixed batteries, without any model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from lmassay.storage.fingerprint import file_sha256
from lmassay.storage.runs import RUN, SCORES
from lmassay.xray.batteries import load_battery
from lmassay.xray.outside import score_file

#: name -> (how much the answer gains per depth in the logic families, blocks, parameters)
MODELS = {"small": (0.0, 4, 1_000_000), "middle": (0.5, 6, 3_000_000), "large": (1.0, 9, 9_000_000)}
COMPUTE = ("arithmetic_transform", "algebra_simplification")


def option_table(
    model: str, battery: str, *, variants: tuple[str, ...] = ("real", "semantics_break", "prompt_swap")
) -> pl.DataFrame:
    """Random walks over depths; under its own prompt the answer of a logic task drifts upwards."""
    skill, n_blocks, _ = MODELS[model]
    rng = np.random.default_rng([n_blocks, battery == "core50"])
    n = n_blocks + 2
    rows = []
    for variant in variants:
        for task in load_battery(battery).tasks:
            walk = np.cumsum(rng.normal(size=(len(task.options), n)), 1) - 200
            if variant == "real" and task.family not in COMPUTE:
                walk[task.answer] += skill * np.arange(n)
            rows += [
                {
                    "task_id": task.id, "variant": variant, "option": option, "depth": f"d{depth}",
                    "logprob": float(walk[option, depth]), "neutral": -200.0,
                    "n_tokens": 1 + len(task.options[option]) // 4, "n_prompt_tokens": len(task.prompt.split()),
                }
                for option in range(len(task.options))
                for depth in range(n)
            ]  # fmt: skip
    return pl.DataFrame(rows)


def made_run(folder: Path, model: str, battery: str, **named: object) -> Path:
    """A finished run folder whose record names blocks and parameters as a model's does."""
    out = folder / f"{model}-{battery}"
    file = folder / f"{model}-{battery}.parquet"
    option_table(model, battery, **named).write_parquet(file)  # type: ignore[arg-type]
    score_file(file, out, battery=battery, name=model, depths="paper", seed=0)
    _, n_blocks, n_parameters = MODELS[model]
    return changed(out, lambda record: record["model"].update(n_blocks=n_blocks, n_parameters=n_parameters))


def changed(run: Path, change) -> Path:
    """The run with its record changed in place."""
    record = json.loads((run / RUN).read_text())
    change(record)
    (run / RUN).write_text(json.dumps(record))
    return run


def rewrite_scores(run: Path, document: object) -> None:
    """Other scores in a finished run, as if it had written them."""
    (run / SCORES).write_text(json.dumps(document))
    record = json.loads((run / RUN).read_text()) | {"scores_sha256": file_sha256(run / SCORES)}
    (run / RUN).write_text(json.dumps(record))
