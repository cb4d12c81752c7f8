"""The builder of each task: its settings, and the function that turns a workshop into rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lmassay.cot.build import arms, atypical, compression, confidence, deletion, entropy, termination
from lmassay.cot.build.workshop import Row
from lmassay.models.sampling import LETTERS, PREFIX, VOCABULARY


@dataclass(frozen=True, slots=True)
class Builder:
    """How a task's data is made.

    Attributes
    ----------
    settings : dataclass
        Every threshold and number, with the published values.
    build : callable
        (workshop, settings) -> rows.
    needs : tuple of str
        What the engine must be able to do beside sampling.
    """

    settings: Any
    build: Callable[..., list[Row]]
    needs: tuple[str, ...] = ()


BUILDERS: dict[str, Builder] = {
    "reasoning_termination": Builder(termination.Settings(), termination.build, (PREFIX,)),
    "self_deletion": Builder(deletion.Settings(), deletion.build),
    "follow_up_confidence": Builder(confidence.Settings(), confidence.build, (PREFIX,)),
    "user_preference": Builder(arms.PreferenceSettings(), arms.build_preference),
    "authority_hint": Builder(arms.HintSettings(), arms.build_hint),
    "atypical_answer": Builder(atypical.AnswerSettings(), atypical.build_answer),
    "atypical_length": Builder(atypical.LengthSettings(), atypical.build_length),
    "answer_entropy": Builder(entropy.Settings(), entropy.build, (PREFIX, LETTERS)),
    "compression": Builder(compression.Settings(), compression.build, (PREFIX, LETTERS, VOCABULARY)),
}
