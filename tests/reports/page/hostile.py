"""Text that tries everything a page could fall for, and runs that are full of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from lmassay.storage.runs import SCORES
from lmassay.xray.outside import score_file
from made_runs import changed, rewrite_scores

#: Each would set window.owned, ask the network for something, or change what stands around it.
HOSTILE = (
    "<script>window.owned=1</script>",
    "</script><script>window.owned=1</script>",
    "<!--<script>",
    "<img src=http://127.0.0.1:9/x.png onerror=window.owned=1>",
    "<style>*{display:none}</style>",
    "\"'><svg onload=window.owned=1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.owned=1",
    "abc\u202etxt.exe\u2066\u200f",
    "bell\x07 nul\x00 escape\x1b[31m line\u2028 end",
    "url(http://127.0.0.1:9/y)",
    "]]><a xlink:href='javascript:window.owned=1'>&lt;b&gt;",
    "${window.owned=1}`",
    "lone \ud800 surrogate".encode("utf-8", "replace").decode(),
)


def hostile_run(out: Path, *, long: bool = False) -> Path:
    """A finished run whose ids, families, options, model, battery and notices are hostile."""
    rng = np.random.default_rng(0)
    n_options, n_depths = 3, 4
    rows = [
        {
            "task_id": f"{i} {text}", "family": HOSTILE[i % 3], "template": f"{text} t", "variant": "real",
            "option": option, "option_text": f"{option} {HOSTILE[(i + option) % len(HOSTILE)]}" + "x" * (10**6 if long and not i else 0),
            "depth": f"d{depth}", "logprob": float(-np.abs(rng.normal(3))), "neutral": -3.0, "n_tokens": 1,
            "answer": 0,
        }
        for i, text in enumerate(HOSTILE)
        for option in range(n_options)
        for depth in range(n_depths)
    ]  # fmt: skip
    file = out.parent / f"{out.name}.parquet"
    pl.DataFrame(rows).write_parquet(file)
    score_file(file, out, battery=None, name="".join(HOSTILE[:3]), depths="paper", seed=0, command=HOSTILE[3])
    document = json.loads((out / SCORES).read_text())
    document["notices"] += list(HOSTILE)
    rewrite_scores(out, document)
    return changed(out, lambda record: record["model"].update(notes=list(HOSTILE)))
