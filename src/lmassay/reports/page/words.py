"""Numbers, verdicts and untrusted text as a reader of the page sees them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

#: Kept though they print nothing of their own: they join letters, in emoji and in Persian.
_JOINERS = "\u200c\u200d"
#: Longest text shown whole, in characters; a longer one is cut with a note.
LONGEST = 4000

#: Words for the signals and controls of the xray suite. Those of a cot run come with its page.
WORDS: Mapping[str, str] = {
    "real_win": "Internal win rate",
    "psi_bar": "PSI",
    "jaccard_strict": "Overlap of won depths between wordings",
    "patching_mean_flip": "Patches that make the answer win",
    "ablation_j": "Loss of won depths without a component",
    "geometry_probe": "Probe, logic against compute",
    "geometry_consistency_centred": "Cosine of wordings",
    "geometry_clustering_gap": "Cosine within families above between them",
    "random_label": "with shuffled labels",
    "matched_token": "with wrong options of the answer's length",
    "semantics_break": "under broken prompts",
    "prompt_swap": "under other tasks' prompts",
    "expectation under no skill": "expected without skill",
    "wrong options": "for wrong options",
    "shuffled_label": "on shuffled labels",
    "tfidf": "from the words alone",
    "majority_class": "for the larger class",
    "random_group": "for random groups of prompts",
    "same_family": "for other prompts of the family",
    "shuffled_family": "with shuffled families",
}


def visible(text: object) -> str:
    """Text with every character made visible that would show nothing, or turn the order of the others."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" or _harmless(c) else _named(c) for c in text)


def _harmless(c: str) -> bool:
    return c in _JOINERS or unicodedata.category(c) == "Zs"


def _named(c: str) -> str:
    return c.encode("unicode_escape", "surrogatepass").decode("ascii")


def clipped(text: object, longest: int = LONGEST) -> str:
    """Visible text of at most about `longest` characters, saying what was left out."""
    text = str(text)
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])} … ({len(text) - longest:,} more characters)"


def number(value: Any, digits: int = 2) -> str:
    """``.31``, ``−.04``, ``12``, a dash for what is undefined."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    rounded = round(float(value), digits) + 0.0
    text = f"{rounded:,.{digits}f}"
    if abs(rounded) < 1:
        text = text.replace("0.", ".", 1)
    return text.replace("-", "−")


def span(low: Any, high: Any, digits: int = 2) -> str:
    """``[.02, .16]``, or nothing where there is no interval."""
    return "" if low is None or high is None else f"[{number(low, digits)}, {number(high, digits)}]"


def figure(row: Mapping[str, Any], digits: int = 2) -> str:
    """A figure with its interval, or its status where it is undefined."""
    if row.get("value") is None:
        return status_words(str(row.get("status") or "undefined"))
    return f"{number(row['value'], digits)} {span(row.get('low'), row.get('high'), digits)}".strip()


#: Codes of a status in words.
STATUSES = {"no_threshold": "validation gives no threshold", "few_clusters": "few groups"}


def status_words(status: str) -> str:
    """A status as readers are told it: said once, and without a code."""
    head, colon, why = status.partition(": ")
    if head == "undefined" and why.startswith("undefined"):
        return status_words(why.replace("undefined on", "undefined: it is so on", 1))
    for code, words in STATUSES.items():
        why, head = re.sub(rf"\b{code}\b", words, why), re.sub(rf"\b{code}\b", words, head)
    return f"{head}{colon}{why}"


def digits_for(*values: Any) -> int:
    """Digits that tell these numbers from zero and each other: two, or more where all of them are small."""
    largest = max((abs(float(v)) for v in values if v is not None and math.isfinite(v)), default=0.0)
    return 2 if largest >= 0.05 or largest < 1e-9 else 1 - math.floor(math.log10(largest))


def verdict_kind(verdict: str) -> str:
    """``survives``, ``fails`` or ``undecided``: the verdict without its reason."""
    word = verdict.split(" ", 1)[0]
    return word if word in ("survives", "fails") else "undecided"


def verdict_reason(verdict: str) -> str:
    """Why a verdict is undecided, in brackets; nothing where it gives no reason."""
    return verdict.partition(" ")[2].replace("(few_clusters)", "(too few groups to tell)")


def said(name: str, words: Mapping[str, str]) -> str:
    """The words for a signal or control, or its own name."""
    return visible(words.get(name) or WORDS.get(name) or name.replace("_", " "))


def held(row: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """What an evidence row holds against what, with both values."""
    signal, control = said(row["signal"], words), said(row["control"], words)
    if row["difference"] is None:
        return f"{signal} against that {control}: not measured"
    return f"{signal} {number(row['signal_value'])} against {number(row['control_value'])} {control}"


def sentence(row: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """An evidence row in words, its interval and verdict included."""
    verdict = f"{verdict_kind(str(row['verdict']))} {verdict_reason(str(row['verdict']))}".strip()
    if row["difference"] is None:
        return f"{held(row, words)}, {verdict}"
    numbers = f"difference {number(row['difference'])} {span(row['low'], row['high'])}".strip()
    return f"{held(row, words)}: {numbers}, {verdict}"


def counted(n: int, one: str, many: str | None = None) -> str:
    """``1 task``, ``1,200 tasks``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
