"""What a reply says: a label, a probability, a distribution, sentences; or that it cannot be told. Never a guess.

A reply counts only in the form that was asked for, or one that can mean nothing else: the JSON object (bare, fenced, or
with words around it, as long as every object in the reply says the same), the bare value as the whole reply, or a last
line ``Answer: value``. A number that has to be picked out of a sentence is not read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.templates import BINARY, DISTRIBUTION, Template

EMPTY = "empty"
UNCLOSED = "the thinking does not end"
NO_FORM = "not in the form asked for"
SEVERAL = "says more than one thing"
NOT_A_WORD = "none of the words asked for"
NOT_A_PROBABILITY = "no number from 0 to 1"
NOT_A_DISTRIBUTION = "no distribution over the options"
NOT_SENTENCES = "not the number of different sentences asked for"

#: Probabilities of a distribution may miss 1 by so much, as rounded ones do.
ROUNDING = 0.02

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPENED = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_LAST_LINE = re.compile(
    r"(?:final )?(?:answer|probability|verdict)(?: is)? ?[:=] ?(?P<value>\S(?:.*\S)?)", re.IGNORECASE
)
_DECORATION = " \t\r\n*_`\"'“”.!"


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a reply says.

    Attributes
    ----------
    value : float or None
        1 or 0 (a label), a probability, or the entropy of a distribution in nats; None where it cannot be told, or
        where sentences were asked for.
    why : str
        Why it cannot be told; empty where it can.
    distribution : tuple of (str, float)
        Normalised, where one was asked for.
    sentences : tuple of int
        From 0, ascending, where they were asked for.
    """

    value: float | None = None
    why: str = ""
    distribution: tuple[tuple[str, float], ...] = ()
    sentences: tuple[int, ...] = ()

    @property
    def told(self) -> bool:
        """Whether the reply says anything."""
        return not self.why


def parse(reply: str, template: Template, asking: Asking, *, letters: Sequence[str] = (), n_region: int = 0) -> Parsed:
    """Read a reply.

    Parameters
    ----------
    letters : sequence of str
        Option letters of the item, where a distribution over them was asked for.
    n_region : int
        Numbered sentences of the item, where some were asked for.
    """
    text, why = _without_thinking(reply)
    if why:
        return Parsed(why=why)
    if template.kind == DISTRIBUTION:
        return _one(text, lambda given: _distribution(given, letters), bare=False)
    if template.kind != BINARY:
        return _one(text, lambda given: _sentences(given, asking.m, n_region), bare=True)
    if asking.confidence:
        return _one(text, _probability, bare=True)
    return _one(text, lambda given: _label(given, template.words), bare=True)


def _without_thinking(reply: str) -> tuple[str, str]:
    """The reply after its thinking, and why there is none."""
    text = _THINKING.sub("", reply)
    # A server that opened the thinking itself returns its end alone.
    closed = list(_CLOSED.finditer(text))
    if closed and not _OPENED.search(text):
        text = text[closed[-1].end() :]
    if _OPENED.search(text):
        return "", UNCLOSED
    return (text.strip(), "") if text.strip() else ("", EMPTY)


def _one(text: str, read: Callable[[Any], Parsed], *, bare: bool) -> Parsed:
    """The one thing a text says; several readings must agree."""
    objects = list(_objects(text))
    if objects:
        readings = {read(given) for given in objects}
        return readings.pop() if len(readings) == 1 else Parsed(why=SEVERAL)
    if not bare:
        return Parsed(why=NO_FORM)
    whole = read(_undecorated(text))
    return whole if whole.told else _marked_line(text, read) or whole


def _marked_line(text: str, read: Callable[[Any], Parsed]) -> Parsed | None:
    """What the last line says, where it is marked as the answer and no other line is marked with another one."""
    lines = [_undecorated(line) for line in text.splitlines() if line.strip()]
    marked = [_LAST_LINE.fullmatch(line) for line in lines]
    if marked[-1] is None:
        return None
    readings = {read(_undecorated(m["value"])) for m in marked if m is not None}
    return readings.pop() if len(readings) == 1 else Parsed(why=SEVERAL)


