"""What can be counted about an example without reading it: the features of the trivial controls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lmassay.examples import VisibleExample

Floats = NDArray[np.float64]

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n\s*\n")
_END = (".", "!", "?")
_CLOSING = "\"'”’)]*`"


def reading(example: VisibleExample) -> str:
    """The chain of thought, or all turns of a conversation."""
    return example.text("cot") or example.text("message")


def length(example: VisibleExample) -> list[float]:
    """Log of one more than the number of words."""
    return [float(np.log1p(len(reading(example).split())))]


def position(example: VisibleExample) -> list[float]:
    """Where the text stops: log sentences, turns, whether it ends in punctuation."""
    text = reading(example)
    ended = text.rstrip().rstrip(_CLOSING).endswith(_END)
    return [float(np.log1p(len(_SENTENCE_END.findall(text)))), float(len(example.of("message"))), float(ended)]


def agrees(example: VisibleExample) -> float:
    """1 where the answer is what was suggested, 0 where not, NaN where one of them is not shown."""
    answer, suggested = (example.text(kind).strip().casefold() for kind in ("answer", "suggestion"))
    return float(answer == suggested) if answer and suggested else float("nan")


def agreement(example: VisibleExample) -> list[float]:
    """`agrees`, with 0.5 for not shown."""
    value = agrees(example)
    return [0.5 if np.isnan(value) else value]


def stacked(examples: Sequence[VisibleExample], *of: Callable[[VisibleExample], list[float]]) -> Floats:
    """(n, d) features, example by example."""
    rows = [[value for features in of for value in features(example)] for example in examples]
    return np.array(rows, np.float64).reshape(len(rows), -1) if rows else np.zeros((0, 0))
