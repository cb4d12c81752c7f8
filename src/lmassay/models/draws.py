"""The next token of many rows, each from its own stream of random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmassay.errors import FAILED_PART_WAY, LmassayError

_BLOCK = 64


class Stream:
    """The random numbers of one sample: the t-th token takes the t-th number, whatever else is in the batch.

    Parameters
    ----------
    seed : int
        Not negative.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(key=seed))
        self._held: NDArray[np.float64] = np.empty(0)
        self._at = 0

    def next(self) -> float:
        """Uniform in [0, 1)."""
        if self._at == len(self._held):
            self._held, self._at = self._generator.random(_BLOCK), 0
        self._at += 1
        return float(self._held[self._at - 1])


def probabilities(logits: Tensor, temperature: Tensor, top_p: Tensor) -> Tensor:
    """(n, vocabulary) logits -> what each row is drawn from, not normalised.

    Parameters
    ----------
    temperature : (n,)
        Above 0.
    top_p : (n,)
        Below 1, all but the fewest likeliest tokens that hold this mass get 0.
    """
    found = torch.softmax(logits / temperature[:, None].to(logits), -1)
    cut = (top_p < 1).nonzero()[:, 0].to(found.device)
    if len(cut):
        order = found[cut].sort(stable=True, dim=-1, descending=True)
        before = order.values.cumsum(-1, dtype=torch.float64) - order.values
        kept = torch.where(before < top_p.to(found.device)[cut, None], order.values, 0)
        found[cut] = torch.zeros_like(kept).scatter(-1, order.indices, kept)
    return found


def draw(
    logits: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    uniform: Tensor,
    only: Mapping[int, Sequence[int]] | None = None,
) -> Tensor:
    """(n, vocabulary) logits -> (n,) tokens.

    The token at which the cumulated probability passes the row's uniform number, in the order of the vocabulary: a
    rounding difference in the logits changes the token only where the number is that near to a boundary.

    Parameters
    ----------
    only : mapping of int to ints
        Row -> the tokens it may be given; rows that are not named may be given any.

    Raises
    ------
    LmassayError
        ``non-finite-logits``.
    """
    greedy = temperature == 0
    if not bool(torch.isfinite(logits.sum(-1)).all()):
        raise LmassayError(
            "non-finite-logits",
            "NaN or infinite logits while sampling",
            "use --dtype float32, or check the weights",
            exit_status=FAILED_PART_WAY,
        )
    if only:
        logits = logits.clone()
        for row, tokens in only.items():
            kept = torch.tensor(tokens, device=logits.device)
            logits[row] = torch.full_like(logits[row], -torch.inf).index_copy_(0, kept, logits[row, kept])
    likeliest = logits.argmax(-1).cpu()
    if bool(greedy.all()):
        return likeliest
    mass = probabilities(logits, torch.where(greedy, 1.0, temperature), top_p).cumsum(-1, dtype=torch.float64)
    total = mass[:, -1:]
    wanted = torch.minimum(uniform.to(total)[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    drawn = torch.searchsorted(mass, wanted, right=True)[:, 0].cpu()
    return torch.where(greedy, likeliest, drawn)
