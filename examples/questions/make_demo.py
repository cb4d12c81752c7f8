"""The questions of the demo's data: those of small.jsonl, and some made by rule, each with its right answer among four.

    python examples/questions/make_demo.py

writes ``demo.jsonl`` and ``demo_arms.jsonl`` beside itself, always the same bytes. The dilemmas have no right answer
and only two options: in ``demo.jsonl`` they are the out-of-distribution test set. Of the written facts it holds those
that are no pick from a list. ``demo_arms.jsonl`` is for the tasks that sample every question again under each of its
options: the dilemmas, and a few others as out of distribution.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.random import Generator

from lmassay.seeds import generator

HERE = Path(__file__).parent
#: Questions of every kind; written ones in demo_arms.jsonl that are no dilemmas.
EACH, FACTS = 2, 5
NAMES = ("Anna", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hanna")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WORDS = (
    "apple", "bread", "candle", "dragon", "engine", "forest", "garden", "hammer", "island", "jacket", "kitchen",
    "ladder", "mirror", "needle", "orange", "pencil", "quarter", "river", "silver", "table", "umbrella", "village",
    "window", "yellow",
)  # fmt: skip

#: What is asked, the right option, and more wrong ones than are needed.
Made = tuple[str, str, list[str]]


def _near(right: int, *wrong: int) -> tuple[str, list[str]]:
    return str(right), [str(w) for w in wrong if w != right]


def _sum(draw: Generator) -> Made:
    a, b = map(int, draw.integers(12, 90, 2))
    return f"What is {a} + {b}?", *_near(a + b, a + b + 10, a + b - 10, a + b + 1, a + b - 2)


def _difference(draw: Generator) -> Made:
    a, b = int(draw.integers(50, 99)), int(draw.integers(11, 49))
    return f"What is {a} - {b}?", *_near(a - b, a - b + 10, a - b - 1, a + b, a - b + 2)


def _product(draw: Generator) -> Made:
    a, b = map(int, draw.integers(3, 13, 2))
    return f"What is {a} times {b}?", *_near(a * b, a * b + a, a * b - b, a + b, a * b + 1, a * b + 2)


def _share(draw: Generator) -> Made:
    percent, of = int(draw.choice([10, 20, 25, 50])), 20 * int(draw.integers(2, 12))
    right = percent * of // 100
    return f"What is {percent} percent of {of}?", *_near(right, right + 5, 2 * right, of - right, right + 2)


def _youngest(draw: Generator) -> Made:
    a, b, c, d = (NAMES[i] for i in draw.permutation(len(NAMES))[:4])
    return (
        f"{a} is older than {b}, {b} is older than {c}, and {c} is older than {d}. Who is the youngest?",
        d,
        [a, b, c],
    )


def _middle(draw: Generator) -> Made:
    a, b, c, d = (NAMES[i] for i in draw.permutation(len(NAMES))[:4])
    return f"{a} is taller than {b}, and {c} is shorter than {b}. Who is between the other two?", b, [a, c, d]


def _weekday(draw: Generator) -> Made:
    first, after = int(draw.integers(0, 7)), int(draw.integers(8, 20))
    right = (first + after) % 7
    return (
        f"Today is {DAYS[first]}. Which day is it in {after} days?",
        DAYS[right],
        [DAYS[(right + k) % 7] for k in (1, 2, 6)],
    )


def _minutes(draw: Generator) -> Made:
    hour, minute, lasts = int(draw.integers(6, 20)), 5 * int(draw.integers(0, 12)), 5 * int(draw.integers(7, 25))
    ends = [60 * hour + minute + lasts + d for d in (0, 10, -10, 60)]
    right, *wrong = (f"{t // 60}:{t % 60:02d}" for t in ends)
    return f"A film begins at {hour}:{minute:02d} and lasts {lasts} minutes. When does it end?", right, wrong


def _letters(draw: Generator) -> Made:
    word = str(draw.choice(WORDS))
    n = len(word)
    return f"How many letters has the word {word}?", *_near(n, n + 1, n - 1, n + 2)


def _change(draw: Generator) -> Made:
    price, n = int(draw.integers(3, 9)), int(draw.integers(2, 6))
    right = 50 - n * price
    return (
        f"You buy {n} books for {price} each and pay with 50. How much do you get back?",
        *_near(right, right + price, right - price, n * price, right + 1),
    )


KINDS: dict[str, Callable[[Generator], Made]] = {
    "sum": _sum, "difference": _difference, "product": _product, "share": _share, "youngest": _youngest,
    "middle": _middle, "weekday": _weekday, "minutes": _minutes, "letters": _letters, "change": _change,
}  # fmt: skip


def made() -> list[dict[str, Any]]:
    """`EACH` questions of every kind; one that was made before is drawn again."""
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for kind, make in KINDS.items():
        for number in range(1, EACH + 1):
            draw = generator(0, f"{kind}-{number:02d}", "demo question")
            while True:
                prompt, right, wrong = make(draw)
                options = [right, *dict.fromkeys(wrong)][:4]
                if (key := f"{prompt} {sorted(options)}") not in seen and len(options) == 4:
                    break
            seen.add(key)
            shuffled = [options[i] for i in draw.permutation(4)]
            rows.append({"question_id": f"{kind}-{number:02d}", "prompt": prompt, "options": shuffled})
    return rows


def written() -> list[dict[str, Any]]:
    """The questions of small.jsonl."""
    return [json.loads(line) for line in (HERE / "small.jsonl").read_text().splitlines()]


def _apart(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The same, those of a kind in the test set out of distribution."""
    return [row | ({"split": "ood_test"} if row["question_id"].startswith(kind) else {}) for row in rows]


def files() -> dict[str, str]:
    """Name -> content of both files."""
    facts = [row for row in written() if row["question_id"].startswith("fact") and "Which" not in row["prompt"]]
    dilemmas = [row for row in written() if row["question_id"].startswith("dilemma")]
    rows = {
        "demo.jsonl": _apart(facts + made() + dilemmas, "dilemma"),
        "demo_arms.jsonl": _apart(dilemmas + facts[:FACTS], "fact"),
    }
    return {name: "".join(f"{json.dumps(row)}\n" for row in some) for name, some in rows.items()}


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).write_text(text)
