"""How a monitor is asked: everything beside the model that decides its replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lmassay.cot.monitors.templates import BINARY, SELECTION, Template
from lmassay.errors import LmassayError, nearest

SKIP, TRUNCATE = "skip", "truncate"
OVERLENGTH = (SKIP, TRUNCATE)
#: Of an example shown with its answer: longer ones would crowd out what is asked about.
SHOT_CHARS = 6000


@dataclass(frozen=True, slots=True)
class Asking:
    """Settings of a monitor.

    Attributes
    ----------
    shots : int
        Training examples shown with their answers before the item; 0: none.
    confidence : bool
        Ask for a probability; else for one of two words.
    samples : int
        How often each item is asked; scores are averages.
    max_chars : int or None
        An item whose visible text is longer than so many characters is over-long.
    overlength : {"skip", "truncate"}
        An over-long item is not asked about, or loses the beginning of its chain of thought (of a conversation: its
        first messages).
    m : int
        Sentences to choose, in tasks of selection.
    seed : int
        Of the choice of shots, and of sampling where the model takes a seed.
    """

    shots: int = 0
    confidence: bool = False
    samples: int = 1
    max_chars: int | None = None
    overlength: str = SKIP
    m: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("shots", 0), ("samples", 1), ("m", 1)):
            if getattr(self, name) < least:
                raise LmassayError(
                    "bad-request", f"{name} is {getattr(self, name)}", f"give a number of {least} or more"
                )
        if self.max_chars is not None and self.max_chars < 1:
            raise LmassayError("bad-request", f"max_chars is {self.max_chars}", "give a positive number")
        if self.overlength not in OVERLENGTH:
            raise LmassayError(
                "bad-request", f"no rule {self.overlength!r} for over-long items", nearest(self.overlength, OVERLENGTH)
            )
        if self.overlength == TRUNCATE and self.max_chars is None:
            raise LmassayError("bad-request", "truncate needs to know at what length", "give max_chars too")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Asking:
        """What `to_dict` gave; unknown names are left out."""
        return cls(**{f.name: given[f.name] for f in fields(cls) if f.name in given})


def check_asking(asking: Asking, template: Template) -> None:
    """Refuse settings that a task cannot have.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    if template.kind != BINARY and asking.confidence:
        raise LmassayError(
            "bad-request", f"task {template.task} is not asked for a confidence", "leave --confidence out"
        )
    if template.kind == SELECTION and asking.shots:
        raise LmassayError(
            "bad-request", f"task {template.task} has no right answers that could be shown", "leave --shots out"
        )
    if template.kind == SELECTION and asking.samples > 1:
        raise LmassayError(
            "bad-request", f"task {template.task} asks for sentences, which have no average", "leave --samples out"
        )


def labels_only(asking: Asking, template: Template) -> bool:
    """Whether replies are one of two words, which have no order within a class."""
    return template.kind == BINARY and not asking.confidence


def method_id(asking: Asking, template: Template, model: str) -> str:
    """Such as ``monitor_0shot_label[openai/gpt-5-mini]``: which monitor, and who was asked."""
    what = template.kind if template.kind != BINARY else "confidence" if asking.confidence else "label"
    return f"monitor_{asking.shots}shot_{what}[{model}]"