def _undecorated(text: str) -> str:
    """Without quotes, emphasis and a full stop around it."""
    if text.startswith("```"):
        # A fenced block that is the whole reply.
        inner = re.fullmatch(r"```[A-Za-z]*\s*\n?(.*?)\n?```", text, re.DOTALL)
        text = inner[1] if inner else text
    found = text.strip(_DECORATION)
    # A decimal point in front belongs to the number.
    return f".{found}" if re.match(rf"[{re.escape(' *_`')}]*\.[0-9]", text) and found[:1].isdigit() else found


#: Braces that may begin no object.
MOST_BRACES = 1000


def _objects(text: str) -> Iterator[Any]:
    """Every JSON object of a text, outermost ones; what has a key twice is no answer but is there.

    A text of more than `MOST_BRACES` braces that begin no object is given up: each costs a look at the whole of it.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_pairs)
    at, failed = text.find("{"), 0
    while at >= 0 and failed < MOST_BRACES:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, failed = at + 1, failed + 1
        else:
            yield found
        at = text.find("{", end)


class _Twice(dict[str, Any]):
    """An object with a key that stands twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Twice(found)


def _field(given: Any, name: str) -> tuple[Any, Parsed | None]:
    """The value to be read: of an object its one field of that name."""
    if isinstance(given, _Twice):
        return None, Parsed(why=SEVERAL)
    if not isinstance(given, dict):
        return given, None
    if name not in given:
        return None, Parsed(why=NO_FORM)
    return given[name], None


def _label(given: Any, words: tuple[str, str]) -> Parsed:
    value, fault = _field(given, "answer")
    if fault:
        return fault
    said = _undecorated(value).casefold() if isinstance(value, str) else ""
    for word, meaning in zip(words, (1.0, 0.0), strict=True):
        if said == word.casefold():
            return Parsed(meaning)
    return Parsed(why=NOT_A_WORD if isinstance(given, dict) or " " not in said else NO_FORM)


def _probability(given: Any) -> Parsed:
    value, fault = _field(given, "probability")
    if fault:
        return fault
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        return Parsed(why=NOT_A_PROBABILITY)
    return Parsed(number)


def _number(value: Any) -> float | None:
    """A number, or text that is one: ``0.7`` or ``70 %``, and nothing else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number = float(value) if abs(value) < 1e6 else math.inf
    elif isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        number = float(value)
    elif isinstance(value, str) and (percent := _PERCENT.fullmatch(value.strip())):
        number = float(percent[1]) / 100
    else:
        return None
    return number if math.isfinite(number) else None


def _distribution(given: Any, letters: Sequence[str]) -> Parsed:
    if isinstance(given, _Twice):
        return Parsed(why=SEVERAL)
    if not isinstance(given, dict) or set(given) != set(letters):
        return Parsed(why=NOT_A_DISTRIBUTION)
    values = [_number(given[letter]) for letter in letters]
    known = [v for v in values if v is not None and v >= 0]
    total = sum(known)
    if len(known) != len(values) or abs(total - 1) > ROUNDING:
        return Parsed(why=NOT_A_DISTRIBUTION)
    shares = [v / total for v in known]
    entropy = -sum(p * math.log(p) for p in shares if p > 0)
    # Of a certain answer -0.0 is left.
    return Parsed(max(0.0, entropy), distribution=tuple(zip(letters, shares, strict=True)))


def _sentences(given: Any, m: int, n_region: int) -> Parsed:
    value, fault = _field(given, "sentences")
    if fault:
        return fault
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return Parsed(why=NO_FORM)
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        return Parsed(why=NO_FORM)
    chosen = sorted(set(value))
    if len(value) != m or len(chosen) != m or chosen[0] < 1 or chosen[-1] > n_region:
        return Parsed(why=NOT_SENTENCES)
    return Parsed(sentences=tuple(i - 1 for i in chosen))
