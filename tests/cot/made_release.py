"""A small release with records of every task, made from the tasks' own schemas, as a checkout or as Parquet."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
from json_tree import folder_of

from lmassay.cot.tasks import tasks

N = 8


def value(field, i, question):
    """A value of a field's kind for record `i`."""
    match field.kind:
        case "text" | "thinking":
            return f"Thought {i} on {question}: the answer is – probably – {'yes ' * (i % 5 + 2)}."
        case "str":
            return field.values[i % len(field.values)] if field.values else f"{field.name}-{i % 3}"
        case "int":
            return field.values[i % len(field.values)] if field.values else i
        case "float":
            return 0.25 + i / 64
        case "bool":
            return i % 2 == 0
        case "messages":
            return [{"role": "user", "content": f"{question}?"}, {"role": "assistant", "content": f"answer {i}"}]
        case "options":
            return {"A": "Yes", "B": "No"}
        case "strings":
            return ["Yes", "No"]
        case "ints":
            return [0, 2, i + 3]
        case "distribution":
            return {"A": 0.75, "B": 0.25}
        case "summaries":
            spread = {"A": 1 - i / 16, "B": i / 16}
            return [
                {"sentence_idx": k, "partial_cot_length": 10 * k, "total_forces": 1, "valid_answers": 1,
                 "answer_distribution": spread, "answer_counts": spread, "most_common": "A"}
                for k in range(3)
            ]  # fmt: skip
    raise ValueError(field.kind)


def records_of(split, release, n=N):
    """Records with their file names, two a question, and the prompts they need."""
    records, prompts = {}, {}
    for i in range(n):
        question = f"{split.folder}_q{i // 2}"
        record = {f.name: value(f, i, question) for f in split.fields if not f.optional}
        record[release.question] = question
        if release.label:
            # Both labels in every question, and no pattern in the order.
            words = list(release.words)
            record[release.label] = words[(i + i // 2) % 2]
        records[f"{question}_{i:03d}.json"] = record
        prompt = {f.name: value(f, i, question) for f in release.prompt_fields}
        prompt |= {k: record[k] for k in release.prompt_key}
        prompts["__".join(str(record[k]) for k in release.prompt_key) + ".json"] = prompt
    return records, prompts


def made(layout="head", n=N):
    """Stem of each table of a layout -> file name -> record."""
    found = {}
    for task in tasks():
        for split in task.release.splits if task.release else ():
            if split.layout != layout:
                continue
            records, prompts = records_of(split, task.release, n)
            found[f"task{task.number}_{split.folder}"] = records
            name = f"task{task.number}_prompts_{split.prompts}".rstrip("_")
            found.setdefault(name, {}).update(prompts)
    return found


def write_checkout(root, tables):
    """Tables as the published repository has them."""
    for stem, files in tables.items():
        folder = folder_of(stem, root)
        folder.mkdir(parents=True, exist_ok=True)
        for name, record in files.items():
            (folder / name).write_text(json.dumps(record, indent=2, ensure_ascii=False), encoding="utf-8")
    return root


def write_export(root, tables):
    """Tables as the Parquet export has them; dicts with the letters of options as keys become structs."""
    for stem, files in tables.items():
        folder = root / stem.partition("_")[0]
        folder.mkdir(parents=True, exist_ok=True)
        rows = [{"_file": name, **record} for name, record in files.items()]
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / f"{stem}.parquet")
    return root


def entropy(distribution):
    """Shannon entropy in nats, by a plain loop."""
    return float(-sum(p * np.log(p) for p in distribution.values() if p > 0))
