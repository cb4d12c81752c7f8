"""The residual stream at the last token of every prompt, kept on disk and read one depth at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.models.engines import batches
from lmassay.models.rows import chain, right_padded
from lmassay.models.trace import trace

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel
    from lmassay.storage.parts import Parts
    from lmassay.xray.scored import Floats

Context = tuple[int, ...]

#: Prompts of one unit of work: with the width and the number of depths, what is held in memory at once.
SHARD_PROMPTS = 64
#: A part is one depth of one shard, flat: a column per dimension would cost more than the numbers in it.
COLUMNS = ("residual",)


@dataclass(frozen=True)
class Residuals:
    """Residuals of distinct contexts.

    Attributes
    ----------
    shards : tuple of tuple of Context
    n_depths : int
        ``embed`` and the block outputs; ``final`` is the last block's state and is not kept twice.
    width : int
        d_model.
    """

    parts: Parts
    shards: tuple[tuple[Context, ...], ...]
    n_depths: int
    width: int

    def at(self, depth: int, contexts: Sequence[Context]) -> Floats:
        """(len(contexts), d_model) float64 at one depth.

        Raises
        ------
        LmassayError
            ``bad-run-folder`` when a part written earlier is gone.
        """
        states = np.concatenate([self._shard(index, depth) for index in range(len(self.shards))])
        row = {context: at for at, context in enumerate(c for shard in self.shards for c in shard)}
        return np.asarray(states[[row[c] for c in contexts]])

    def _shard(self, index: int, depth: int) -> Floats:
        found = self._read(index, depth)
        if found is None:
            raise LmassayError(
                "bad-run-folder",
                f"{self.parts.folder}: residuals that were written are no longer there",
                "run the same command again: what is missing is measured anew",
                exit_status=FAILED_PART_WAY,
            )
        return found.reshape(-1, self.width)

    def _read(self, index: int, depth: int) -> Floats | None:
        shard = self.shards[index]
        return self.parts.read(index * self.n_depths + depth, _content(depth, shard), len(shard) * self.width)

    def has(self, index: int) -> bool:
        """Whether a shard is finished and whole at every depth."""
        return all(self._read(index, depth) is not None for depth in range(self.n_depths))

    def keep(self, index: int, states: torch.Tensor) -> None:
        """Write a shard's (n_depths, n_contexts, d_model) states."""
        shard = self.shards[index]
        for depth, state in enumerate(states):
            values = state.double().cpu().numpy().reshape(-1, 1)
            self.parts.write(index * self.n_depths + depth, _content(depth, shard), values)


def _content(depth: int, shard: Sequence[Context]) -> str:
    return f"residuals at {depth} of {shard!r}"


def record_residuals(
    model: LanguageModel,
    contexts: Iterable[Context],
    parts: Parts,
    *,
    batch_tokens: int,
    progress: Callable[[int, int], None] | None = None,
) -> Residuals:
    """Run every distinct context once and keep its last token's state at every depth.

    Parameters
    ----------
    parts : Parts
        Of `COLUMNS`. Shards found there are not run again.
    batch_tokens : int
        Tokens, padding included, of one forward pass.
    progress : callable, optional
        Called with (shards done, shards in all).

    Raises
    ------
    LmassayError
        ``non-finite-logits`` when a state is not a finite number.
    """
    # Longest first, then by the tokens alone: neither the order of tasks nor the batch size moves a boundary.
    ordered = sorted(set(contexts), key=lambda c: (-len(c), c))
    shards = tuple(tuple(ordered[i : i + SHARD_PROMPTS]) for i in range(0, len(ordered), SHARD_PROMPTS))
    residuals = Residuals(parts, shards, model.n_blocks + 1, _width(model, ordered[-1]))
    for index, shard in enumerate(shards):
        if not residuals.has(index):
            residuals.keep(index, _run(model, shard, batch_tokens))
        if progress is not None:
            progress(index + 1, len(shards))
    return residuals


def _width(model: LanguageModel, context: Context) -> int:
    """d_model as the blocks have it: configurations name it differently, and an embedding may be narrower."""
    return int(_forward(model, [context[:1]], depths=range(1)).shape[-1])


def _run(model: LanguageModel, shard: Sequence[Context], batch_tokens: int) -> torch.Tensor:
    depths = range(model.n_blocks + 1)
    # A shard is longest first, so batches by length keep its order.
    grouped = batches([len(context) for context in shard], batch_tokens)
    states = torch.cat([_forward(model, [shard[i] for i in batch], depths) for batch in grouped], 1)
    finite = torch.isfinite(states).all(dim=2).all(dim=1)
    if not finite.all():
        depth = model.depths[int((~finite).nonzero()[0, 0])]
        raise LmassayError(
            "non-finite-logits",
            f"{model.name}: a residual at {depth} is not a finite number ({model.dtype})",
            "check the weights with `lmassay models check`; in a 16-bit type, use --dtype float32",
        )
    return states


def _forward(model: LanguageModel, contexts: Sequence[Context], depths: range) -> torch.Tensor:
    """(n_depths, n_contexts, d_model) at the last token of each context, right padded."""
    last = torch.tensor([len(context) - 1 for context in contexts])
    batch = right_padded(model, [chain(context) for context in contexts])
    return trace(model, batch, torch.arange(len(contexts)), last, depths).states
