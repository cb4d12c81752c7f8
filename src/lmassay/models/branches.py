"""States at the ends of many sequences that begin alike, with what they share computed once.

The longest sequence is the trunk and runs once; every other one leaves it somewhere and runs from there only. Where
the model can be packed, several tails share one row, each seeing its own part of the trunk; else each has a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lmassay.models.engines import batches
from lmassay.models.kv import Past, cut, joined, new_cache
from lmassay.models.trace import Batch, trace

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

#: Tokens of one pass over a trunk, and of the tails in one packed row: every tail's scores against all are computed.
TRUNK_TOKENS, TAIL_TOKENS = 2048, 512
#: Tokens, the copied past included, of one batch of tails in rows of their own.
ROW_TOKENS = 16384


@dataclass(frozen=True, slots=True)
class Tail:
    """One sequence below the trunk.

    Attributes
    ----------
    at : int
        Its place among the sequences.
    branch : int
        Tokens it shares with the trunk.
    ids : tuple of int
        The others; at least as many as are read.
    """

    at: int
    branch: int
    ids: tuple[int, ...]


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    n = min(len(a), len(b))
    if list(a[:n]) == list(b[:n]):
        return n
    return next(i for i in range(n) if a[i] != b[i])


def end_states(
    model: LanguageModel, sequences: Sequence[Sequence[int]], last: Sequence[int], *, packed: bool | None = None
) -> list[Tensor]:
    """The residual stream before the final norm at the last tokens of each sequence.

    Parameters
    ----------
    sequences : sequence of sequences of int
        None empty. They should begin alike: what the first tokens share is all that is saved.
    last : sequence of int
        How many tokens of each are read.
    packed : bool, optional
        Whether tails share rows; by default, where the model allows it at this length.

    Returns
    -------
    list of (last[i], d_model)
    """
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
    trunk_at, *rest = order
    trunk = sequences[trunk_at]
    tails = []
    for at in rest:
        branch = min(shared(trunk, sequences[at]), len(sequences[at]) - last[at])
        tails.append(Tail(at, branch, tuple(sequences[at][branch:])))
    if packed is None:
        packed = model.packing and (model.window is None or len(trunk) <= model.window)
    cache = new_cache(model)
    found = {trunk_at: run_chain(model, trunk, cache, last[trunk_at])}
    run = _packed if packed else _in_rows
    found |= dict(run(model, cache, len(trunk), tails, last))
    return [found[at] for at in range(len(sequences))]


def run_chain(model: LanguageModel, ids: Sequence[int], cache: Any, last: int, *, past: int = 0) -> Tensor:
    """Run one sequence after what a cache holds; (last, d_model) states at its last tokens."""
    states = []
    for start in range(0, len(ids), TRUNK_TOKENS):
        part = torch.tensor([list(ids[start : start + TRUNK_TOKENS])], device=model.device)
        stop = start + part.shape[1]
        position = torch.arange(past + start, past + stop, device=model.device)[None]
        mask = torch.ones(1, past + stop, dtype=torch.int64, device=model.device)
        # Of a part that ends before the last tokens begin, none.
        cols = torch.arange(min(part.shape[1], max(0, len(ids) - last - start)), part.shape[1])
        seen = trace(model, Batch(part, mask, position), torch.zeros_like(cols), cols, [model.n_blocks], cache=cache)
        states.append(seen.states[0])
    return torch.cat(states)


def _packed(
    model: LanguageModel, cache: Any, n_trunk: int, tails: Sequence[Tail], last: Sequence[int]
) -> Iterator[tuple[int, Tensor]]:
    """Tails side by side in one row, each seeing its own part of the trunk and itself."""
    pack: list[Tail] = []
    size = 0
    for tail in [*tails, None]:
        if pack and (tail is None or size + len(tail.ids) > TAIL_TOKENS):
            yield from _run_pack(model, cache, n_trunk, pack, last)
            cut(cache, n_trunk)
            pack, size = [], 0
        if tail is not None:
            pack.append(tail)
            size += len(tail.ids)


def _run_pack(
    model: LanguageModel, cache: Any, n_trunk: int, pack: Sequence[Tail], last: Sequence[int]
) -> Iterator[tuple[int, Tensor]]:
    size = sum(len(tail.ids) for tail in pack)
    visible = torch.zeros(size, n_trunk + size, dtype=torch.bool)
    position = torch.empty(size, dtype=torch.int64)
    cols: list[int] = []
    start = 0
    for tail in pack:
        n = len(tail.ids)
        visible[start : start + n, : tail.branch] = True
        visible[start : start + n, n_trunk + start : n_trunk + start + n] = torch.ones(n, n, dtype=torch.bool).tril()
        position[start : start + n] = torch.arange(tail.branch, tail.branch + n)
        cols.extend(range(start + n - last[tail.at], start + n))
        start += n
    mask = torch.zeros(visible.shape, dtype=model.dtype).masked_fill_(~visible, -torch.inf)[None, None]
    ids = torch.tensor([[i for tail in pack for i in tail.ids]])
    batch = Batch(ids.to(model.device), mask.to(model.device), position[None].to(model.device))
    place = torch.tensor(cols)
    seen = trace(model, batch, torch.zeros_like(place), place, [model.n_blocks], cache=cache)
    yield from _parted(seen.states[0], pack, last)


def _in_rows(
    model: LanguageModel, cache: Any, n_trunk: int, tails: Sequence[Tail], last: Sequence[int]
) -> Iterator[tuple[int, Tensor]]:
    """Each tail in a row of its own, after a copy of its part of the trunk."""
    for members in batches([tail.branch + len(tail.ids) for tail in tails], ROW_TOKENS):
        batch = [tails[i] for i in members]
        width = max(len(tail.ids) for tail in batch)
        past = max(tail.branch for tail in batch)
        # Nothing shared: an empty past cannot be copied, and need not be.
        own = joined(model, [Past(cache, 0, 0, t.branch) for t in batch], width) if past else new_cache(model)
        ids = torch.zeros(len(batch), width, dtype=torch.int64)
        mask = torch.zeros(len(batch), past + width, dtype=torch.int64)
        position = torch.zeros_like(ids)
        rows: list[int] = []
        cols: list[int] = []
        for row, tail in enumerate(batch):
            n = len(tail.ids)
            ids[row, :n] = torch.tensor(tail.ids)
            mask[row, past - tail.branch : past + n] = 1
            position[row, :n] = torch.arange(tail.branch, tail.branch + n)
            rows.extend([row] * last[tail.at])
            cols.extend(range(n - last[tail.at], n))
        now = Batch(ids.to(model.device), mask.to(model.device), position.to(model.device))
        seen = trace(model, now, torch.tensor(rows), torch.tensor(cols), [model.n_blocks], cache=own)
        yield from _parted(seen.states[0], batch, last)


def _parted(states: Tensor, tails: Sequence[Tail], last: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
    sizes = [last[tail.at] for tail in tails]
    yield from zip((tail.at for tail in tails), torch.split(states, sizes), strict=True)
