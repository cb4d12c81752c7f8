"""States at chosen blocks and tokens of many sequences, pooled in the same forward pass that makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.models.trace import Batch, trace

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

#: Tokens of one forward pass, padding included: more only costs memory on a CPU, and fills a card.
CPU_BATCH_TOKENS, CARD_BATCH_TOKENS = 2048, 16384
STORAGE: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One text as the reader gets it.

    Attributes
    ----------
    ids : (n,) integers
    kept : (m,) int64
        Places of the tokens whose states are wanted, ascending; at least one.
    """

    ids: NDArray[np.int32]
    kept: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a batch left behind.

    Attributes
    ----------
    members : tuple of int
        Which sequences it held.
    pooled : (n_blocks, n_poolings, n_members, width) float32
    tokens : (n_token_blocks, n_kept, width)
        In the storage's type; bfloat16 as the int16 that has its bits.
    """

    members: tuple[int, ...]
    pooled: NDArray[np.float32]
    tokens: NDArray[np.float32] | NDArray[np.float16] | NDArray[np.int16]


def default_batch_tokens(model: LanguageModel) -> int:
    """What suits the device that the model is on."""
    return CPU_BATCH_TOKENS if model.device.type == "cpu" else CARD_BATCH_TOKENS


def width_of(model: LanguageModel) -> int:
    """Components of the residual stream; an embedding may be narrower."""
    return int(model.hf.config.get_text_config().hidden_size)


def extract(
    model: LanguageModel,
    sequences: Sequence[Reading],
    blocks: Sequence[int],
    *,
    token_blocks: Sequence[int] = (),
    poolings: Sequence[str] = ("last", "mean", "max"),
    storage: str = "float32",
    batch_tokens: int | None = None,
) -> Iterator[Extracted]:
    """Run the sequences, longest first and with like lengths together, up to the last block that is wanted.

    Parameters
    ----------
    blocks : sequence of int
        Blocks to pool; block i is the residual stream after it.
    token_blocks : sequence of int
        Of those, the blocks whose state at every kept token is returned too.
    storage : {"float32", "bfloat16", "float16"}
        Of the token states. Pooled states are computed and returned in float32.

    Raises
    ------
    LmassayError
        ``non-finite-logits`` when a state is no finite number, or does not fit into the storage's type.
    """
    budget = default_batch_tokens(model) if batch_tokens is None else batch_tokens
    depths = [block + 1 for block in blocks]
    at = [list(blocks).index(block) for block in token_blocks]
    for members in like_lengths([len(s.ids) for s in sequences], budget):
        chosen = [sequences[i] for i in members]
        sizes = [len(s.kept) for s in chosen]
        rows = torch.from_numpy(np.repeat(np.arange(len(chosen)), sizes))
        cols = torch.from_numpy(np.concatenate([s.kept for s in chosen]))
        states = trace(model, padded(model, [s.ids for s in chosen]), rows, cols, depths).states
        pooled = _pooled(states, sizes, poolings)
        kept = states[at].to(STORAGE[storage])
        _must_be_finite(model, pooled, kept, storage)
        bits = kept.view(torch.int16) if storage == "bfloat16" else kept
        yield Extracted(tuple(members), pooled.cpu().numpy(), bits.cpu().numpy())


def like_lengths(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices in batches of at most `budget` tokens, padding included, the longest first.

    A sequence shorter by a tenth begins a new batch once the batch is not small: padding costs what tokens cost.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = lengths[batch[0]] if batch else 0
        loose = 10 * lengths[index] < 9 * longest and 8 * longest * len(batch) >= budget
        if batch and (loose or longest * (len(batch) + 1) > budget):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded(model: LanguageModel, ids: Sequence[NDArray[np.int32]]) -> Batch:
    """Sequences as rows, padded on the right, where a causal model cannot see it.

    So nothing is masked: that is faster, and a token whose whole sliding window were masked would be NaN, which some
    kernels then spread over the row.
    """
    width = max(map(len, ids))
    rows = np.zeros((len(ids), width), dtype=np.int64)
    for row, own in enumerate(ids):
        rows[row, : len(own)] = own
    tokens = torch.from_numpy(rows).to(model.device)
    return Batch(tokens, torch.ones_like(tokens), torch.arange(width, device=model.device).expand(len(ids), width))


def _pooled(states: Tensor, sizes: Sequence[int], poolings: Sequence[str]) -> Tensor:
    """(n_blocks, n_kept, width) -> (n_blocks, n_poolings, n_members, width), each member by itself, in float32."""
    found = states.new_empty((len(states), len(poolings), len(sizes), states.shape[-1]), dtype=torch.float32)
    for member, own in enumerate(torch.split(states, list(sizes), dim=1)):
        for place, pooling in enumerate(poolings):
            found[:, place, member] = _one(own, pooling)
    return found


def _one(own: Tensor, pooling: str) -> Tensor:
    """(n_blocks, n_tokens, width) -> (n_blocks, width)."""
    if pooling == "last":
        return own[:, -1]
    if pooling == "mean":
        return own.mean(1, dtype=torch.promote_types(own.dtype, torch.float32))
    return own.amax(1)


def _must_be_finite(model: LanguageModel, pooled: Tensor, kept: Tensor, storage: str) -> None:
    if not torch.isfinite(pooled).all():
        raise LmassayError(
            "non-finite-logits",
            f"{model.name} gave states that are NaN or infinite",
            "open the model with --dtype float32 or bfloat16; if it stays, its weights are damaged",
            exit_status=FAILED_PART_WAY,
        )
    if not torch.isfinite(kept).all():
        raise LmassayError(
            "non-finite-logits",
            f"states of {model.name} are too large for {storage}",
            "use --storage bfloat16 or float32",
            exit_status=FAILED_PART_WAY,
        )
