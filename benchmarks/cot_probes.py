"""The leaderboard of all methods that are no language model, on a reader's activations, and their learning curves.

    lmassay cot activations TASK --model READER --blocks … --train-cap 2000 --out STORES/TASK     (for each task)
    python benchmarks/cot_probes.py STORES OUT [--tasks 1,2,…] [--caps 250,500,1000,2000] [--test-cap N] [--sae FOLDER]

STORES has a folder of activations for each task, named by its id. At the largest cap every method is evaluated with all
controls, in a run folder under OUT/runs; OUT/leaderboard.csv is `lmassay cot leaderboard --csv` over them. At the
other caps each method is fitted alone and scored on the same test rows: OUT/learning_curves.csv. Both hold figures
only, no times, so the same command makes the same files. What is done already is not done again. With `--test-cap` (the
stores may be made with it too) at most N rows of validation and of each test split are scored, and every row says so.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lmassay.cot.cap import capped
from lmassay.cot.evaluate import evaluate, thresholds_of
from lmassay.cot.fitting import fit_and_score, made_method
from lmassay.cot.leaderboard import HEADLINE, leaderboard
from lmassay.cot.load import load_task
from lmassay.cot.predictions import predictions_frame
from lmassay.cot.probing import attach, sees_activations
from lmassay.cot.scores import compute_scores
from lmassay.cot.slices import sliced
from lmassay.cot.task import TaskData
from lmassay.cot.tasks import find_task
from lmassay.measures.intervals import Estimate
from lmassay.methods.registry import load_method
from lmassay.storage.activations import ActivationStore
from lmassay.storage.atomic import write_json, write_text

SEED = 0
METHODS = ("tfidf", "tfidf_all", "mean_difference", "lda", "linear", "attention")
COLUMNS = (
    "task", "method", "reader", "train_cap", "test_cap", "n_train", "n_train_questions", "part", "split", "figure",
    "value", "low", "high", "n", "n_questions", "status",
)  # fmt: skip


def points(data: TaskData, method: str, store: ActivationStore, cap: int, options: dict[str, Any]) -> list[dict]:
    """A row for each test split and figure of one method at one cap, fitted without its controls."""
    few = capped(data, cap)
    made = made_method(method, few, options)
    attach(made, store if sees_activations(made) else None, few)
    one = fit_and_score(made, few, SEED)
    frame = predictions_frame(few, [one], thresholds_of(few, [one]), SEED)
    scores = compute_scores(frame, kind=few.task.kind, ood_splits=few.ood_splits, seed=SEED).scores
    return rows_of(few, method, store.model if sees_activations(made) else "", cap, scores)


def rows_of(few: TaskData, method: str, reader: str, cap: int, scores: Mapping[str, Estimate]) -> list[dict]:
    """The same from scores that are there."""
    train = few["train"]
    about = {
        "task": few.task.id, "method": method, "reader": reader, "train_cap": cap, "test_cap": few.test_cap,
        "n_train": int(train.usable.sum()), "n_train_questions": len(np.unique(train.groups[train.usable])),
    }  # fmt: skip
    figures = [HEADLINE[few.task.kind], *(["auroc"] if few.task.kind != "regression" else [])]
    rows = []
    for split in few.test_splits:
        for figure in dict.fromkeys(figures):
            # Its interval draws the validation questions too, where the figure has a threshold.
            e = scores.get(f"{split}.{figure}_retuned", scores[f"{split}.{figure}"])
            part = "ood" if split in few.ood_splits else "id"
            rows.append(
                {**about, "part": part, "split": split, "figure": figure, "value": e.value, "low": e.low,
                 "high": e.high, "n": e.n, "n_questions": e.n_clusters, "status": e.status}
            )  # fmt: skip
    return rows


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=numbers, default=list(range(1, 8)))
    parser.add_argument("--caps", type=numbers, default=[250, 500, 1000, 2000])
    parser.add_argument("--test-cap", type=int, default=None)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--layout", default="head")
    parser.add_argument("--sae", default="", help="Folder of a sparse autoencoder: adds the method sae.")
    arguments = parser.parse_args()
    chosen: dict[str, dict[str, Any]] = {name: {} for name in arguments.methods.split(",")}
    if arguments.sae:
        chosen["sae"] = {"sae": arguments.sae}
    caps = sorted(arguments.caps)
    folders, rows = [], []
    for number in arguments.tasks:
        task = find_task(str(number)).id
        store = ActivationStore(arguments.stores / task)
        loaded = load_task(task, arguments.layout)
        whole = loaded if arguments.test_cap is None else sliced(loaded, arguments.test_cap)
        for method, options in chosen.items():
            started = time.perf_counter()
            run = arguments.out / "runs" / f"{task}-{method}"
            of = arguments.stores / task if sees_activations(load_method(method)) else None
            found = evaluate(whole, method, activations=of, train_cap=caps[-1], options=options, seed=SEED, out=run)
            folders.append(run)
            for cap in caps[:-1]:
                kept = arguments.out / "points" / f"{task}-{method}-{cap}.json"
                if not kept.exists():
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    write_json(kept, points(whole, method, store, cap, options))
                rows += json.loads(kept.read_text())
            most = capped(whole, caps[-1])
            rows += rows_of(most, method, store.model if of else "", caps[-1], found.scored.scores)
            print(f"{task} {method}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    write_text(arguments.out / "leaderboard.csv", leaderboard(folders).table.write_csv())
    with (arguments.out / "learning_curves.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
