"""Many continuations at once: rows join and leave a running batch, and each draws from its own stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lmassay.models.branches import run_chain, shared
from lmassay.models.draws import Stream, draw
from lmassay.models.kv import Past, bytes_per_token, free_bytes, joined, new_cache
from lmassay.models.readout import lens_logits
from lmassay.models.sampling import LENGTH, STOP, Pace, Progress, Sample, Sampling
from lmassay.models.trace import Batch, trace

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

#: Slots added at a time: each time the rows are copied.
ROOM = 256
#: Rows at most, on a CPU and on a card: more only make each step slower.
CPU_ROWS, CARD_ROWS = 64, 256
#: Tokens one character may take at most.
_STOP_TOKENS = 4
#: Seconds between two reports of progress.
_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """One continuation to draw.

    Attributes
    ----------
    at : int
        Its place among those asked for.
    ids : tuple of int
        The prompt's tokens.
    limit : int
        Tokens at most.
    allowed : tuple of tuples of int
        The only continuations there may be; empty: any.
    """

    at: int
    ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    limit: int
    allowed: tuple[tuple[int, ...], ...] = ()


@dataclass
class Row:
    """A continuation being drawn.

    Attributes
    ----------
    new : list of int
        Its tokens so far; the last has not been through the model.
    length : int
        Tokens the cache holds of it.
    """

    job: Job
    stream: Stream
    length: int
    new: list[int] = field(default_factory=list)
    done: bool = False

    def following(self) -> list[int]:
        """Tokens with which one of the allowed continuations goes on; none where it is whole."""
        n, said = len(self.new), tuple(self.new)
        return sorted({one[n] for one in self.job.allowed if len(one) > n and one[:n] == said})


@dataclass
class _Prefilled:
    """The last prompt that was run, kept for its other samples and for prompts that begin alike."""

    ids: tuple[int, ...] = ()
    cache: Any = None
    logits: Tensor | None = None


def end_tokens(model: LanguageModel) -> set[int]:
    """Every token that the model's files name as an end."""
    found: set[int] = set()
    named = [getattr(model.hf.config.get_text_config(), "eos_token_id", None), model.tokens.hf.eos_token_id]
    named.append(getattr(getattr(model.hf, "generation_config", None), "eos_token_id", None))
    for ids in named:
        found |= set(ids) if isinstance(ids, (list, tuple)) else set() if ids is None else {ids}
    return {int(i) for i in found}


