"""The sampling engine over a model in this process: exact log-probabilities, and one sample whatever the batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lmassay.errors import LmassayError
from lmassay.models.branches import end_states
from lmassay.models.check import PACKING_SLACK, tolerance
from lmassay.models.decoding import Decoder, Job, end_tokens
from lmassay.models.readout import lens_logits
from lmassay.models.rendering import Renderer
from lmassay.models.sampling import (
    LETTERS,
    PREFIX,
    VOCABULARY,
    Asked,
    LetterLogprobs,
    Progress,
    Prompt,
    Sample,
    TokenKL,
)
from lmassay.models.thinking import AUTO, read_thinking

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

#: Positions whose whole distributions are held at once.
POSITIONS = 64


class InProcess:
    """A model of this process as a subject.

    Parameters
    ----------
    model : LanguageModel
    thinking : str
        As `read_thinking` takes it.
    max_rows, cache_bytes : int, optional
        Bounds of the batch that samples are drawn in; they change no sample.

    Raises
    ------
    LmassayError
        ``model-failed-self-check`` when rows of several lengths, joined and continued, are not what each is alone.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        thinking: str = AUTO,
        max_rows: int | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        self.model = model
        self.name = model.name
        self.thinking = read_thinking(model.tokens, thinking)
        self.renderer = Renderer(model.tokens, self.thinking)
        self.can = frozenset({PREFIX, LETTERS, VOCABULARY})
        self._ends = end_tokens(model) | self.renderer.end_of_turn()
        self._decoder = Decoder(model, self._ends, self.renderer.written, max_rows=max_rows, cache_bytes=cache_bytes)
        self._packed = _checked(model)

    @property
    def fingerprint(self) -> str:
        """sha256 over weights, tokenizer, configuration, precision, and how turns are written and ended."""
        own = self.model.fingerprint
        convention = self.model.convention()
        parts = [own.weights, own.tokenizer, own.config, convention["dtype"], convention["attention"]]
        return hashlib.sha256(json.dumps([*parts, self.thinking.describe(), sorted(self._ends)]).encode()).hexdigest()

    def sample(
        self, asked: Sequence[Asked], *, each: Callable[[int, Sample], None], progress: Progress | None = None
    ) -> None:
        """Draw one continuation for each of `asked`.

        Raises
        ------
        LmassayError
            ``prompt-too-long``, ``tokenizer-not-usable``, ``non-finite-logits``.
        """
        ids: dict[Prompt, tuple[int, ...]] = {}
        jobs = []
        for at, (prompt, sampling, seed) in enumerate(asked):
            if prompt not in ids:
                ids[prompt] = tuple(self._ids(prompt))
            limit = sampling.max_tokens
            if self.model.context_length is not None:
                limit = min(limit, self.model.context_length - len(ids[prompt]))
            if limit < 1:
                raise self._too_long(len(ids[prompt]))
            jobs.append(Job(at, ids[prompt], sampling, seed, limit))
        self._decoder.run(jobs, each, progress)

    @torch.inference_mode()
    def letters(self, prompts: Sequence[Prompt], letters: Sequence[Sequence[str]]) -> list[LetterLogprobs]:
        """Exact log-probabilities; prompts with the same turns are run as branches of the longest one.

        Raises
        ------
        LmassayError
            ``bad-request`` where two letters of one prompt end in the same token.
        """
        tokens = [self._letter_tokens(own) for own in letters]
        found: list[LetterLogprobs | None] = [None] * len(prompts)
        by_turns: dict[Any, list[int]] = {}
        for at, prompt in enumerate(prompts):
            by_turns.setdefault(prompt.messages, []).append(at)
        for members in by_turns.values():
            states = torch.cat(self._ends_of([self._ids(prompts[at]) for at in members], [1] * len(members)))
            for start in range(0, len(members), POSITIONS):
                part = members[start : start + POSITIONS]
                log_probs = torch.log_softmax(lens_logits(self.model, states[start : start + POSITIONS]), -1).cpu()
                for at, row in zip(part, log_probs, strict=True):
                    values = tuple(row[tokens[at]].double().tolist())
                    found[at] = LetterLogprobs(tuple(letters[at]), values, values)
        return [one for one in found if one is not None]

    @torch.inference_mode()
    def token_kl(self, full: Prompt, others: Sequence[Prompt], continuation: str) -> list[TokenKL]:
        """Exact KLs over the whole vocabulary, a few positions at a time.

        The continuation is encoded by itself, so that it has the same tokens after every prompt.

        Raises
        ------
        LmassayError
            ``bad-request`` for an empty continuation.
        """
        own, _ = self.renderer.joins(full, continuation)
        if not own:
            raise LmassayError("bad-request", "an empty continuation has no tokens to compare", "give its text")
        # The state before each token of the continuation: the prompt's last one, and all but the continuation's last.
        sequences = [[*self._ids(prompt), *own[:-1]] for prompt in (full, *others)]
        reference, *compared = self._ends_of(sequences, [len(own)] * len(sequences))
        sums = torch.zeros(len(compared), dtype=torch.float64)
        for start in range(0, len(own), POSITIONS):
            log_p = torch.log_softmax(lens_logits(self.model, reference[start : start + POSITIONS]).double(), -1)
            for which, states in enumerate(compared):
                log_q = torch.log_softmax(lens_logits(self.model, states[start : start + POSITIONS]).double(), -1)
                sums[which] += _kl(log_p, log_q).sum().cpu()
        return [TokenKL(max(0.0, total / len(own)), len(own)) for total in sums.tolist()]

    def _ends_of(self, sequences: Sequence[Sequence[int]], last: Sequence[int]) -> list[Tensor]:
        return end_states(self.model, sequences, last, packed=None if self._packed else False)

    def _ids(self, prompt: Prompt) -> list[int]:
        ids = self.renderer.ids(prompt)
        if not ids:
            raise LmassayError("bad-request", "an empty prompt has no tokens", "give the model some text")
        if self.model.context_length is not None and len(ids) > self.model.context_length:
            raise self._too_long(len(ids))
        return ids

    def _too_long(self, n: int) -> LmassayError:
        return LmassayError(
            "prompt-too-long",
            f"a prompt of {n} tokens leaves no room in a context of {self.model.context_length}",
            "shorten it, or choose a model with a longer context",
        )

    def _letter_tokens(self, letters: Sequence[str]) -> list[int]:
        tokens = [self.renderer.letter_token(letter) for letter in letters]
        if len(set(tokens)) < len(tokens):
            raise LmassayError(
                "bad-request",
                f"of the answers {', '.join(letters)} two end in the same token",
                "use answers that differ in their last token",
            )
        return tokens


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """(n, vocabulary) twice -> (n,) KL(p || q); what p gives no mass adds nothing."""
    terms = log_p.exp() * (log_p - log_q)
    return torch.where(log_p == -torch.inf, 0.0, terms).sum(-1)


