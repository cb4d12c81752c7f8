"""How much of a model's states an autoencoder gives back: the check that it belongs to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.measures.bootstrap import cluster_draws, interval_of, ratio_draws
from lmassay.measures.intervals import Estimate, undefined
from lmassay.models.saes.autoencoder import SparseAutoencoder

TITLE = "fraction of variance explained"
#: Under this an autoencoder is taken for one of another model, block or scale.
LEAST = 0.5


def explained(sae: SparseAutoencoder, texts: Sequence[NDArray[np.float32]], rng: np.random.Generator) -> Estimate:
    """1 − Σ‖x − x̂‖² / Σ‖x − x̄‖² over all tokens, with a 95 % interval over texts.

    Parameters
    ----------
    texts : sequence of (n_tokens, width) float32
        States of each text; x̄ is the mean over all of them.
    """
    kept = [states for states in texts if len(states)]
    n = sum(len(states) for states in kept)
    if not n:
        return undefined(TITLE, "no data")
    mean = sum(states.sum(0, dtype=np.float64) for states in kept) / n
    left, whole = np.zeros(len(kept)), np.zeros(len(kept))
    for at, states in enumerate(kept):
        whole[at] = ((states - mean) ** 2).sum()
        for rows, features in sae.encoded(states):
            back = sae.decode(features, states[rows]).numpy().astype(np.float64)
            left[at] += ((states[rows] - back) ** 2).sum()
    if not whole.sum() > 0:
        return undefined(TITLE, "the states do not vary", n)
    draws = 1 - ratio_draws(left, whole, cluster_draws(np.arange(len(kept)), rng))
    low, high, status = interval_of(draws, len(kept))
    return Estimate(float(1 - left.sum() / whole.sum()), low, high, n, TITLE, len(kept), status)


def check_width(sae: SparseAutoencoder, width: int, model: str) -> None:
    """Refuse an autoencoder of states of another width.

    Raises
    ------
    LmassayError
        ``bad-request`` naming both shapes.
    """
    if sae.width != width:
        raise LmassayError(
            "bad-request",
            f"sparse autoencoder {sae.name} is {sae.shape}: it reads states of width {sae.width:,}, "
            f"and those of {model} have width {width:,}",
            "choose one that was trained on this model",
        )


def check_explained(sae: SparseAutoencoder, found: Estimate, least: float, where: str) -> None:
    """Refuse an autoencoder that does not give the states back.

    Raises
    ------
    LmassayError
        ``bad-request`` with the figure.
    """
    if found.value is not None and not found.value >= least:
        around = "" if found.low is None else f" (95 % interval {found.low:.3f} to {found.high:.3f})"
        notes = "".join(f"; {note}" for note in sae.stated.notes)
        raise LmassayError(
            "bad-request",
            f"sparse autoencoder {sae.name} explains {found.value:.3f} of the variance of {where}{around}, "
            f"over {found.n:,} tokens, and should explain {least:g}{notes}",
            "check that model, block and scale of the states are those it was trained on; "
            "--option min_explained=X takes another limit",
        )