class Decoder:
    """Draws jobs in a batch that is filled up as rows finish.

    Parameters
    ----------
    ends : set of int
        Tokens that end a turn.
    written : callable
        ``(tokens before, new tokens) -> text`` of the new ones.
    max_rows, cache_bytes : int, optional
        Bounds of the batch.
    """

    def __init__(
        self,
        model: LanguageModel,
        ends: set[int],
        written: Callable[[Sequence[int], Sequence[int]], str],
        *,
        max_rows: int | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        self.model = model
        self.ends = ends
        self.written = written
        self.max_rows = max_rows or (CPU_ROWS if model.device.type == "cpu" else CARD_ROWS)
        self.cache_bytes = cache_bytes
        self._prefilled = _Prefilled()

    @torch.inference_mode()
    def run(self, jobs: Sequence[Job], each: Callable[[int, Sample], None], progress: Progress | None) -> None:
        """Draw all jobs; `each` gets a job's place and its sample as soon as it is finished."""
        # Samples of one prompt follow each other, and prompts that begin alike too, the longest first.
        waiting = sorted(jobs, key=lambda job: (job.ids[:ROOM], -len(job.ids), job.ids, job.at), reverse=True)
        budget = self.cache_bytes or free_bytes(self.model.device)
        rows: list[Row] = []
        cache: Any = None
        begun = told = time.monotonic()
        finished, tokens = 0, 0
        while waiting or rows:
            cache, rows, ended = self._filled(cache, rows, waiting, budget)
            tokens += len(ended) + sum(len(row.new) == 1 for row in rows)
            leave = max(1, len(rows) // (8 if waiting else 4))
            while True:
                for row in ended:
                    each(row.job.at, self._sample(row))
                    finished += 1
                if progress is not None and (ended or time.monotonic() - told > _EVERY):
                    told = time.monotonic()
                    progress(Pace(finished, len(jobs), tokens, told - begun))
                alive = sum(not row.done for row in rows)
                if not alive or len(rows) - alive >= leave or cache.layers[0].used == cache.layers[0].held[0].shape[-2]:
                    break
                ended = self._step(cache, rows)
                tokens += alive
        self._prefilled = _Prefilled()

    def _step(self, cache: Any, rows: list[Row]) -> list[Row]:
        """One token for every row; returns those that ended with it."""
        device = self.model.device
        used = cache.layers[0].used
        length = torch.tensor([row.length for row in rows])
        mask = (torch.arange(used + 1) >= used - length[:, None]).long()
        position = length[:, None]
        if self.model.context_length is not None:
            # A row that has ended stays until it is taken out, perhaps past the last place the model knows.
            position = position.clamp_max(self.model.context_length - 1)
        ids = torch.tensor([[row.new[-1]] for row in rows])
        every = torch.arange(len(rows))
        batch = Batch(ids.to(device), mask.to(device), position.to(device))
        seen = trace(self.model, batch, every, torch.zeros_like(every), [self.model.n_blocks], cache=cache)
        for row in rows:
            row.length += 1
        return self._drawn(lens_logits(self.model, seen.states[0]), rows)

    def _drawn(self, logits: Tensor, rows: list[Row]) -> list[Row]:
        """Draw a token for each row that goes on, and see which ended."""
        temperature = torch.tensor([row.job.sampling.temperature for row in rows])
        top_p = torch.tensor([row.job.sampling.top_p for row in rows])
        uniform = torch.tensor([0.0 if row.done else row.stream.next() for row in rows], dtype=torch.float64)
        only = {i: row.following() for i, row in enumerate(rows) if row.job.allowed and not row.done}
        ended = []
        for row, token in zip(rows, draw(logits, temperature, top_p, uniform, only).tolist(), strict=True):
            if row.done:
                continue
            row.new.append(token)
            whole = bool(row.job.allowed) and not row.following()
            if token in self.ends or whole or len(row.new) >= row.job.limit or self._stopped(row):
                row.done = True
                ended.append(row)
        return ended

    def _stopped(self, row: Row) -> bool:
        stops = row.job.sampling.stop
        if not stops:
            return False
        n = _STOP_TOKENS * (max(map(len, stops)) + 1)
        before = row.new[:-n] if len(row.new) > n else row.job.ids
        text = self.written(before, row.new[-n:])
        return any(stop in text for stop in stops)

    def _sample(self, row: Row) -> Sample:
        natural = row.new[-1] in self.ends
        text = self.written(row.job.ids, row.new[:-1] if natural else row.new)
        places = [at for at in map(text.find, row.job.sampling.stop) if at >= 0]
        ended = natural or bool(places) or tuple(row.new) in row.job.allowed
        return Sample(text[: min(places)] if places else text, len(row.new), STOP if ended else LENGTH)

    def _filled(self, cache: Any, rows: list[Row], waiting: list[Job], budget: int) -> tuple[Any, list[Row], list[Row]]:
        """Take ended rows out, let waiting jobs in, and make room; also returns those that ended with one token."""
        kept = [(i, row) for i, row in enumerate(rows) if not row.done]
        used = 0 if cache is None else cache.layers[0].used
        pasts = [Past(cache, i, used - row.length, used) for i, row in kept]
        staying = [row for _, row in kept]
        ended: list[Row] = []
        while waiting and len(staying) < self.max_rows:
            job = waiting[-1]
            longest = max([len(job.ids), *map(len, pasts)])
            if staying and self._price(pasts, longest) * (len(staying) + 1) > budget:
                break
            waiting.pop()
            filled = self._prefill(job.ids)
            row = Row(job, Stream(job.seed), len(job.ids))
            assert filled.logits is not None
            if self._drawn(filled.logits, [row]):
                ended.append(row)
                continue
            staying.append(row)
            pasts.append(Past(filled.cache, 0, 0, len(job.ids)))
        if not staying:
            return None, [], ended
        room = min(ROOM, max(row.job.limit - len(row.new) for row in staying))
        return joined(self.model, pasts, room, release=cache), staying, ended

    def _price(self, pasts: Sequence[Past], longest: int) -> int:
        return bytes_per_token(self.model, pasts[0].cache) * (longest + ROOM)

    def _prefill(self, ids: tuple[int, ...]) -> _Prefilled:
        """Run a prompt, from where it leaves the one before."""
        before = self._prefilled
        if before.ids == ids:
            return before
        common = min(shared(before.ids, ids), len(ids) - 1)
        if common:
            cache = joined(self.model, [Past(before.cache, 0, 0, common)], len(ids) - common)
        else:
            cache = new_cache(self.model)
        states = run_chain(self.model, ids[common:], cache, 1, past=common)
        self._prefilled = _Prefilled(ids, cache, lens_logits(self.model, states))
        return self._prefilled
