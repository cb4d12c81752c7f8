"""Which sentences of a prefix are kept: each selector ranks the sentences it may choose among, the best first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lmassay import seeds
from lmassay.cot.compression import LAST_M

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANDOM, SINGLE, LAST_ATTENTION, NEXT_ATTENTION = (
    "random", "single_sentence_oracle", "last_sentence_attention", "next_sentence_attention_oracle",
)  # fmt: skip
#: A language model that is asked (`asked_monitor`): it chooses anew for every M, and ranks nothing.
MONITOR = "monitor"
#: What needs the subject's attention, and so the subject in this process.
ATTENTION = (LAST_ATTENTION, NEXT_ATTENTION)
SELECTORS = (LAST_M, RANDOM, SINGLE, LAST_ATTENTION, NEXT_ATTENTION, MONITOR)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix whose sentences are chosen among.

    Attributes
    ----------
    name : str
        Question, rollout and length: what the random selector draws by.
    n_region : int
        Sentences that may be chosen; the kept tail is not among them.
    single_kl : (n_region,) float64
        Answer KL when a sentence is the only one kept beside the tail, nats.
    from_last, from_next : (n_region,) float64 or None
        Attention that each sentence receives from the prefix's last sentence, and from the true next one.
    """

    name: str
    n_region: int
    single_kl: NDArray[np.float64]
    from_last: NDArray[np.float64] | None = None
    from_next: NDArray[np.float64] | None = None


def ranking(selector: str, prefix: Prefix, seed: int) -> NDArray[np.int64] | None:
    """(n_region,) sentences, the first choice first, of equals the later; None where the selector cannot be had."""
    return _RANKINGS[selector](prefix, seed)


def chosen(ranked: NDArray[np.int64], m: int) -> list[int]:
    """The first `m` in the order of the text."""
    return sorted(int(i) for i in ranked[:m])


def _best(values: NDArray[np.float64] | None) -> NDArray[np.int64] | None:
    if values is None:
        return None
    order: NDArray[np.int64] = len(values) - 1 - np.argsort(-values[::-1], kind="stable")
    return order


def _random(prefix: Prefix, seed: int) -> NDArray[np.int64]:
    return seeds.generator(seed, prefix.name, "random sentences").permutation(prefix.n_region)


_RANKINGS: dict[str, Callable[[Prefix, int], NDArray[np.int64] | None]] = {
    LAST_M: lambda prefix, _: np.arange(prefix.n_region)[::-1],
    RANDOM: _random,
    SINGLE: lambda prefix, _: _best(-prefix.single_kl),
    LAST_ATTENTION: lambda prefix, _: _best(prefix.from_last),
    NEXT_ATTENTION: lambda prefix, _: _best(prefix.from_next),
}


def kept_text(parts: Sequence[str], indices: Sequence[int], tail: int) -> list[str]:
    """The chosen sentences in their order, then the last `tail`."""
    return [parts[i] for i in indices] + list(parts[len(parts) - tail :])
