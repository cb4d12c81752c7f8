"""What it costs a subject to read only some sentences of a prefix, for choices that were made elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmassay.cot.build.entropy import forced
from lmassay.cot.build.letters import answer_kl
from lmassay.cot.build.selectors import kept_text
from lmassay.cot.build.sentences import joined
from lmassay.cot.build.workshop import Workshop
from lmassay.cot.compression import KEPT

if TYPE_CHECKING:
    from lmassay.cot.build.prompts import Question
    from lmassay.cot.build.workshop import Asked
    from lmassay.models.sampling import Engine, Sample

#: Sentences of the region, ascending from 0.
Choice = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What is lost, in nats.

    Attributes
    ----------
    answer_kl : float
        KL of the forced answer, among the letters.
    token_kl : float or None
        Mean KL over the tokens of the next sentence; None where that sentence is not known.
    """

    answer_kl: float
    token_kl: float | None


def kept_costs(
    engine: Engine, question: Question, own: tuple[str, ...], following: str | None, choices: Iterable[Choice]
) -> dict[Choice, Cost]:
    """Each distinct choice against the whole prefix, which is always among them and costs nothing.

    Parameters
    ----------
    own : tuple of str
        The prefix's sentences; the last `KEPT` are always kept.
    following : str or None
        The sentence that the subject wrote next.
    """
    shop = Workshop(engine, _draws_nothing, (), {}, 0)
    asked = question.text()
    everything = tuple(range(len(own) - KEPT))
    distinct = list(dict.fromkeys([everything, *choices]))
    texts = [joined(kept_text(own, choice, KEPT)) for choice in distinct]
    logs = engine.letters([forced(shop, asked, text) for text in texts], [question.letters] * len(texts))
    tokens: list[float | None] = [None] * len(texts)
    if following is not None:
        full = shop.asking(asked, joined(list(own)))
        found = engine.token_kl(full, [shop.asking(asked, text) for text in texts], f" {following}")
        tokens = [one.value for one in found]
    return {
        choice: Cost(answer_kl(logs[0], log), token) for choice, log, token in zip(distinct, logs, tokens, strict=True)
    }


def _draws_nothing(_: Sequence[Asked]) -> list[list[Sample]]:
    raise AssertionError("costs are measured without a sample")
