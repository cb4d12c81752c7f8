"""Visible features: what can be counted about the text an example shows, without reading it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.audit.features import FORMAT, Feature

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmassay.cot.audit.inputs import Audited

Floats = NDArray[np.float64]

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n\s*\n")
_CLOSING = "\"'”’)]*`"
_BYTES = {
    "digit": np.array([48 <= b < 58 for b in range(256)]),
    "capital": np.array([65 <= b < 91 for b in range(256)]),
    "mark": np.array([chr(b) in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" for b in range(128)] + [False] * 128),
    "other": np.array([b >= 128 for b in range(256)]),
}
_NEWLINE, _QUESTION, _COMMA = 10, 63, 44

#: Name and family of each number `counted` gives, in its order.
COUNTED = (
    ("characters", "size"),
    ("words", "size"),
    ("sentences", "size"),
    ("line breaks", "size"),
    ("characters a word", "shape"),
    ("words a sentence", "shape"),
    ("share of digits", "shape"),
    ("share of capitals", "shape"),
    ("share of punctuation", "shape"),
    ("share of characters beyond ASCII", "shape"),
    ("question marks a word", "shape"),
    ("commas a word", "shape"),
    ("words after the last sentence end", "position"),
    ("has a line break", FORMAT),
    ("has a blank line", FORMAT),
    ("begins with white space", FORMAT),
    ("ends in white space", FORMAT),
    ("ends in a sentence's punctuation", FORMAT),
    ("begins with a capital", FORMAT),
    ("has two spaces in a row", FORMAT),
    ("has bold markup", FORMAT),
    ("has LaTeX", FORMAT),
    ("has characters beyond ASCII", FORMAT),
)
#: Of the prompt, only sizes and shapes: everything else is the task's wording.
_OF_PROMPT = (0, 1, 3, 4, 6, 8)


def counted(text: str) -> list[float]:
    """(len(COUNTED),) numbers of one text; NaN for a share of nothing."""
    raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    of = np.bincount(raw, minlength=256)
    n, words = len(text), len(text.split())
    ends = [m.end() for m in _SENTENCE_END.finditer(text)]
    stripped = text.rstrip()
    size = max(len(raw), 1)
    lines = int(of[_NEWLINE])
    nan = float("nan")
    return [
        n,
        words,
        len(ends),
        lines,
        n / words if words else nan,
        words / (len(ends) + 1) if words else nan,
        *(float(of[_BYTES[k]].sum()) / size for k in ("digit", "capital", "mark", "other")),
        float(of[_QUESTION]) / words if words else nan,
        float(of[_COMMA]) / words if words else nan,
        len(text[ends[-1] if ends else 0 :].split()),
        lines > 0,
        "\n\n" in text,
        text[:1].isspace(),
        text[-1:].isspace(),
        stripped.rstrip(_CLOSING).endswith((".", "!", "?", ":")),
        stripped.lstrip()[:1].isupper(),
        "  " in text,
        "**" in text,
        "\\(" in text or "\\[" in text or "\\frac" in text or "$" in text,
        bool(of[_BYTES["other"]].any()),
    ]


def read_texts(data: Audited) -> tuple[str, list[str]]:
    """What a method reads, and its name: the chain of thought, or all turns; empty where neither is shown."""
    for kind, name in (("cot", "chain of thought"), ("message", "conversation")):
        if kind in data.kinds:
            return name, data.texts(kind)
    return "", [""] * len(data)


def surface_features(data: Audited, name: str, reading: Sequence[str]) -> list[Feature]:
    """Sizes, shapes and formats of the text, of the last turn and the prompt; suggestion, answer and agreement."""
    found = _counts(f"{name}: ", reading, range(len(COUNTED))) if name else []
    if "message" in data.kinds:
        turns = [[s.text for s in e.of("message")] for part in data.examples for e in part]
        found.append(_feature("turns", "size", [len(t) for t in turns]))
        found += _counts("last turn: ", [t[-1] if t else "" for t in turns], range(len(COUNTED)))
        found += _counts("first turn: ", [t[0] if t else "" for t in turns], _OF_PROMPT, family="prompt")
    if "prompt" in data.kinds:
        found += _counts("prompt: ", data.texts("prompt"), _OF_PROMPT, family="prompt")
    found += _answers(data)
    return found


def _counts(
    prefix: str, texts: Sequence[str], which: Sequence[int] | range, family: str | None = None
) -> list[Feature]:
    held: dict[str, list[float]] = {}
    table = np.array([held.get(t) or held.setdefault(t, counted(t)) for t in texts], np.float64)
    table = table.reshape(len(texts), len(COUNTED))
    return [_feature(prefix + COUNTED[i][0], family or COUNTED[i][1], table[:, i]) for i in which]


def _feature(name: str, family: str, values: Sequence[float] | Floats) -> Feature:
    return Feature(name, "visible", family, np.asarray(values, np.float64))


def _answers(data: Audited) -> list[Feature]:
    found = []
    shown = {kind: data.texts(kind) for kind in ("suggestion", "answer") if kind in data.kinds}
    for kind, texts in shown.items():
        found += [
            _feature(f"{kind} is {value!r}", "suggestion", [float(t == value) for t in texts])
            for value in few_values(texts)
        ]
        found.append(_feature(f"{kind}: characters", "suggestion", [len(t) for t in texts]))
    if len(shown) == 2:
        pairs = zip(*([t.strip().casefold() for t in texts] for texts in shown.values()), strict=True)
        agrees = [float(a == b) if a and b else float("nan") for a, b in pairs]
        found.append(_feature("answer agrees with the suggestion", "suggestion", agrees))
    return found


def few_values(values: Sequence[str], most: int = 8) -> list[str]:
    """The values of a variable with few of them, but the last: that one is what the others leave."""
    found = sorted({v for v in values if v})
    return found[: max(1, len(found) - 1)] if 2 <= len(found) <= most else []


def stated_labels(data: Audited, reading: Sequence[str]) -> list[Feature]:
    """How often the text says the word of each class: what is shown may state what was asked."""
    found = []
    for word in dict.fromkeys(data.label_words):
        if word and any(c.isalpha() for c in word):
            count = _counter(word)
            found.append(_feature(f"text says {word!r}", "inversion", [count(t) for t in reading]))
    return found


def _counter(word: str) -> Callable[[str], float]:
    pattern = re.compile(rf"(?<!\w){re.escape(word.replace('_', ' '))}(?!\w)", re.IGNORECASE)
    return lambda text: float(len(pattern.findall(text)))


def first_words(texts: Sequence[str], n: int = 20) -> list[str]:
    """The first words of each text."""
    # A word is rarely longer than the slice allows, and a text may be very long.
    return [" ".join(t[: n * 40].split()[:n]) for t in texts]
