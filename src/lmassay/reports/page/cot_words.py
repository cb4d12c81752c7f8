"""Words of the cot suite's figures, splits and controls, as a reader of a page gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmassay.reports.cot_figures import Documented, is_ood
from lmassay.reports.page.words import counted, figure

FIGURE_WORDS: Mapping[str, str] = {
    "g_mean2": "g-mean²",
    "g_mean2_mc": "g-mean² (minimal criterion)",
    "auroc": "AUROC",
    "r2": "R²",
    "answer_kl": "answer KL",
    "token_kl": "token KL",
}
#: What stands after a control's figure in a sentence.
CONTROL_WORDS: Mapping[str, str] = {
    "random": "from numbers drawn at random",
    "length": "from the number of words alone",
    "position": "from counts of sentences and turns alone",
    "prompt_only": "from the prompt alone",
    "agreement": "from whether the answer is the suggested one",
    "shortcuts": "from surface shortcuts",
    "deletion": "keeping none",
    "last_m": "keeping the sentences just before the last",
}


def figure_words(name: str) -> str:
    """A figure's name as readers know it."""
    return FIGURE_WORDS.get(name, name.replace("_", " "))


def place(run: Documented, split: str) -> str:
    """Where a split stands: its name, and whether it is in or out of distribution."""
    if split == "ood":
        return "out of distribution (median over its test sets)"
    if split == "all":
        return "over all prefixes"
    return f"{'out of' if is_ood(run, split) else 'in'} distribution ({split})"


def with_n(row: Mapping[str, Any], n_questions: str = "n_clusters") -> str:
    """A figure with its interval, n and questions."""
    return f"{figure(row)} (n = {row['n']:,}, {counted(int(row[n_questions]), 'question')})"


def listed(names: list[str]) -> str:
    """``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
