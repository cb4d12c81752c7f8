"""Tables of random option scores, and the run folders they become without any model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from lmassay.xray.outside import score_file

N_TASKS, N_OPTIONS, N_DEPTHS = 12, 3, 5


def outside_table(seed: int = 0) -> pl.DataFrame:
    """Every variant of 12 tasks with 3 options at 5 depths, and two groups of three wordings."""
    rng = np.random.default_rng(seed)
    asked = [
        (f"t{i}", "sums" if i % 2 else "words", f"template {i}", variant)
        for variant in ("real", "semantics_break", "prompt_swap")
        for i in range(N_TASKS)
    ]
    asked += [(f"g{g}/{w}", "sums", f"g{g}", "paraphrase") for g in range(2) for w in range(3)]
    rows = [
        {
            "task_id": task, "family": family, "template": template, "variant": variant, "option": option,
            "option_text": f"option {option}", "depth": f"d{depth}", "logprob": -abs(float(rng.normal(-3))),
            "neutral": -abs(float(rng.normal(-3))), "n_tokens": 1 + option % 2, "answer": len(task) % N_OPTIONS,
        }
        for task, family, template, variant in asked
        for option in range(N_OPTIONS)
        for depth in range(N_DEPTHS)
    ]  # fmt: skip
    return pl.DataFrame(rows)


def outside_run(out: Path, *, table: pl.DataFrame | None = None, name: str = "mine", **settings: object) -> Path:
    """A finished run folder at `out`."""
    file = out.parent / f"{out.name}.table.parquet"
    (outside_table() if table is None else table).write_parquet(file)
    chosen = {"battery": None, "depths": "paper", "seed": 0, **settings}
    score_file(file, out, name=name, **chosen)  # type: ignore[arg-type]
    return out
