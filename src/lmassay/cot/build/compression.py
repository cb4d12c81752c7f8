"""Task 9: what is lost when only some sentences of a chain of thought are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lmassay.cot.build.entropy import forced
from lmassay.cot.build.prompts import Question
from lmassay.cot.build.rules import Dropped
from lmassay.cot.build.selectors import SELECTORS, Prefix, chosen, kept_text, ranking
from lmassay.cot.build.sentences import joined, sentences
from lmassay.cot.build.workshop import Rollout, Row, Workshop
from lmassay.cot.compression import DELETION, KEPT, WHOLE
from lmassay.models.sampling import LetterLogprobs, Sampling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.models.attended import Attended


@dataclass(frozen=True, slots=True)
class Settings:
    """How task 9 is built.

    Attributes
    ----------
    rollouts : int
        Per question.
    shortest : int
        Sentences of the shortest prefix.
    step : int
        From one prefix length to the next.
    keep : tuple of int
        How many sentences are chosen (M).
    selectors : tuple of str
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=16384))
    rollouts: int = 1
    shortest: int = 15
    step: int = 1
    keep: tuple[int, ...] = (3, 5, 10, 15, 20)
    selectors: tuple[str, ...] = SELECTORS


def build(shop: Workshop, settings: Settings, attended: Attended | None = None) -> list[Row]:
    """Cells (`lmassay.cot.compression.SCHEMA`), a row for each prefix, M and selector.

    Parameters
    ----------
    attended : Attended, optional
        How much each sentence is attended to; without it the selectors by attention are left out.
    """
    found = shop.rollouts([(q.id, q.text()) for q in shop.questions], settings.sampling, settings.rollouts)
    by_id = {q.id: q for q in shop.questions}
    rows: list[Row] = []
    for rollout in (r for rollouts in found for r in rollouts):
        parts = sentences(rollout.cot)
        if not rollout.ended:
            shop.drop(Dropped.NO_END)
        elif len(parts) <= settings.shortest:
            shop.drop(Dropped.TOO_FEW_SENTENCES)
        else:
            # The last sentence is never in a prefix: it is the next one of the longest.
            for n in range(settings.shortest, len(parts), settings.step):
                shop.count("prefixes compressed", 1)
                rows += _cells(shop, by_id[rollout.question], rollout, parts, n, settings, attended)
    return rows


def _cells(
    shop: Workshop,
    question: Question,
    rollout: Rollout,
    parts: list[str],
    n: int,
    settings: Settings,
    attended: Attended | None,
) -> list[Row]:
    own, following = parts[:n], parts[n]
    region = n - KEPT
    asked = question.text()
    # The whole prefix, none of the region, and each of its sentences alone, in one call: they share their prompt.
    kept_alone: list[list[int]] = [list(range(region)), [], *([i] for i in range(region))]
    logs = _logs(shop, question, asked, own, kept_alone)
    whole = logs[0]
    from_last, from_next = attended(asked, own, following) if attended is not None else (None, None)
    prefix = Prefix(
        f"{question.id} {rollout.number} {n}",
        region,
        np.array([answer_kl(whole, one) for one in logs[2:]]),
        None if from_last is None else from_last[:region],
        None if from_next is None else from_next[:region],
    )
    cells: list[tuple[str, int, list[int] | None]] = [(WHOLE, region, None), (DELETION, 0, None)]
    for selector in settings.selectors:
        ranked = ranking(selector, prefix, shop.seed)
        if ranked is not None:
            cells += [(selector, m, chosen(ranked, m)) for m in settings.keep if m <= region]
    # Selectors often choose the same sentences: each choice is measured once.
    choices = [kept if kept is not None else list(range(m)) for _, m, kept in cells]
    distinct = list(dict.fromkeys(tuple(c) for c in choices))
    measured = dict(zip(distinct, _logs(shop, question, asked, own, [list(c) for c in distinct]), strict=True))
    begun = [shop.asking(asked, joined(kept_text(own, c, KEPT))) for c in distinct]
    full = shop.asking(asked, joined(own))
    kls = dict(zip(distinct, shop.engine.token_kl(full, begun, " " + following), strict=True))
    return [
        {
            "question": question.id, "prefix_length": n, "n_region": region, "m": m, "selector": selector,
            "indices": kept, "answer_kl": answer_kl(whole, measured[tuple(choice)]),
            "token_kl": kls[tuple(choice)].value, "floored_mass": 0.0, "rollout": rollout.number,
            "token_kl_lower_bound": kls[tuple(choice)].lower_bound, "answer_kl_exact": measured[tuple(choice)].exact,
        }
        for (selector, m, kept), choice in zip(cells, choices, strict=True)
    ]  # fmt: skip


def _logs(
    shop: Workshop, question: Question, asked: str, own: list[str], kept: list[list[int]]
) -> list[LetterLogprobs]:
    prompts = [forced(shop, asked, joined(kept_text(own, indices, KEPT))) for indices in kept]
    return shop.engine.letters(prompts, [question.letters] * len(prompts))


def answer_kl(whole: LetterLogprobs, kept: LetterLogprobs) -> float:
    """KL(whole || kept) among the letters, both normalised, nats; an unreturned letter counts by its bound."""
    p, q = _normalised(whole), _normalised(kept)
    return float((np.exp(p) * (p - q)).sum())


def _normalised(letters: LetterLogprobs) -> NDArray[np.float64]:
    logs = np.asarray(letters.high, np.float64)
    top = logs.max()
    return np.asarray(logs - top - np.log(np.exp(logs - top).sum()))
