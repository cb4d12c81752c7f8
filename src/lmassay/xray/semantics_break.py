"""The semantics-break control: a prompt whose question no longer has the labelled answer, in the same form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmassay.seeds import seeded_choice, smallest_hash
from lmassay.xray.batteries.solve import solve

if TYPE_CHECKING:
    from lmassay.xray.task import Task

#: Families whose prompts are broken by shifting their numbers; all others lose their tail.
SHIFTED_FAMILIES = frozenset({"arithmetic_transform", "algebra_simplification", "binder_tracking"})
TAIL_FAMILIES = frozenset({"theorem_pattern", "proof_closure", "logical_constraint"})
SHIFTS = (2, 3, 4, 5)
TAILS = ("the color is", "the planet is", "the weather is", "the music is", "the soup is", "the river is")
WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
# Digits not inside a name (x1, A2) and not a decimal's fraction, thousands with their commas; or a number word that is
# no part of a longer one (twenty-one).
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)|(?<![\w-])(?:" + "|".join(WORDS) + r")(?![\w-])", re.IGNORECASE
)
#: Longer runs of digits are no numbers to reckon with (and `int` refuses them).
DIGITS = 1000
_SENTENCE_END = re.compile(r"[.?!;](?!\d)")


@dataclass(frozen=True, slots=True)
class Broken:
    """A perturbed prompt and how it was made.

    Attributes
    ----------
    flags : frozenset of str
        ``tail_rule`` where the tail was replaced for want of a rule or of a number, ``answer_still_true`` where the
        perturbed question still has the labelled answer.
    """

    prompt: str
    flags: frozenset[str]


def break_prompt(task: Task, seed: int) -> Broken:
    """Perturb a task's prompt; its options and label stay.

    A prompt of the task's own (`broken_prompt`) is taken as it is. Otherwise the numbers of the computing families
    are each shifted up by a seeded draw from 2 to 5, and other prompts lose their tail to a nonsense one.
    """
    if task.broken_prompt is not None:
        return Broken(task.broken_prompt, frozenset({"own_broken_prompt"}))
    if task.family in SHIFTED_FAMILIES:
        shifted = _shift_numbers(task, seed)
        if shifted != task.prompt:
            still = solve(task.template, shifted) == task.options[task.answer]
            return Broken(shifted, frozenset({"answer_still_true"} if still else ()))
        return Broken(_replace_tail(task, seed), frozenset({"tail_rule"}))
    known = task.family in TAIL_FAMILIES
    return Broken(_replace_tail(task, seed), frozenset() if known else frozenset({"tail_rule"}))


def _shift_numbers(task: Task, seed: int) -> str:
    place = 0

    def shift(match: re.Match[str]) -> str:
        nonlocal place
        by = seeded_choice(SHIFTS, seed, task.id, f"semantics_break shift {place}")
        place += 1
        text = match.group()
        if text[0].isdecimal():
            digits = text.replace(",", "")
            if len(digits) > DIGITS:
                return text
            return f"{int(digits) + by:,}" if "," in text else str(int(digits) + by)
        value = WORDS.index(text.lower()) + by
        word = WORDS[value] if value < len(WORDS) else str(value)
        return word.capitalize() if text[0].isupper() else word

    return _NUMBER.sub(shift, task.prompt)


def _replace_tail(task: Task, seed: int) -> str:
    tail = smallest_hash(TAILS, seed, task.id, "semantics_break tail", text=str)
    text = task.prompt.rstrip()
    # A prompt that ends with a mark has its tail before that mark.
    body = text.rstrip(".?!;, ")
    ends = list(_SENTENCE_END.finditer(body))
    if ends:
        cut, sentence = ends[-1].end(), body[ends[-1].start()] != ";"
    elif "," in body:
        cut, sentence = body.rindex(",") + 1, False
    else:
        words = list(re.finditer(r"\S+", body))
        cut, sentence = (words[-4].start() if len(words) > 4 else 0), len(words) <= 4
    head = body[:cut].rstrip()
    new = tail[0].upper() + tail[1:] if sentence else tail
    return f"{head} {new}" if head else new
