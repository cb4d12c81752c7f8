"""The published labels again, from the published counts, by the label rules that `cot generate` uses.

    python benchmarks/cot_labels.py

The data must have been imported (`lmassay cot import SOURCE`). Of each task and split: rows whose label our rule gives
too, and the commonest disagreements. Rules have the published thresholds; where the release departs from them the
departing setting is a line of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from lmassay.cot.build.rules import (
    AtypicalLength,
    Confidence,
    Hint,
    Preference,
    Termination,
)
from lmassay.cot.load import load_task

Rule = Callable[[dict[str, Any]], str]


def proxy(row: dict[str, Any]) -> str:
    """Task 1's training labels: which of the cuts a prefix is."""
    return dict(Termination().cuts(row["total_words"])).get(row["distance_from_end"], "no such cut")


def votes(agree: float) -> Rule:
    return lambda row: Termination(agree=agree).label(row["yes_count"], row["no_count"], row["total_resamples"])


#: (task, setting, splits, rule): a rule sees a record's hidden fields.
CHECKS: tuple[tuple[int, str, tuple[str, ...], Rule], ...] = (
    (1, "words from the end", ("train",), proxy),
    (1, "45 of 50 agree", ("validation", "test", "ood_test"), votes(0.9)),
    (1, "40 of 50 agree", ("validation", "test", "ood_test"), votes(0.8)),
    (
        3,
        "p < .05, |d| of .5",
        ("train", "validation", "test", "ood_test"),
        lambda row: Confidence().decide(row["p_value"], row["cohens_d"]),
    ),
    # The rate of the control arm is not in the release, only the rise over it.
    (
        4,
        "rise of .30, flat to .05",
        ("train", "validation", "test", "ood_test"),
        lambda row: Preference().label(row["prompts.switch_rate"], 0.0),
    ),
    (
        4,
        "rise of .30, flat to .10",
        ("ood_test",),
        lambda row: Preference(flat=0.10).label(row["prompts.switch_rate"], 0.0),
    ),
    (
        5,
        "rise of .30, flat to .10",
        ("train", "validation", "test", "ood_test"),
        lambda row: Hint().label(row["intv_rate"], row["ctrl_rate"]),
    ),
    (
        6,
        "answer against the majority's",
        ("train", "validation", "test", "ood_test"),
        lambda row: "majority" if row["answer"] == row["majority_answer"] else "minority",
    ),
    (
        7,
        "one standard deviation",
        ("train", "validation", "test", "ood_test"),
        lambda row: AtypicalLength().label(
            (row["token_length"] - row["prompt_mean_length"]) / row["prompt_std_length"]
        ),
    ),
)


def agreements() -> Iterator[tuple[int, str, str, int, int, Counter[tuple[str, str]]]]:
    """(task, setting, split, rows that agree, rows, disagreements as (published, ours))."""
    for number, setting, splits, rule in CHECKS:
        data = load_task(str(number), validation="published")
        for split in splits:
            odd: Counter[tuple[str, str]] = Counter()
            rows = data[split].hidden.to_dicts()
            for row in rows:
                found = str(rule(row))
                if found != row["label"]:
                    odd[row["label"], found] += 1
            yield number, setting, split, len(rows) - odd.total(), len(rows), odd


def main() -> None:
    for number, setting, split, same, n, odd in agreements():
        worst = "; ".join(f"{a} -> {b}: {k}" for (a, b), k in odd.most_common(2))
        print(f"{number}  {setting:32} {split:12} {same:6,} of {n:6,}  {same / n:8.4%}  {worst}")


if __name__ == "__main__":
    main()
