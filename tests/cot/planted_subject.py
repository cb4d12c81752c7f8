"""A subject whose behaviour is known: what it says is a function of what it is asked and of the sample's number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmassay.cot.build.prompts import Question
from lmassay.cot.build.workshop import Workshop
from lmassay.models.sampling import LETTERS, PREFIX, STOP, VOCABULARY, LetterLogprobs, Sample, TokenKL
from lmassay.models.thinking import Thinking
from lmassay.seeds import generator

THINKING = Thinking("<think>", "</think>", "template")


@dataclass
class Planted:
    """An engine that is only ever asked for letters and KLs; samples come from `says`."""

    says: Callable[[Any, int], Sample] = lambda prompt, number: Sample("", 0, STOP)
    name: str = "planted"
    fingerprint: str = "0" * 64
    can: frozenset[str] = frozenset({PREFIX, LETTERS, VOCABULARY})
    thinking: Thinking = THINKING

    def draw(self, asked):
        return [[self.says(prompt, i) for i in range(n)] for prompt, _, n in asked]

    def sample(self, asked, *, each, progress=None):
        raise AssertionError("samples are drawn through `draw`")

    def letters(self, prompts, letters):
        return [self.logs(p, some) for p, some in zip(prompts, letters, strict=True)]

    def logs(self, prompt, letters):
        """Log-probabilities that depend on every character of the prompt; the letters hold half of the mass."""
        raw = generator(0, repr(prompt), "letters").normal(size=len(letters))
        logs = raw - np.log(np.exp(raw).sum()) + np.log(0.5)
        return LetterLogprobs(tuple(letters), tuple(logs), tuple(logs))

    def token_kl(self, full, others, continuation):
        return [TokenKL(float(len(full.prefix) - len(o.prefix)), len(continuation.split())) for o in others]


def whole(cot, answer="", n_tokens=None, finish=STOP):
    """A sample that thinks and answers."""
    text = f"{cot}\n</think>\n\n{answer}"
    return Sample(text, len(text.split()) if n_tokens is None else n_tokens, finish)


def shop_of(engine, questions, split=None, seed=0):
    """A workshop over these questions, all of split ``test`` unless said."""
    items = tuple(q if isinstance(q, Question) else Question(q, f"What of {q}?") for q in questions)
    return Workshop(engine, engine.draw, items, split or {q.id: "test" for q in items}, seed)
