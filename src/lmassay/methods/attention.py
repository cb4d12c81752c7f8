"""The attention probe: learned queries pool the states of all visible tokens, a linear head reads the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.methods.activations import Activations, asked_of, given, keys_of
from lmassay.methods.attention_training import SAMPLE, Rows, Settings, train
from lmassay.methods.contributions import Contributions
from lmassay.methods.method import BINARY, Examples, Floats, Groups, Labels, Validation
from lmassay.methods.probe import Probe, check_finite, not_fitted, one_example, training_rows
from lmassay.methods.registry import method
from lmassay.seeds import derive

if TYPE_CHECKING:
    from collections.abc import Sequence


@method
class Attention(Probe):
    """One block's states at every visible token, standardised; ``heads`` queries, each with values of its own.

    With weights ``a = softmax(q · x)`` over an example's tokens, a head gives ``sum_t a_t (w · x_t)``; the score is the
    sum over heads plus an intercept, averaged over several seeds. Nothing is chosen on validation rows, and no seed
    is picked: each stops where the rows of its own held-out training questions say so.

    Parameters
    ----------
    kind : {"binary", "regression"}
    block : int, optional
        Default: the middle one of those whose token states were kept.
    heads : int
    seeds : int
        Probes that are trained, at once, and averaged.
    epochs, patience : int
        At most so many passes, and so many without a better held-out loss.
    batch : int
        Examples a step.
    rate, decay : float
        Of AdamW.
    device : str
        Where torch computes; scores are computed on the CPU in float64 wherever it trained.
    """

    id = "attention"
    title = "attention probe"

    def __init__(
        self,
        kind: str = BINARY,
        block: int | None = None,
        heads: int = 1,
        seeds: int = 3,
        epochs: int = 30,
        patience: int = 5,
        batch: int = 32,
        rate: float = 2e-3,
        decay: float = 0.1,
        device: str = "cpu",
    ) -> None:
        super().__init__(kind)
        numbers = {"heads": heads, "seeds": seeds, "epochs": epochs, "patience": patience, "batch": batch, "rate": rate}
        for name, value in numbers.items():
            if not value > 0:
                raise LmassayError("bad-request", f"method attention: {name} = {value}", "give a positive number")
        self.block, self.heads, self.seeds, self.epochs, self.patience = block, heads, seeds, epochs, patience
        self.batch, self.rate, self.decay, self.device = batch, rate, decay, device

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`; the order of rows changes nothing."""
        store = given(self)
        keys, y, groups, left_out = training_rows(self, store, X, y, groups)
        block = self._block_of(store)
        mean, scale = _moments(store, keys, block, seed)
        centre, spread = (0.0, 1.0) if self.kind == BINARY else (float(y.mean()), float(y.std()) or 1.0)
        rows = Rows(keys, (y - centre) / spread, groups)
        found = train(store, block, rows, mean, scale, self._settings(), seed)
        self._block, self._mean, self._scale = block, mean, scale
        self._centre, self._spread = centre, spread
        self._queries, self._values, self._intercepts = found.queries, found.values, found.intercepts
        self.choices = {
            "reader": store.model,
            "block": block,
            "n_train": len(keys),
            "n_train_without_activations": left_out,
            "seeds": found.reports,
        }

    def _settings(self) -> Settings:
        return Settings(
            self.kind,
            self.heads,
            self.seeds,
            self.epochs,
            self.patience,
            self.batch,
            self.rate,
            self.decay,
            self.device,
        )

    def _block_of(self, store: Activations) -> int:
        if not store.token_blocks:
            raise LmassayError(
                "bad-request",
                f"method attention reads every token's state, and these activations of {store.model} hold none",
                "extract with `lmassay cot activations TASK --model MODEL --token-blocks BLOCK --tokens all`",
            )
        wanted = store.token_blocks[len(store.token_blocks) // 2] if self.block is None else self.block
        return int(asked_of(store.token_blocks, wanted, "every token's state of block", store)[0])

    def score(self, X: Examples) -> Floats:
        """See `Method.score`; an example at a time, so there is no padding here."""
        return self.by_seed(X).mean(1) if len(X) else np.zeros(0)

    def by_seed(self, X: Examples) -> Floats:
        """(n, seeds) the scores that `score` averages."""
        store = self._ready()
        found = np.full((len(X), len(self._intercepts)), np.nan)
        for row, key in zip(found, keys_of(X).tolist(), strict=True):
            states = store.states(key, self._block)
            if len(states) and np.isfinite(states).all():
                row[:] = self._parts(states).sum((0, 2)) + self._intercepts
        return found * self._spread + self._centre

    def _ready(self) -> Activations:
        if not hasattr(self, "_queries"):
            raise not_fitted(self)
        return given(self)

    def _parts(self, states: NDArray[np.float32]) -> Floats:
        """(n_tokens, width) -> (n_tokens, seeds, heads) attention weight times value."""
        return attended(states, self._mean, self._scale, self._queries, self._values)

    def contributions(self, example: VisibleExample) -> Contributions:
        """See `Contributing`: attention weights times values, summed over heads, averaged over seeds."""
        store = self._ready()
        one_example(self, store, example)
        values = self._parts(store.states(example.key, self._block)).sum(2).mean(1) * self._spread
        score = float(self.score([example])[0])
        rest = float(self._intercepts.mean() * self._spread + self._centre)
        return Contributions(values, score, rest, "share of the score: attention weight times value")

    def learnt(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Probe.learnt`."""
        if not hasattr(self, "_queries"):
            raise not_fitted(self)
        values = {"block": self._block, "centre": self._centre, "spread": self._spread}
        names = ("mean", "scale", "queries", "values", "intercepts")
        return values, {name: getattr(self, f"_{name}") for name in names}

    def take_up(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """See `Probe.take_up`."""
        self._block, self._centre, self._spread = int(values["block"]), values["centre"], values["spread"]
        for name in ("mean", "scale", "queries", "values", "intercepts"):
            setattr(self, f"_{name}", arrays[name])


def attended(states: NDArray[Any], mean: Floats, scale: Floats, queries: Floats, values: Floats) -> Floats:
    """(n_tokens, seeds, heads) each token's attention weight times its value, of one example, in float64.

    Parameters
    ----------
    states : (n_tokens, width) floats
    mean, scale : (width,) float64
    queries, values : (seeds, heads, width) float64
    """
    x = (states.astype(np.float64) - mean) / scale
    logits = np.tensordot(x, queries, (1, 2))
    weights = np.exp(logits - logits.max(0))
    weights /= weights.sum(0)
    found: Floats = weights * np.tensordot(x, values, (1, 2))
    return found


def _moments(store: Activations, keys: NDArray[np.int64], block: int, seed: int) -> tuple[Floats, Floats]:
    """(width,) mean and standard deviation of the tokens of a sample of training rows, drawn by their keys."""
    sample = _first(keys.tolist(), seed)
    total = np.zeros(store.width)
    squares = np.zeros(store.width)
    # About the first state, so that the squares of large components lose no digits.
    about = store.states(sample[0], block)[0].astype(np.float64)
    n = 0
    for key in sample:
        states = store.states(key, block)
        check_finite(states[None], np.array([key]), f"block {block}")
        rows = states.astype(np.float64) - about
        total += rows.sum(0)
        squares += (rows**2).sum(0)
        n += len(rows)
    mean = total / n
    scale = np.sqrt(np.maximum(squares / n - mean**2, 0.0))
    return mean + about, np.where(scale > 0, scale, 1.0)


def _first(keys: Sequence[int], seed: int) -> list[int]:
    return sorted(keys, key=lambda k: (derive(seed, str(k), "attention moments"), k))[:SAMPLE]
