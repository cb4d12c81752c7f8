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
    from lmassay.models.sampling import Engine, LetterLogprobs, Sample, TokenKL

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
    answer_exact, token_lower_bound : bool
        Whether every letter's log-probability is known, and whether the token KL is only bounded.
    """

    answer_kl: float
    token_kl: float | None
    answer_exact: bool = True
    token_lower_bound: bool = False


def kept_costs(
    shop: Workshop, question: Question, own: tuple[str, ...], following: str | None, choices: Iterable[Choice]
) -> dict[Choice, Cost]:
    """Each distinct choice against the whole prefix, which is always among them and costs nothing.

    Parameters
    ----------
    own : tuple of str
        The prefix's sentences; the last `KEPT` are always kept.
    following : str or None
        The sentence that the subject wrote next.
    """
    asked = question.text()
    everything = tuple(range(len(own) - KEPT))
    distinct = list(dict.fromkeys([everything, *choices]))
    texts = [joined(kept_text(own, choice, KEPT)) for choice in distinct]
    logs = forced_letters(shop, question, own, distinct)
    tokens: list[TokenKL | None] = [None] * len(texts)
    if following is not None:
        full = shop.asking(asked, joined(list(own)))
        tokens = [*shop.engine.token_kl(full, [shop.asking(asked, text) for text in texts], f" {following}")]
    return {
        choice: Cost(
            answer_kl(logs[0], log),
            None if token is None else token.value,
            log.exact,
            token is not None and token.lower_bound,
        )
        for choice, log, token in zip(distinct, logs, tokens, strict=True)
    }


def forced_letters(
    shop: Workshop, question: Question, own: tuple[str, ...], choices: Sequence[Choice]
) -> list[LetterLogprobs]:
    """The letters after an answer forced behind what each choice keeps of a prefix, in one call: they share much."""
    prompts = [forced(shop, question.text(), joined(kept_text(own, choice, KEPT))) for choice in choices]
    return shop.engine.letters(prompts, [question.letters] * len(prompts))


def measuring(engine: Engine) -> Workshop:
    """A workshop that draws no sample, for costs alone."""
    return Workshop(engine, _draws_nothing, (), {}, 0)


def _draws_nothing(_: Sequence[Asked]) -> list[list[Sample]]:
    raise AssertionError("costs are measured without a sample")
