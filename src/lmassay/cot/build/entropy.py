"""Task 8: prefixes of chains of thought with the entropy of the answer that is forced after them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from lmassay.cot.build.letters import log_shares
from lmassay.cot.build.rules import Dropped
from lmassay.cot.build.sentences import joined, sentences
from lmassay.cot.build.workshop import Rollout, Row, Workshop
from lmassay.measures.divergence import entropies
from lmassay.models.sampling import Prompt, Sampling

#: What is put between a cut chain of thought and the answer.
FORCING = "So, the answer is:"


@dataclass(frozen=True, slots=True)
class Settings:
    """How task 8 is built.

    Attributes
    ----------
    rollouts : int
        Per question.
    most : int
        Sentence boundaries of a rollout, from its beginning.
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=16384))
    rollouts: int = 10
    most: int = 30


def build(shop: Workshop, settings: Settings) -> list[Row]:
    """Rows of the data set: a prefix of whole sentences, the first one empty, and the entropy in nats."""
    by_id = {q.id: q for q in shop.questions}
    found = shop.rollouts([(q.id, q.text()) for q in shop.questions], settings.sampling, settings.rollouts)
    places: list[tuple[Rollout, int, str]] = []
    for rollout in shop.finished(chain.from_iterable(found)):
        parts = sentences(rollout.cot)
        if len(parts) < 2:
            shop.drop(Dropped.TOO_FEW_SENTENCES)
            continue
        places += [(rollout, k, joined(parts[:k])) for k in range(min(len(parts), settings.most) + 1)]
    shop.count("answers forced", len(places))
    prompts = [forced(shop, by_id[r.question].text(), text) for r, _, text in places]
    letters = shop.engine.letters(prompts, [by_id[r.question].letters for r, _, _ in places])
    rows: list[Row] = []
    for (rollout, k, text), found_letters in zip(places, letters, strict=True):
        p = np.exp(log_shares(found_letters))
        rows.append({
            "example_id": f"{rollout.question} {rollout.number} {k}", "split": shop.split[rollout.question],
            "question_id": rollout.question, "label": float(entropies(p)),
            "prompt": by_id[rollout.question].prompt, "cot": text, "sentence_idx": k, "rollout": rollout.number,
            "option": by_id[rollout.question].lettered,
            "distribution": p.tolist(), "bounded": not found_letters.exact,
        })  # fmt: skip
    return rows


def forced(shop: Workshop, asked: str, cot: str) -> Prompt:
    """The prompt that makes the model answer after a cut chain of thought."""
    return shop.answering(asked, f"{cot} {FORCING}" if cot else FORCING)
