"""The selector ``monitor`` of task 9: a language model reads a prefix and names the sentences to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmassay.cot.build.sentences import parted
from lmassay.cot.compression import KEPT
from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.prompts import made_prompt
from lmassay.cot.monitors.replies import parse
from lmassay.cot.monitors.templates import TEMPLATES
from lmassay.examples import Segment, VisibleExample
from lmassay.models.sampling import Message, Prompt, Sampling
from lmassay.seeds import derive

if TYPE_CHECKING:
    from lmassay.cot.build.prompts import Question
    from lmassay.cot.build.workshop import Draw
    from lmassay.models.sampling import Engine

TEMPLATE = TEMPLATES["compression"]


@dataclass(frozen=True, slots=True)
class Monitor:
    """Who chooses.

    Attributes
    ----------
    engine : Engine
    draw : callable
        Draws this engine's samples or takes them from a store.
    """

    engine: Engine
    draw: Draw


@dataclass(frozen=True, slots=True)
class Request:
    """`m` sentences are to be chosen of a prefix, the kept tail not among them.

    Attributes
    ----------
    name : str
        Of the prefix: question, rollout, length.
    own : tuple of str
        All sentences of the prefix.
    """

    name: str
    question: Question
    own: tuple[str, ...]
    m: int


def selections(monitor: Monitor, requests: Sequence[Request], max_tokens: int) -> list[list[int] | None]:
    """For each request the sentences named, ascending from 0; None where the reply does not name `m` of them.

    Replies are the likeliest ones: asked again, the same monitor chooses the same.
    """
    prompts = [_prompt(request) for request in requests]
    sampling = Sampling(0.0, max_tokens=max_tokens)
    distinct = list(dict.fromkeys(prompts))
    replies = dict(zip(distinct, monitor.draw([(p, sampling, 1) for p in distinct]), strict=True))
    found: list[list[int] | None] = []
    for request, prompt in zip(requests, prompts, strict=True):
        n_region = len(request.own) - KEPT
        told = parse(replies[prompt][0].text, TEMPLATE, Asking(m=request.m), n_region=n_region)
        found.append(list(told.sentences) if told.told else None)
    return found


def _prompt(request: Request) -> Prompt:
    """Instructions and material in one turn: not every chat template has a place for a system message."""
    question = request.question
    key = derive(0, request.name, "monitored prefix")
    options = (Segment("option", option["text"], option["label"]) for option in question.lettered)
    # One without a full stop must not run into the next, or the numbers would shift.
    cot = Segment("cot", parted(request.own))
    shown = VisibleExample(key, (Segment("prompt", question.prompt), *options, cot))
    turns = made_prompt(TEMPLATE, Asking(m=request.m), shown).turns
    return Prompt((Message("user", "\n\n".join(turn.text for turn in turns)),))
