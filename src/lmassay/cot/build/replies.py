"""What a reply says: its chain of thought, its answer's letter, a score from 1 to 10. Never a guess."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: "answer: B", "the answer is (B)", "choice is **B**".
_SAID = r"(?:answer|choice|option)\b[^\w\n]{{0,4}}(?:is\b)?[^\w\n]{{0,6}}({letters})\b(?!['’])"


def letter(reply: str, letters: Sequence[str]) -> str | None:
    """The letter a reply gives; None where it gives none, or several.

    Read are: the letter alone (in brackets, bold, with punctuation), a reply that begins with the letter and its
    separator (``B. Paris``), and ``answer is B`` or the like, if all of them name the same letter.
    """
    some = "|".join(map(re.escape, letters))
    text = reply.strip()
    alone = re.fullmatch(rf"[^\w]*({some})[^\w]*", text)
    if alone:
        return alone.group(1)
    first = re.match(rf"[*_(\[\s]*({some})[*_\])]*\s*[.):]", text)
    said = {m.upper() for m in re.findall(_SAID.format(letters=some), text, re.IGNORECASE)}
    named = said | ({first.group(1)} if first else set())
    return named.pop() if len(named) == 1 else None


def score(reply: str) -> int | None:
    """The first whole number of a reply if it is from 1 to 10; else None."""
    found = re.search(r"\d+(?:[.,]\d+)?", reply)
    if found is None or not found.group().isdecimal():
        return None
    value = int(found.group())
    return value if 1 <= value <= 10 else None
