"""The sampling engine over any OpenAI-compatible server: what it can do is tried before anything is asked of it.

With the model's tokenizer at hand prompts are rendered here and sent as tokens to the completions endpoint, which goes
on from exactly what it is given. Without it the chat endpoint is asked to continue the assistant's last message.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from lmassay.models.asking import WAIT, Rejected, Server
from lmassay.models.fingerprint import tokenizer_digest
from lmassay.models.rendering import Renderer
from lmassay.models.replies import bounded, chosen_text, lower_kl, tops_of
from lmassay.models.sampling import (
    LETTERS,
    PREFIX,
    PROMPT_LOGPROBS,
    Asked,
    LetterLogprobs,
    Pace,
    Progress,
    Prompt,
    Sample,
    Sampling,
    TokenKL,
)
from lmassay.models.server_probe import CONTINUE, probe
from lmassay.models.thinking import AUTO, read_thinking

if TYPE_CHECKING:
    from lmassay.models.tokens import TokenizerView

#: Servers hold a seed in 31 bits or more.
_SEED_MASK = (1 << 31) - 1


class Served:
    """A model behind a server as a subject.

    Parameters
    ----------
    url, model : str
        The address up to ``/v1``, and the model as the server names it.
    tokens : TokenizerView, optional
        The model's own tokenizer (`open_tokenizer`); needed for exact prefixes on most servers.
    thinking : str
        As `read_thinking` takes it.
    concurrency, retries, timeout, wait
        How many requests at a time, and how patiently.

    Attributes
    ----------
    notes : tuple of str
        What the server was found to lack, or to do its own way.

    Raises
    ------
    LmassayError
        ``server-failed``, ``server-cannot``.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        tokens: TokenizerView | None = None,
        thinking: str = AUTO,
        api_key: str | None = None,
        concurrency: int = 16,
        retries: int = 6,
        timeout: float = 600.0,
        wait: float = WAIT,
    ) -> None:
        self.server = Server(
            url, model, api_key=api_key, concurrency=concurrency, retries=retries, timeout=timeout, wait=wait
        )
        self.name = model
        self.thinking = read_thinking(tokens, thinking)
        self.renderer = None if tokens is None else Renderer(tokens, self.thinking)
        self._tokenizer = None if tokens is None else tokenizer_digest(tokens)
        self._ends = [] if self.renderer is None else _end_texts(self.renderer)
        self._found = probe(self.server, self.renderer)
        self.can = self._found.can
        self.notes = self._found.notes

    @property
    def fingerprint(self) -> str:
        """sha256 over the model's name on the server, the tokenizer and how it is asked; weights are not to be seen."""
        own = ["served", self.name, self._tokenizer, self._found.way, self._found.extra, self.thinking.describe()]
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()

    def sample(
        self, asked: Sequence[Asked], *, each: Callable[[int, Sample], None], progress: Progress | None = None
    ) -> None:
        """Draw one continuation for each of `asked`.

        Raises
        ------
        LmassayError
            ``server-failed``; ``server-cannot`` where a prompt has a prefix that the server does not continue.
        """
        if PREFIX not in self.can and any(prompt.prefix for prompt, _, _ in asked):
            raise self.server.cannot("it does not continue an assistant's turn exactly")
        begun = time.monotonic()
        done = tokens = 0

        def request(at: int) -> Callable[[Any], Awaitable[None]]:
            async def one(client: Any) -> None:
                nonlocal done, tokens
                prompt, sampling, seed = asked[at]
                sample = self._sample(await self._drawn(client, prompt, sampling, seed))
                each(at, sample)
                done, tokens = done + 1, tokens + sample.n_tokens
                if progress is not None:
                    progress(Pace(done, len(asked), tokens, time.monotonic() - begun))

            return one

        self.server.all([request(at) for at in range(len(asked))])

    def letters(self, prompts: Sequence[Prompt], letters: Sequence[Sequence[str]]) -> list[LetterLogprobs]:
        """Log-probabilities of letters among the server's likeliest next tokens; the others are bounded.

        Raises
        ------
        LmassayError
            ``server-cannot`` without log-probabilities or without continuation.
        """
        if not {PREFIX, LETTERS} <= self.can:
            lacking = "log-probabilities" if LETTERS not in self.can else "continuation of an assistant's turn"
            raise self.server.cannot(f"letters need {lacking}, which it lacks")

        def request(at: int) -> Callable[[Any], Awaitable[LetterLogprobs]]:
            async def one(client: Any) -> LetterLogprobs:
                reply = await self._asked(client, prompts[at], Sampling(1.0, max_tokens=1), 0, logprobs=True)
                tops = tops_of(reply)
                if not tops or not tops[0]:
                    raise self.server.nonsense("a reply without log-probabilities, though the first one had them")
                low, high = zip(*(bounded(tops[0], self._spellings(letter)) for letter in letters[at]), strict=True)
                return LetterLogprobs(tuple(letters[at]), low, high)

            return one

        return self.server.all([request(at) for at in range(len(prompts))])

    def token_kl(self, full: Prompt, others: Sequence[Prompt], continuation: str) -> list[TokenKL]:
        """Lower bounds: over the likeliest tokens that both prompts report, and one bucket for all others.

        Raises
        ------
        LmassayError
            ``server-cannot`` where the server does not tell the log-probabilities of a prompt's own tokens.
        """
        if PROMPT_LOGPROBS not in self.can or self.renderer is None:
            raise self.server.cannot("token KL needs log-probabilities of the prompt's own tokens, which it lacks")
        own = self.renderer.tokens.encode(continuation)

        def request(prompt: Prompt) -> Callable[[Any], Awaitable[list[dict[str, float]]]]:
            async def one(client: Any) -> list[dict[str, float]]:
                assert self.renderer is not None
                ids = [*self.renderer.ids(prompt), *own]
                reply = await self._complete(client, ids, Sampling(1.0, max_tokens=1), 0, logprobs=True, echo=True)
                tops = tops_of(reply)[len(ids) - len(own) : len(ids)]
                if len(tops) < len(own) or not all(tops):
                    raise self.server.nonsense(f"log-probabilities of {len(tops)} tokens where {len(ids)} were given")
                return tops

            return one

        reference, *compared = self.server.all([request(prompt) for prompt in (full, *others)])
        return [
            TokenKL(math.fsum(map(lower_kl, reference, tops)) / len(own), len(own), lower_bound=True)
            for tops in compared
        ]

    def _spellings(self, letter: str) -> tuple[str, ...]:
        """How a letter's token may be written in a reply."""
        if self.renderer is None:
            return (letter,)
        token = self.renderer.letter_token(letter)
        return (f"token_id:{token}", self.renderer.tokens.hf.decode([token]), letter)

    async def _drawn(self, client: Any, prompt: Prompt, sampling: Sampling, seed: int) -> Any:
        return await self._asked(client, prompt, sampling, seed, logprobs=False)

    async def _asked(self, client: Any, prompt: Prompt, sampling: Sampling, seed: int, *, logprobs: bool) -> Any:
        if self._found.way != "chat":
            assert self.renderer is not None
            given = self.renderer.ids(prompt) if self._found.way == "tokens" else self.renderer.text(prompt)
            return await self._complete(client, given, sampling, seed, logprobs=logprobs)
        turns = [{"role": m.role, "content": m.text} for m in prompt.messages]
        extra: dict[str, Any] = dict(self._found.extra)
        if prompt.prefix:
            turns.append({"role": "assistant", "content": prompt.prefix})
            extra |= CONTINUE
        more = {"logprobs": True, "top_logprobs": self._found.top} if logprobs else {}
        return await self._answered(
            lambda: client.chat.completions.create(
                model=self.name, messages=turns, extra_body=extra, **_settings(sampling, seed), **more
            )
        )

    async def _complete(
        self, client: Any, given: Any, sampling: Sampling, seed: int, *, logprobs: bool, echo: bool = False
    ) -> Any:
        more: dict[str, Any] = {"logprobs": self._found.top} if logprobs else {}
        if echo:
            more["echo"] = True
        return await self._answered(
            lambda: client.completions.create(
                model=self.name,
                prompt=given,
                extra_body=dict(self._found.extra),
                **_settings(sampling, seed),
                **more,
            )
        )

    async def _answered(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await self.server.patiently(ask)
        except Rejected as error:
            raise self.server.failed(f"a request was refused: {error}") from error

    def _sample(self, reply: Any) -> Sample:
        text, finish, n_tokens = chosen_text(self.server, reply)
        for end in self._ends:
            text = text.removesuffix(end)
        return Sample(text, n_tokens, finish)


def _settings(sampling: Sampling, seed: int) -> dict[str, Any]:
    given: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": seed & _SEED_MASK,
    }
    return given | ({"stop": list(sampling.stop)} if sampling.stop else {})


def _end_texts(renderer: Renderer) -> list[str]:
    """Texts of the tokens that end a turn: asked to show special tokens, some servers show these too."""
    hf = renderer.tokens.hf
    ends = renderer.end_of_turn() | ({hf.eos_token_id} if hf.eos_token_id is not None else set())
    return [hf.decode([i]) for i in sorted(ends)]
