"""Made data sets for the audit: clean ones, in which nothing tells a label, and ones with a planted fault."""

from __future__ import annotations

import numpy as np
import polars as pl

SYLLABLES = ("ba", "ke", "li", "mo", "nu", "ra", "si", "to", "vu", "ze", "fa", "do", "hi")
SIZES = {"train": (160, 30), "validation": (60, 14), "test": (80, 18), "ood_test": (60, 14)}


def clean_rows(seed, sizes=SIZES):
    """Rows of a data set whose labels depend on the question alone, and on nothing else that is there.

    Questions differ in how often they are positive, in how long their texts are, how they are written and how many
    rows they have, so rows are far from independent and the questions of a split are few.
    """
    rng = np.random.default_rng([seed, 7])
    vocabulary = ["".join(rng.choice(SYLLABLES, rng.integers(1, 5))) for _ in range(400)]
    rows, used = [], 0
    for split, (n, n_questions) in sizes.items():
        weights = rng.dirichlet(np.full(n_questions, 4.0))
        rate = rng.beta(2, 2, n_questions)
        words, lined = rng.integers(15, 60, n_questions), rng.random(n_questions)
        prompts = [" ".join(rng.choice(vocabulary, rng.integers(12, 30))) + "?" for _ in range(n_questions)]
        source = rng.choice(["web", "book", "exam"], n_questions)
        for q in rng.choice(n_questions, n, p=weights).tolist():
            text = _text(rng, vocabulary, int(words[q]), lined[q])
            rows.append(
                {
                    "split": split,
                    "question_id": f"q{used + q:04d}",
                    "label": "yes" if rng.random() < rate[q] else "no",
                    "prompt": prompts[q],
                    "cot": text,
                    "answer": str(rng.choice(["A", "B", "C"])),
                    "suggestion": str(rng.choice(["A", "B", "C"])),
                    "source": str(source[q]),
                    "temperature": float(rng.normal()),
                    "draw": int(rng.integers(0, 50)),
                }
            )
        used += n_questions
    order = rng.permutation(len(rows))
    rows = [rows[i] for i in order]
    return [{"example_id": f"{i:05d}", **row} for i, row in enumerate(rows)]


def _text(rng, vocabulary, about, lined):
    words = rng.choice(vocabulary, max(5, int(rng.normal(about, 8)))).tolist()
    for i in range(len(words)):
        if rng.random() < 0.12:
            words[i] += rng.choice([".", ".", "?", ","])
        if rng.random() < 0.05 * lined:
            words[i] += "\n"
        if rng.random() < 0.05:
            words[i] = words[i].capitalize()
        if rng.random() < 0.04:
            words[i] = str(rng.integers(0, 100))
    return " ".join(words)


def write_rows(rows, path):
    """Rows as a file of the suffix's kind."""
    frame = pl.DataFrame(rows)
    match path.suffix:
        case ".parquet":
            frame.write_parquet(path)
        case ".csv":
            frame.write_csv(path)
        case _:
            frame.write_ndjson(path)
    return path
