"""Replies of a model in this process to prompts of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from lmassay.models.decoding import Decoder, Job, end_tokens
from lmassay.models.sampling import STOP, Sample, Sampling

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt.

    Attributes
    ----------
    ids : tuple of int
        Tokens, special ones included.
    max_tokens : int
        Of the reply.
    temperature : float
        0: the likeliest token each time.
    seed : int
        Of sampling; the same prompt and seed give the same reply in any batch.
    stop : tuple of str
        Texts at which the reply ends; they are left out of it.
    allowed : tuple of str
        The whole replies there may be; empty: any.
    """

    ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Generated:
    """One reply.

    Attributes
    ----------
    text : str
        Without special tokens.
    n_tokens : int
        Generated, the one that ends the reply included.
    ended : bool
        Whether the model (or a stop text) ended it, not the limit.
    """

    text: str
    n_tokens: int
    ended: bool


class Replier:
    """Replies of one model.

    Parameters
    ----------
    model : LanguageModel
    max_rows : int, optional
        Replies written at once; changes none.
    """

    def __init__(self, model: LanguageModel, *, max_rows: int | None = None) -> None:
        self._tokenizer = model.tokens.hf
        ends = end_tokens(model)
        #: What a reply of a given form ends with: the tokenizer's own end, or any the model knows.
        own = self._tokenizer.eos_token_id
        self._end = [own] if own in ends else sorted(ends)[:1]
        # A run's requests allow the same replies, of which there may be a hundred.
        self._whole = lru_cache(maxsize=16)(self._encoded)
        self._decoder = Decoder(model, ends, self._written, max_rows=max_rows)

    def __call__(
        self, requests: Sequence[Request], each: Callable[[int, Generated], None] | None = None
    ) -> list[Generated]:
        """Replies to any number of prompts, in their order.

        Parameters
        ----------
        each : callable, optional
            Is told the place of every reply, and the reply, as soon as it is there.
        """
        found: dict[int, Generated] = {}

        def told(at: int, sample: Sample) -> None:
            found[at] = Generated(sample.text, sample.n_tokens, sample.finish == STOP)
            if each is not None:
                each(at, found[at])

        self._decoder.run([self._job(at, request) for at, request in enumerate(requests)], told, None)
        return [found[at] for at in range(len(requests))]

    def _job(self, at: int, request: Request) -> Job:
        sampling = Sampling(request.temperature, max_tokens=request.max_tokens, stop=request.stop)
        return Job(at, request.ids, sampling, request.seed, request.max_tokens, self._whole(request.allowed))

    def _encoded(self, replies: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        return tuple((*self._tokenizer.encode(reply, add_special_tokens=False), *self._end) for reply in replies)

    def _written(self, before: Sequence[int], new: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(new), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text
