"""Replies of a model in this process: batches of like length, what all prompts begin with read once."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

#: A common beginning shorter than this is read again with each prompt.
LEAST_SHARED = 32


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


class _Sampling(LogitsProcessor):  # type: ignore[misc]
    """Makes the likeliest token a sample by adding Gumbel noise; every row has a generator of its own."""

    def __init__(self, requests: Sequence[Request]) -> None:
        # On the processor, so that every machine draws the same.
        self.rows = [
            (i, r.temperature, torch.Generator().manual_seed(r.seed))
            for i, r in enumerate(requests)
            if r.temperature > 0
        ]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        for i, temperature, generator in self.rows:
            uniform = torch.rand(scores.shape[1], generator=generator).clamp_min_(1e-20)
            scores[i] = scores[i] / temperature - torch.log(-torch.log(uniform)).to(scores)
        return scores


class _Allowed(LogitsProcessor):  # type: ignore[misc]
    """Leaves only tokens that continue one of the replies there may be."""

    def __init__(self, choices: Sequence[Sequence[tuple[int, ...]]], start: int) -> None:
        self.choices, self.start = choices, start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        for i, replies in enumerate(self.choices):
            if not replies:
                continue
            said = tuple(input_ids[i, self.start :].tolist())
            following = {r[len(said)] for r in replies if len(r) > len(said) and r[: len(said)] == said}
            if not following:
                # The reply is whole; what comes after its end is cut off.
                continue
            kept = torch.tensor(sorted(following), device=scores.device)
            masked = torch.full_like(scores[i], -torch.inf)
            masked[kept] = scores[i, kept]
            scores[i] = masked
        return scores


class Replier:
    """Replies of one model.

    Parameters
    ----------
    model : LanguageModel
    batch_tokens : int
        Tokens of a batch, padding included and the common beginning counted once for each prompt.
    """

    def __init__(self, model: LanguageModel, *, batch_tokens: int = 8192) -> None:
        self.model, self.batch_tokens = model, batch_tokens
        self.ends = end_tokens(model)
        # Renamed within version 5 of transformers.
        known = inspect.signature(model.hf.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"
        # What the last prompts began with, and its state: nearly all prompts of a run begin alike.
        self._begun: tuple[tuple[int, ...], Any] | None = None

    def __call__(self, requests: Sequence[Request]) -> list[Generated]:
        """Replies to any number of prompts, in their order."""
        found: dict[int, Generated] = {}
        for batch in batches(requests, self.batch_tokens):
            found |= zip(batch, self.batch([requests[i] for i in batch]), strict=True)
        return [found[i] for i in range(len(requests))]

    @torch.inference_mode()
    def batch(self, requests: Sequence[Request]) -> list[Generated]:
        """Replies to prompts that are read together."""
        tokenizer, device, ends = self.model.tokens.hf, self.model.device, self.ends
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0] if ends else 0
        shared, cache = self._beginning(requests)
        rests = [r.ids[shared:] for r in requests]
        width = max(len(rest) for rest in rests)
        # Padding stands between the common beginning and the rest, so that all rows end alike.
        rows = [(*r.ids[:shared], *[pad] * (width - len(rest)), *rest) for r, rest in zip(requests, rests, strict=True)]
        masks = [[1] * shared + [0] * (width - len(rest)) + [1] * len(rest) for rest in rests]
        start = shared + width
        choices = [
            tuple((*tokenizer.encode(a, add_special_tokens=False), *ends[:1]) for a in r.allowed) for r in requests
        ]
        out = self.model.hf.generate(
            input_ids=torch.tensor(rows, device=device),
            attention_mask=torch.tensor(masks, device=device),
            **{self._cache_name: cache},
            logits_processor=LogitsProcessorList([_Allowed(choices, start), _Sampling(requests)]),
            # A configuration of our own: that of a repository may sample, penalise or stop in ways nobody asked for.
            generation_config=GenerationConfig(
                max_new_tokens=max(r.max_tokens for r in requests),
                do_sample=False,
                eos_token_id=ends or None,
                pad_token_id=pad,
                use_cache=True,
            ),
        )
        return [_read(tokenizer, out[i, start:].tolist(), r, ends) for i, r in enumerate(requests)]

    def _beginning(self, requests: Sequence[Request]) -> tuple[int, Any]:
        """Tokens that all prompts begin with, and a state for each row; 0 and None where it is not worth it."""
        if self.model.window is not None:
            return 0, None
        n = common_beginning([r.ids for r in requests])
        held = self._begun
        if held is not None and 0.9 * n <= len(held[0]) < min(len(r.ids) for r in requests):
            ids, cache = held
            if all(r.ids[: len(ids)] == ids for r in requests):
                return len(ids), _repeated(cache, len(requests))
        if len(requests) < 2 or n < LEAST_SHARED:
            return 0, None
        ids = requests[0].ids[:n]
        cache = DynamicCache(config=self.model.hf.config)
        self.model.hf(
            input_ids=torch.tensor([ids], device=self.model.device),
            use_cache=True,
            **{self._cache_name: cache},
        )
        self._begun = ids, cache
        return n, _repeated(cache, len(requests))


def _repeated(cache: Any, n: int) -> Any:
    copied = copy.deepcopy(cache)
    copied.batch_repeat_interleave(n)
    return copied


def common_beginning(prompts: Sequence[tuple[int, ...]]) -> int:
    """Tokens all prompts begin with, short of the last one of any."""
    # Whatever the smallest and the largest share, all between them share.
    n = min(len(p) for p in prompts) - 1
    first, last = min(prompts), max(prompts)
    return next((i for i in range(n) if first[i] != last[i]), n)


def batches(requests: Sequence[Request], batch_tokens: int) -> list[list[int]]:
    """Places of prompts, the longest first, in runs whose padded size fits the budget."""
    found: list[list[int]] = []
    longest = 0
    for i in sorted(range(len(requests)), key=lambda i: -len(requests[i].ids)):
        if not found or longest * (len(found[-1]) + 1) > batch_tokens:
            longest = len(requests[i].ids) + requests[i].max_tokens
            found.append([])
        found[-1].append(i)
    return found


def end_tokens(model: LanguageModel) -> list[int]:
    """Tokens at which the model ends a reply."""
    named = [model.hf.generation_config.eos_token_id, model.tokens.hf.eos_token_id]
    found: list[int] = []
    for one in named:
        found += one if isinstance(one, list) else [one] if one is not None else []
    return list(dict.fromkeys(found))


def _read(tokenizer: Any, ids: list[int], request: Request, ends: Sequence[int]) -> Generated:
    """Cut a row at its end, its limit or a stop text."""
    n = next((i for i, token in enumerate(ids) if token in ends), len(ids))
    ended = n < min(len(ids), request.max_tokens)
    kept = ids[: min(n, request.max_tokens)]
    text = tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    cuts = [at for stop in request.stop if (at := text.find(stop)) >= 0]
    if cuts:
        text, ended = text[: min(cuts)], True
    return Generated(text, len(kept) + int(n < len(ids) and n < request.max_tokens), ended)
