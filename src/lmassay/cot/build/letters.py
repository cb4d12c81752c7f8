"""What the subject gives the letters of a forced answer, as a distribution among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.models.sampling import LetterLogprobs


def log_shares(letters: LetterLogprobs) -> NDArray[np.float64]:
    """(k,) log-probabilities among the letters alone, nats; one that was only bounded counts by its upper bound."""
    logs = np.asarray(letters.high, np.float64)
    shifted = logs - logs.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def answer_kl(whole: LetterLogprobs, kept: LetterLogprobs) -> float:
    """KL(whole || kept) among the letters, nats."""
    p, q = log_shares(whole), log_shares(kept)
    return float((np.exp(p) * (p - q)).sum())
