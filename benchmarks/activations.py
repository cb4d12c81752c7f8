"""Extraction against the bare forward pass, and against transformers one text at a time.

    python benchmarks/activations.py [--task user_preference] [--n 64] [--max-cot-tokens 1024] [--repeats 2]

Four ways over the same examples of a task (its own data must have been imported), each in a process of its own, so
that peak memory is each one's own; every way opens the model by lmassay and is timed after that.

* bare: the body's forward pass on the very batches that extraction makes, nothing kept.
* extract: `extract_activations` from text to verified shards on disk: planning, tokenising, pooling of three blocks
  (the last among them, so that no block is saved), bfloat16 states of every token of one, writing, hashing.
* early: the same with blocks 8, 16 and 24, after which the pass ends.
* transformers: output_hidden_states=True, one text at a time, the same poolings of the same blocks.

Run it on a quiet machine. Ratios are of best times over `--repeats`; with 1 they are of single runs.
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
import torch

from work import announce, peak_mb, seconds

READER = "smollm2-135m"
WAYS = ("bare", "extract", "early", "transformers")


def sample(task: str, n: int, path: Path) -> None:
    """Every k-th test and validation row as data of one's own."""
    from lmassay.cot.load import load_task

    data = load_task(task)
    rows = []
    for name in ("train", "validation", "test"):
        split = data[name]
        usable = np.flatnonzero(split.usable)
        for i in usable[:: max(1, len(usable) // (n // 3))][: n // 3]:
            row: dict = {"example_id": f"{name}-{i}", "split": name, "question_id": str(split.groups[i])}
            row["label"] = float(split.y[i])
            for segment in split.examples[int(i)].segments:
                if segment.kind == "message":
                    row.setdefault("message", []).append({"role": segment.label, "content": segment.text})
                elif segment.kind == "option":
                    row.setdefault("option", []).append({"label": segment.label, "text": segment.text})
                else:
                    row[segment.kind] = segment.text
            rows.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def child(way: str, task: str, path: str, cap: int | None, repeats: int, dtype: str) -> None:
    """One way; prints tokens, seconds and peak memory as JSON."""
    from lmassay.cot.activations import extract_activations
    from lmassay.cot.extraction import Asked, DataSource
    from lmassay.cot.kept_tokens import TokenRules
    from lmassay.cot.reading_plan import prepared
    from lmassay.cot.scaffold import Scaffold
    from lmassay.models.extract import default_batch_tokens, like_lengths, padded
    from lmassay.models.source import ModelSource

    model = ModelSource(READER, dtype=dtype).open()
    rules = TokenRules(max_cot_tokens=cap, over_length="skip")
    data = DataSource(task, source=path).load()
    blocks = (8, 16, 24 if way in ("early", "transformers") else model.n_blocks - 1)
    opened_mb = peak_mb()
    found = [
        f for split in data.splits.values()
        for _, f in prepared(split.examples.take(split.usable), model, Scaffold(model.tokens), rules)
        if f.status == "ok"
    ]  # fmt: skip
    tokens = sum(len(f.ids) for f in found)

    def bare() -> None:
        with torch.inference_mode():
            for members in like_lengths([len(f.ids) for f in found], default_batch_tokens(model)):
                batch = padded(model, [found[i].ids for i in members])
                model.hf.base_model(
                    input_ids=batch.input_ids,
                    attention_mask=batch.attention_mask,
                    position_ids=batch.position_ids,
                    use_cache=False,
                )

    class Held:
        def open(self):
            return model

    def extract() -> None:
        with tempfile.TemporaryDirectory() as folder:
            asked = Asked(blocks, (16,), rules)
            extract_activations(DataSource(task, source=path), Held(), asked, Path(folder) / "out")

    def transformers() -> None:
        with torch.inference_mode():
            for one in found:
                ids = torch.from_numpy(one.ids[None].astype(np.int64)).to(model.device)
                states = model.hf(ids, output_hidden_states=True, use_cache=False).hidden_states
                kept = [states[b + 1][0, torch.from_numpy(one.kept)].float() for b in blocks]
                [(own[-1], own.mean(0), own.amax(0)) for own in kept]
                kept[1].bfloat16()

    run = {"bare": bare, "extract": extract, "early": extract, "transformers": transformers}[way]
    took = seconds(run, repeats)
    print(json.dumps({"tokens": tokens, "texts": len(found), "seconds": took, "peak": peak_mb(), "opened": opened_mb}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", default="user_preference")
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--max-cot-tokens", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--data")
    arguments = parser.parse_args()
    if arguments.way:
        child(
            arguments.way, arguments.task, arguments.data, arguments.max_cot_tokens, arguments.repeats, arguments.dtype
        )
        return
    announce()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sample.jsonl"
        sample(arguments.task, arguments.n, path)
        found = {}
        for way in WAYS:
            words = [sys.executable, __file__, "--way", way, "--data", str(path), *sys.argv[1:]]
            start = time.perf_counter()
            output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            found[way] = json.loads(output.splitlines()[-1])
            one = found[way]
            print(
                f"{way}: {one['texts']} texts, {one['tokens']} tokens, {one['seconds']:.1f} s,"
                f" {one['tokens'] / one['seconds']:.0f} tokens/s, peak {one['peak']:.0f} MB"
                f" ({one['opened']:.0f} with the model open), {time.perf_counter() - start:.0f} s in all"
            )
    bare, ours, early, theirs = (found[way] for way in WAYS)
    print(f"extract / bare, tokens per second: {bare['seconds'] / ours['seconds']:.2f}")
    print(f"extract / bare, peak memory: {ours['peak'] / bare['peak']:.2f}")
    for name, one in (("extract", ours), ("early", early)):
        print(f"{name} / transformers one text at a time: {theirs['seconds'] / one['seconds']:.2f} times as fast")


if __name__ == "__main__":
    main()
