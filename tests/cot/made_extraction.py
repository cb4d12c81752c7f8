"""A small data file, a tiny reader on disk, and an extraction of the two, as another process can start it too."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from lmassay.cot.activations import extract_activations
from lmassay.cot.extraction import Asked, DataSource
from lmassay.cot.kept_tokens import TokenRules
from lmassay.models.source import ModelSource

WORDS = ("then", "a", "b", "equals", "5", "so", "the", "result", "is", "zero", "and", "x", "implies", "y", "but")


def write_data(path, n=40, *, long=0, empty=0):
    """Own data of task 1: rows of like and unlike length in every split; some over 128 tokens, some without words."""
    rows = []
    for split, rows_of in (("train", n), ("validation", n // 2), ("test", n // 2), ("ood_test", n // 4)):
        for i in range(rows_of):
            said = [WORDS[(i * j + j) % len(WORDS)] for j in range(1, 3 + (i * 7) % 17)]
            if split == "test" and i < long:
                said = (said * 200)[:200]
            cot = "" if split == "test" and long <= i < long + empty else " ".join(said)
            rows.append(
                {"example_id": f"{split}-{i}", "split": split, "question_id": f"{split}-{i // 2}",
                 "label": ("yes", "no")[i % 2], "prompt": f"Is {i} odd?", "cot": cot}
            )  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_reader(folder, family="llama", **options):
    """A tiny model and tokenizer as a folder."""
    from tiny_models import tiny_hf, tiny_tokenizer

    tiny_hf(family).save_pretrained(folder)
    tiny_tokenizer(**options).save_pretrained(folder)
    return folder


def asked(**changes):
    """Two blocks, one of them by token, in shards of a few examples."""
    rules = TokenRules(**{k: changes.pop(k) for k in ("tokens", "max_cot_tokens", "over_length") if k in changes})
    return Asked(**{"blocks": (0, 2), "token_blocks": (2,), "rules": rules, "shard_tokens": 200} | changes)


def run(data, reader, out, *, progress=None, executor=None, share=None, train_cap=None, **changes):
    """An extraction in this process."""
    return extract_activations(
        DataSource("reasoning_termination", source=str(data), train_cap=train_cap),
        ModelSource(str(reader)),
        asked(**changes),
        Path(out),
        executor=executor,
        share=share,
        progress=progress,
    )


def main() -> None:
    """Extract slowly enough to be killed, saying when shards are done."""
    import torch

    torch.set_num_threads(1)

    def told(stage, done, total):
        print(stage, done, total, flush=True)
        if stage == "tokens":
            time.sleep(0.05)

    result = run(*sys.argv[1:4], progress=told)
    print("finished", result.resumed, result.made, flush=True)


if __name__ == "__main__":
    main()
