"""Details of the later phases for a made run, as ``scores.json`` has them."""

from __future__ import annotations

import json
from pathlib import Path

from lmassay.storage.runs import SCORES
from made_runs import rewrite_scores

CONDITIONS = {"real": "", "random_label": "_rl", "matched_token": "_mt"}


def estimate(value, n=5, low=None, high=None):
    return {"value": value, "low": low, "high": high, "n": n, "title": "made", "n_clusters": n,
            "status": "ok" if value is not None else "undefined: made"}  # fmt: skip


def add_phases(run: Path) -> Path:
    """Patching of 2 sources × 3 blocks, ablation of 2 kinds × 3 blocks, geometry at 3 depths."""
    document = json.loads((run / SCORES).read_text())
    cells = [
        {
            "condition": c,
            "source_index": s,
            "target_block": t,
            "n": 4,
            "flips": (s + t + i) % 5,
            "mean_delta": (s - t) / 10,
        }
        for i, c in enumerate(CONDITIONS)
        for s in (1, 2)
        for t in range(s, 3)
    ]
    tasks = [{"condition": "real", "task_id": "t", "family": "f", "n_cells": 4, "flips": 1, "best_delta": 0.5}]
    components = [
        {"component": f"block.{b}.{k}", "block": b, "kind": k, "head": None, "family": f, "condition": c, "n": 5,
         "margin": (b - 1) / 2 - (k == "mlp"), "win": 0.0, "j": -b / 10}
        for c in CONDITIONS for f in ("all", "binder_tracking") for b in range(3) for k in ("attention", "mlp")
    ]  # fmt: skip
    by_depth = [
        {"depth": f"d{i}", "depth_index": i, "probe": estimate(0.5 + i / 10, low=0.4, high=0.9), "probe_shuffled": estimate(0.5),
         "clustering_gap": estimate(None), "clustering_gap_shuffled": estimate(None)}
        for i in range(3)
    ]  # fmt: skip
    groups = [
        {"group": "g", "family": "f", "n_wordings": 3, "peak": 0.9, "peak_depth": "d1", "centred": 0.2, "status": "ok"}
    ]
    document["phases"] = {
        "patching": {"cells": cells, "tasks": tasks}, "ablation": {"components": components},
        "geometry": {"by_depth": by_depth, "groups": groups, "families": []},
    }  # fmt: skip
    for name in (
        "patching_flip",
        "patching_mean_flip",
        "patching_best_delta",
        "ablation_margin",
        "ablation_win",
        "ablation_j",
    ):
        for suffix in CONDITIONS.values():
            document["scores"][name + suffix] = estimate(0.25, low=0.1, high=0.4)
    rewrite_scores(run, document)
    return run
