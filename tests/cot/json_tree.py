"""The published repository's tree of JSON files, rebuilt from the Parquet export (`_file` holds the names)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl

EXPORT = Path(os.environ.get("LMASSAY_COT_EXPORT", Path(__file__).parents[3] / "shared" / "data" / "cot"))
MODELS = {2: "gemma-3-27b"}


def as_json(value):
    """A Parquet value as the JSON had it; maps come as dicts or, from older polars, as lists of pairs."""
    if isinstance(value, list):
        if value and all(isinstance(v, dict) and v.keys() == {"key", "value"} for v in value):
            return {v["key"]: as_json(v["value"]) for v in value}
        return [as_json(v) for v in value]
    if isinstance(value, dict):
        return {k: as_json(v) for k, v in value.items()}
    return value


def folder_of(stem, tree):
    """Where the files of ``task1_prompts_train`` lie in a checkout."""
    task, _, rest = stem.partition("_")
    number = int(task.removeprefix("task"))
    base = tree / "datasets" / str(number)
    if rest == "prompts" or rest.startswith("prompts_"):
        return base / "prompts" / rest.removeprefix("prompts").removeprefix("_")
    return base / MODELS.get(number, "qwen-3-32b") / rest


def rebuild(tree, export=EXPORT, tasks=range(1, 10), rows=None, only=None):
    """Write the JSON files of some tasks, `rows` of each split at most; the number of files comes back."""
    written = 0
    for number in tasks:
        for path in sorted((export / f"task{number}").glob("*.parquet")):
            if only is not None and path.stem not in only:
                continue
            folder = folder_of(path.stem, tree)
            folder.mkdir(parents=True, exist_ok=True)
            frame = pl.read_parquet(path)
            for row in (frame if rows is None else frame.head(rows)).iter_rows(named=True):
                record = {k: as_json(v) for k, v in row.items() if v is not None and k != "_file"}
                text = json.dumps(record, indent=2, ensure_ascii=False)
                (folder / row["_file"]).write_text(text, encoding="utf-8")
                written += 1
    return written
