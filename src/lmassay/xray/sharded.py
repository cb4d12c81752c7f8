"""Work on many requests cut into shards that are kept once finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.storage.parts import Parts

Floats = Sequence["NDArray[np.float64]"]


def shards_of(costs: Sequence[int], most: int) -> list[range]:
    """Consecutive items, cut where their costs would pass `most`."""
    shards: list[range] = []
    start, spent = 0, 0
    for at, cost in enumerate(costs):
        if at > start and spent + cost > most:
            shards.append(range(start, at))
            start, spent = at, 0
        spent += cost
    if start < len(costs):
        shards.append(range(start, len(costs)))
    return shards


def kept(
    parts: Parts,
    shards: Sequence[range],
    content: Callable[[range], str],
    shapes: Sequence[tuple[int, ...]],
    run: Callable[[range], Floats],
    progress: Callable[[int, int], None] | None,
) -> list[NDArray[np.float64]]:
    """Every item's values, computed shard by shard or read where a shard was finished before.

    Parameters
    ----------
    content : callable
        What a shard computes, in words that change whenever its values could.
    shapes : sequence of tuple of int
        For each item the shape of its values; the last axis is as long as `parts` has columns.
    run : callable
        Computes a shard's items.
    """
    values: list[NDArray[np.float64]] = []
    for index, shard in enumerate(shards):
        sizes = [int(np.prod(shapes[i][:-1])) for i in shard]
        rows = parts.read(index, content(shard), sum(sizes))
        if rows is None:
            found = [v.reshape(-1, len(parts.columns)) for v in run(shard)]
            rows = np.concatenate(found)
            parts.write(index, content(shard), rows)
        split = np.split(rows, np.cumsum(sizes)[:-1])
        values += [piece.reshape(shapes[i]) for piece, i in zip(split, shard, strict=True)]
        if progress is not None:
            progress(index + 1, len(shards))
    return values
