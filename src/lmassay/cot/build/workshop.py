"""What every builder works with: the subject, its stored samples, the questions, and a book of what was dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmassay.cot.build.rules import Dropped
from lmassay.models.sampling import STOP, Prompt, Sample, Sampling

if TYPE_CHECKING:
    from lmassay.cot.build.prompts import Question
    from lmassay.models.sampling import Engine

#: A row of the data set.
Row = dict[str, Any]
#: What is drawn: a prompt, how it is sampled, and how many samples.
Asked = tuple[Prompt, Sampling, int]
#: Draws what is not stored yet; samples come back in the order asked for.
Draw = Callable[[Sequence[Asked]], list[list[Sample]]]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A sample taken apart.

    Attributes
    ----------
    number : int
        Of the sample among its prompt's.
    cot : str
        The chain of thought.
    answer : str
        What stands after it.
    ended : bool
        Whether the chain of thought, and the answer after it, came to an end.
    """

    question: str
    number: int
    cot: str
    answer: str
    ended: bool


@dataclass
class Workshop:
    """The subject and what has been asked of it.

    Attributes
    ----------
    engine : Engine
    draw : callable
    questions : tuple of Question
    split : mapping of question id to split
    seed : int
    dropped : Counter of reason
        Candidates that are not in the data, by reason.
    counts : dict
        What else the card says: rollouts drawn, questions that qualified.
    examples : list of dict
        Of task 9, whose rows are no examples: the prefixes that sentences are chosen from.
    """

    engine: Engine
    draw: Draw
    questions: tuple[Question, ...]
    split: dict[str, str]
    seed: int
    dropped: Counter[Dropped] = field(default_factory=Counter)
    counts: dict[str, int] = field(default_factory=dict)
    examples: list[Row] = field(default_factory=list)

    def drop(self, reason: Dropped, n: int = 1) -> None:
        """Note candidates that are left out."""
        if n:
            self.dropped[reason] += n

    def count(self, what: str, n: int) -> None:
        """Note a number for the card."""
        self.counts[what] = self.counts.get(what, 0) + n

    def asking(self, text: str, prefix: str = "") -> Prompt:
        """One user turn, and the assistant's begun with its thinking marker and a chain of thought so far."""
        thinking = self.engine.thinking
        return Prompt.of(thinking.asking(text), thinking.begun(prefix))

    def answering(self, text: str, cot: str) -> Prompt:
        """One user turn, and the assistant's with this whole chain of thought, where its answer begins."""
        thinking = self.engine.thinking
        return Prompt.of(thinking.asking(text), thinking.ended(cot))

    def rollouts(self, texts: Sequence[tuple[str, str]], sampling: Sampling, n: int) -> list[list[Rollout]]:
        """`n` rollouts of each (question id, what is asked), taken apart."""
        prompts = [self.asking(text) for _, text in texts]
        found = self.draw([(prompt, sampling, n) for prompt in prompts])
        self.count("rollouts", sum(map(len, found)))
        return [
            [self._taken_apart(question, number, sample) for number, sample in enumerate(samples)]
            for (question, _), samples in zip(texts, found, strict=True)
        ]

    def finished(self, rollouts: Iterable[Rollout], *, said: bool = False) -> list[Rollout]:
        """Those that came to an end; the others are noted, and with `said` those that thought nothing."""
        kept = []
        for rollout in rollouts:
            if not rollout.ended:
                self.drop(Dropped.NO_END)
            elif said and not rollout.cot.strip():
                self.drop(Dropped.EMPTY)
            else:
                kept.append(rollout)
        return kept

    def _taken_apart(self, question: str, number: int, sample: Sample) -> Rollout:
        thinking = self.engine.thinking
        cot, answer = thinking.parted(thinking.begun() + sample.text)
        return Rollout(question, number, cot, answer or "", answer is not None and sample.finish == STOP)


def kept_back(kept: Sequence[Any], candidates: Sequence[Any]) -> int:
    """How many candidates are not among those kept."""
    return len(candidates) - len(kept)
