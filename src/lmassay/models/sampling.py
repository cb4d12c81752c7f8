"""What a subject model is asked and what it gives back, the same for a model in this process and behind a server."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lmassay.models.thinking import Thinking

#: What an engine may be able to do beside sampling.
PREFIX, LETTERS, VOCABULARY, PROMPT_LOGPROBS = "prefix", "letters", "vocabulary", "prompt_logprobs"
STOP, LENGTH = "stop", "length"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a continuation is drawn.

    Attributes
    ----------
    temperature : float
        0 takes the likeliest token.
    top_p : float
        Mass of the likeliest tokens that are drawn from.
    max_tokens : int
        Drawn at most; less where the model's context ends before.
    stop : tuple of str
        Texts that end a continuation; neither they nor what follows is part of it.

    Raises
    ------
    ValueError
        For values out of range, and for a bare string as `stop`, whose letters would all be stops.
    """

    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 8192
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        stop: object = self.stop
        if isinstance(stop, str):
            raise ValueError(f"stop is a tuple of texts, not the text {stop!r}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0 and 0 < self.top_p <= 1):
            raise ValueError(f"temperature {self.temperature} or top_p {self.top_p} is out of range")
        if self.max_tokens < 1 or not all(self.stop):
            raise ValueError("max_tokens is at least 1 and no stop is empty")


@dataclass(frozen=True, slots=True)
class Message:
    """One finished turn.

    Attributes
    ----------
    role : {"system", "user", "assistant"}
    """

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the subject is given.

    Attributes
    ----------
    messages : tuple of Message
        The turns before the assistant's own.
    prefix : str
        The beginning of the assistant's turn, continued exactly: thinking marker and chain of thought included.
    """

    messages: tuple[Message, ...]
    prefix: str = ""

    @classmethod
    def of(cls, question: str, prefix: str = "", *, system: str | None = None) -> Prompt:
        """One user's turn, after a system message or none."""
        before = () if system is None else (Message("system", system),)
        return cls((*before, Message("user", question)), prefix)

    def begun(self, prefix: str) -> Prompt:
        """The same turns with another beginning of the assistant's."""
        return Prompt(self.messages, prefix)


@dataclass(frozen=True, slots=True)
class Sample:
    """One continuation.

    Attributes
    ----------
    text : str
        Without the prefix.
    n_tokens : int
        Tokens drawn, one that ended the turn among them.
    finish : {"stop", "length"}
        Whether the model (or a stop text) ended it, or the limit of tokens.
    """

    text: str
    n_tokens: int
    finish: str


@dataclass(frozen=True, slots=True)
class LetterLogprobs:
    """Log-probabilities of letters as the next token, nats over the whole vocabulary.

    Attributes
    ----------
    letters : tuple of str
    low, high : tuple of float
        Equal where the value is known. A server returns only its likeliest tokens: a letter that is not among them
        lies between ``-inf`` and the smallest value returned (or what the returned ones leave, if that is less).
    """

    letters: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def exact(self) -> bool:
        """Whether every value is known."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class TokenKL:
    """Mean over a continuation's tokens of KL(full || other), nats.

    Attributes
    ----------
    value : float
    n_tokens : int
        Tokens of the continuation.
    lower_bound : bool
        True from a server, which tells only its likeliest tokens: the true value is at least this.
    """

    value: float
    n_tokens: int
    lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a piece of sampling is.

    Attributes
    ----------
    done, total : int
        Samples.
    tokens : int
        Drawn so far, those of unfinished samples included.
    seconds : float
        Since the start.
    """

    done: int
    total: int
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """0 before the first."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the samples so far; None before the first is done."""
        return self.seconds * (self.total - self.done) / self.done if self.done else None


#: Told now and then how far sampling is.
Progress = Callable[[Pace], None]
#: A prompt, how to continue it, and the sample's own seed.
Asked = tuple[Prompt, Sampling, int]


class Engine(Protocol):
    """A subject model that can be continued.

    Attributes
    ----------
    name : str
    fingerprint : str
        sha256 that changes with the model and with every setting that changes its numbers.
    can : frozenset of str
        ``prefix``: continues an assistant's prefix exactly. ``letters``: log-probabilities of given next tokens.
        ``vocabulary``: of all next tokens, so that KLs are exact. ``prompt_logprobs``: of the prompt's own tokens.
    thinking : Thinking
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def fingerprint(self) -> str: ...  # noqa: D102

    @property
    def can(self) -> frozenset[str]: ...  # noqa: D102

    @property
    def thinking(self) -> Thinking: ...  # noqa: D102

    def sample(
        self, asked: Sequence[Asked], *, each: Callable[[int, Sample], None], progress: Progress | None = None
    ) -> None:
        """Draw one continuation for each of `asked`; `each` gets its place in `asked` and the sample as it finishes."""
        ...

    def letters(self, prompts: Sequence[Prompt], letters: Sequence[Sequence[str]]) -> list[LetterLogprobs]:
        """For each prompt the log-probability of each of its letters (the bare letter's last token) as next token."""
        ...

    def token_kl(self, full: Prompt, others: Sequence[Prompt], continuation: str) -> list[TokenKL]:
        """For each of `others` the mean over the continuation's tokens of KL(full || other)."""
        ...
