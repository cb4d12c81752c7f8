"""The control that sees the prompt and not a word of what the model thought."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lmassay.examples import Segment, VisibleExample
from lmassay.methods.heads import LinearHead, sparse_rows
from lmassay.methods.method import Examples, Floats, Groups, Labels, Method, Validation, check_training
from lmassay.methods.registry import method
from lmassay.methods.tfidf import TfidfFeatures, kinds_of

_PROMPT = ("prompt", "option", "suggestion")


@method
class PromptOnly(Method):
    """TF-IDF of the prompt (of a conversation: its first turn), with the same head as `tfidf`."""

    id = "prompt_only"
    title = "TF-IDF, prompt only"
    needs = (("prompt",), ("message",))

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`."""
        check_training(y, self.kind)
        self._features = TfidfFeatures("prompt")
        self._head = LinearHead(self.kind)
        self._head.fit(sparse_rows([self._features.fit_transform(_prompts(X))]), y, groups)
        self.choices = {**self._head.choices, "n_features": len(self._head.weights)}

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        if not len(X):
            return np.zeros(0)
        return self._head.score(sparse_rows([self._features.transform(_prompts(X))]))


def _prompts(examples: Examples) -> Sequence[VisibleExample]:
    """The prompt segments alone."""
    kinds = [k for k in _PROMPT if k in kinds_of(examples)]
    found = []
    for example in examples:
        text = example.text(*kinds) if kinds else next((s.text for s in example.of("message")), "")
        found.append(VisibleExample(example.key, (Segment("prompt", text),)))
    return found