def _checked(model: LanguageModel) -> bool:
    """Whether tails may share a row; refuses a model whose joined rows are not what each is alone."""
    n = min(model.anatomy.embedding.num_embeddings, model.anatomy.head.out_features)
    ids = torch.randint(0, n, (16,), generator=torch.Generator().manual_seed(0)).tolist()
    sequences = [ids[:12], [*ids[:9], ids[12]], [*ids[:5], *ids[13:16]], [*ids[:2], ids[15]]]
    alone = [lens_logits(model, end_states(model, [one], [1])[0]) for one in sequences]
    allowed = PACKING_SLACK * tolerance(model.dtype, float(max(one.abs().max() for one in alone)))

    def gap(packed: bool) -> float:
        branched = [lens_logits(model, states) for states in end_states(model, sequences, [1] * 4, packed=packed)]
        return max(
            float((torch.log_softmax(a, -1) - torch.log_softmax(b, -1)).abs().max())
            for a, b in zip(alone, branched, strict=True)
        )

    rows = gap(packed=False)
    if not rows <= allowed:
        raise LmassayError(
            "model-failed-self-check",
            f"{model.name}: rows that continue a shared prompt differ from each alone by {rows:.2g} nats"
            f" (allowed: {allowed:.2g})",
            "its prompt cache is not used rightly, so nothing is sampled; report its family",
        )
    if not model.packing:
        return False
    try:
        return gap(packed=True) <= allowed
    except (TypeError, ValueError, RuntimeError, IndexError):
        # As with a block mask without a cache: families refuse it in many ways.
        return False
