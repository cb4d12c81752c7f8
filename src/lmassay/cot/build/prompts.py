"""A user's file of questions, every fault of it reported at once; and how a question is put to a model."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lmassay.errors import LmassayError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SPLITS = ("train", "validation", "test", "ood_test")
#: Tasks whose questions need options to choose from.
NEED_OPTIONS = ("user_preference", "authority_hint", "atypical_answer", "answer_entropy", "compression")
#: Faults that are listed; the others are counted.
LISTED = 10

ASK_LETTER = "Reply with the letter of your choice and nothing else."


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the file has it.

    Attributes
    ----------
    id : str
    prompt : str
    options : tuple of str
        Lettered A, B, C … in this order; empty for an open question.
    split : str or None
        Where its examples go; None: drawn by hash.
    """

    id: str
    prompt: str
    options: tuple[str, ...] = ()
    split: str | None = None

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the options."""
        return tuple(LETTERS[: len(self.options)])

    @property
    def lettered(self) -> list[dict[str, str]]:
        """The options as a data set holds them."""
        return [{"label": x, "text": text} for x, text in zip(self.letters, self.options, strict=True)]

    def text(self, before_answer: str = "") -> str:
        """What the subject is asked.

        Parameters
        ----------
        before_answer : str
            A sentence put between the options and the request for a letter: a preference, a hint.
        """
        if not self.options:
            return self.prompt
        lines = [f"{letter}. {option}" for letter, option in zip(self.letters, self.options, strict=True)]
        parts = [self.prompt, "\n".join(lines), before_answer, ASK_LETTER]
        return "\n\n".join(p for p in parts if p)


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    question_id: str = Field(min_length=1)
    prompt: str
    options: list[str] = Field(default_factory=list, max_length=len(LETTERS))
    split: str | None = None

    @field_validator("prompt")
    @classmethod
    def _said(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("is empty")
        return text

    @field_validator("options")
    @classmethod
    def _distinct(cls, options: list[str]) -> list[str]:
        if len(options) == 1:
            raise ValueError("holds a single option")
        if any(not o.strip() for o in options):
            raise ValueError("holds an empty option")
        if len(set(options)) < len(options):
            raise ValueError("holds the same option twice")
        return options

    @field_validator("split")
    @classmethod
    def _known(cls, split: str | None) -> str | None:
        if split is not None and split not in SPLITS and not split.startswith("ood_test_"):
            raise ValueError(f"is none of {', '.join(SPLITS)} and ood_test_<name>")
        return split


@dataclass(frozen=True, slots=True)
class Questions:
    """A file of questions.

    Attributes
    ----------
    sha256 : str
        Of the file.
    """

    items: tuple[Question, ...]
    sha256: str
    name: str = field(default="questions")


def read_questions(path: Path, task: str) -> Questions:
    """The questions of a JSONL file: ``question_id``, ``prompt``, and optionally ``options`` (a list) and ``split``.

    Raises
    ------
    LmassayError
        ``bad-prompts`` with every fault of the file (the first ten in words), ``bad-request`` when it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LmassayError("bad-request", f"{path} cannot be read: {error.strerror}", "name a JSONL file") from error
    faults: list[str] = []
    found: list[Question] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            question = _parsed(line, number, faults)
            if question is not None:
                found.append(question)
                if task in NEED_OPTIONS and not question.options:
                    faults.append(f"line {number}: task {task} needs options")
    twice = [id_ for id_, n in Counter(q.id for q in found).items() if n > 1]
    faults += [f"question_id {id_!r} stands on more than one line" for id_ in twice]
    if not found and not faults:
        faults.append("it holds no question")
    if faults:
        more = f"; and {len(faults) - LISTED} more" if len(faults) > LISTED else ""
        raise LmassayError(
            "bad-prompts", f"{path.name}: {'; '.join(faults[:LISTED])}{more}", "mend these lines; see docs/cot-build.md"
        )
    return Questions(tuple(found), hashlib.sha256(data).hexdigest(), path.name)


def _parsed(line: bytes, number: int, faults: list[str]) -> Question | None:
    try:
        content: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        faults.append(f"line {number}: not JSON ({error.msg})")
        return None
    try:
        row = _Line.model_validate(content)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            where = ".".join(map(str, fault["loc"])) or "the line"
            faults.append(f"line {number}: {where} {fault['msg'].removeprefix('Value error, ')}")
        return None
    return Question(row.question_id, row.prompt, tuple(row.options), row.split)
