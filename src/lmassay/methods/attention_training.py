"""Training of attention probes: several seeds at once, states read as they are needed and never held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.measures.classification import auroc
from lmassay.methods.method import BINARY, Floats
from lmassay.methods.probe import check_finite
from lmassay.seeds import derive, digest, generator

if TYPE_CHECKING:
    import torch

    from lmassay.methods.activations import Activations

#: Training rows whose tokens tell mean and standard deviation.
SAMPLE = 256
#: A held-out fold is one of so many, or of as many as there are questions.
FOLDS = 5
#: Tokens, padding among them, that are held at once; an example with more is taken alone.
TOKENS = 16_384
#: Passes where no question can be kept back.
PASSES = 10


@dataclass(frozen=True)
class Settings:
    """As in `lmassay.methods.attention.Attention`."""

    kind: str
    heads: int
    seeds: int
    epochs: int
    patience: int
    batch: int
    rate: float
    decay: float
    device: str


@dataclass(frozen=True)
class Rows:
    """Training rows that have states.

    Attributes
    ----------
    keys : (n,) int64
    y : (n,) float64
        1/0, or standardised numbers.
    groups : (n,) int64
    """

    keys: NDArray[np.int64]
    y: Floats
    groups: NDArray[np.int64]

    def take(self, index: NDArray[Any]) -> Rows:
        """Some rows."""
        return Rows(self.keys[index], self.y[index], self.groups[index])


@dataclass(frozen=True)
class Trained:
    """What training gives.

    Attributes
    ----------
    queries, values : (seeds, heads, width) float64
    intercepts : (seeds,) float64
    reports : list of dict
        A seed's passes, and loss and AUROC on its held-out rows; JSON-ready.
    """

    queries: Floats
    values: Floats
    intercepts: Floats
    reports: list[dict[str, Any]]


def pooled_scores(
    x: torch.Tensor, mask: torch.Tensor, queries: torch.Tensor, values: torch.Tensor, intercepts: torch.Tensor
) -> torch.Tensor:
    """(n, tokens, width) states, (n, tokens) which are no padding -> (n, seeds) scores.

    What stands at padding, NaN included, has no effect: states there are replaced by 0 (in `x` itself) and logits by
    -inf.
    """
    import torch

    # In place, for a masked copy of the states takes longer than all the rest.
    x[~mask] = 0.0
    n_seeds, heads, width = queries.shape
    # One product for both, since reading the states is what takes the time.
    both = x @ torch.cat([queries.reshape(-1, width), values.reshape(-1, width)]).T
    logits, read = both[..., : n_seeds * heads], both[..., n_seeds * heads :]
    weights = logits.masked_fill(~mask[..., None], -float("inf")).softmax(1)
    scores: torch.Tensor = (weights * read).sum(1).reshape(len(x), n_seeds, heads).sum(2) + intercepts
    return scores


def train(
    store: Activations, block: int, rows: Rows, mean: Floats, scale: Floats, settings: Settings, seed: int
) -> Trained:
    """Train every seed in the same passes over the states.

    A seed has an initialisation and a held-out part of its own (a fold of the questions), whose rows it never learns
    from; its parameters are those of the pass with the least held-out loss. AdamW works component by component, so
    seeds that share a pass do not influence each other.

    Raises
    ------
    LmassayError
        ``bad-request`` for states that are no numbers.
    """
    # One order for all that follows, whatever order the rows came in.
    rows = rows.take(np.argsort(rows.keys, kind="stable"))
    held = held_out(rows, settings.kind, settings.seeds, seed)
    state = _State(store, block, mean, scale, settings, seed)
    weight = _row_weights(rows.y, settings.kind)
    best = [state.snapshot(s) for s in range(settings.seeds)]
    reports: list[dict[str, Any]] = [{} for _ in best]
    losses = np.full(settings.seeds, np.inf)
    stopped = np.zeros(settings.seeds, np.bool_)
    any_held = np.flatnonzero(held.any(0))
    for passed in range(settings.epochs):
        order = sorted(range(len(rows.keys)), key=lambda i: (digest(seed, str(rows.keys[i]), f"pass {passed}"), i))
        for start in range(0, len(order), settings.batch):
            at = np.array(order[start : start + settings.batch])
            state.step(rows.take(at), weight[at][:, None] * ~held[:, at].T)
        score = np.full((len(rows.keys), settings.seeds), np.nan)
        score[any_held] = state.scores(rows.take(any_held))
        for s in range(settings.seeds):
            if stopped[s]:
                continue
            if not held[s].any():
                best[s], reports[s] = state.snapshot(s), {"passes": passed + 1, "held_out": 0}
                stopped[s] = passed + 1 >= PASSES
                continue
            mine = held[s]
            loss = float(
                (weight[mine] * _losses(rows.y[mine], score[mine, s], settings.kind)).sum() / weight[mine].sum()
            )
            if loss < losses[s]:
                losses[s], best[s] = loss, state.snapshot(s)
                reports[s] = _report(rows.y[mine], score[mine, s], settings.kind, passed + 1, loss)
            stopped[s] = passed + 1 - reports[s].get("passes", 0) >= settings.patience
        if stopped.all():
            break
    queries, values, intercepts = (np.stack([b[i] for b in best]) for i in range(3))
    return Trained(queries, values, intercepts, [{"seed": s, **r} for s, r in enumerate(reports)])


def held_out(rows: Rows, kind: str, n_seeds: int, seed: int) -> NDArray[np.bool_]:
    """(seeds, n) rows kept back for early stopping, whole questions: seed s keeps fold s of the questions' hashes.

    None are where that would leave one class to learn from, or with a single question.
    """
    questions, place = np.unique(rows.groups, return_inverse=True)
    order = sorted(range(len(questions)), key=lambda i: derive(seed, str(questions[i]), "attention fold"))
    n_folds = min(FOLDS, len(questions))
    fold = np.empty(len(questions), np.int64)
    fold[order] = np.arange(len(questions)) % n_folds
    found = np.zeros((n_seeds, len(rows.keys)), np.bool_)
    if n_folds < 2:
        return found
    for s in range(n_seeds):
        mine = fold[place] == s % n_folds
        if kind != BINARY or len(np.unique(rows.y[~mine])) > 1:
            found[s] = mine
    return found


def batches(lengths: NDArray[np.int64], limit: int) -> Iterator[NDArray[np.intp]]:
    """Examples that are padded together: like lengths, and no more than `limit` tokens with their padding."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or (stop + 1 - start) * int(lengths[order[stop]]) > limit:
            yield order[start:stop]
            start = stop


class _State:
    """Parameters of all seeds and their optimiser."""

    def __init__(
        self, store: Activations, block: int, mean: Floats, scale: Floats, settings: Settings, seed: int
    ) -> None:
        import torch

        self.store, self.block, self.settings = store, block, settings
        self.device = torch.device(settings.device)
        self.mean = torch.tensor(mean, dtype=torch.float32, device=self.device)
        self.scale = torch.tensor(scale, dtype=torch.float32, device=self.device)
        shape = settings.heads, store.width
        # Values start at 0, so that the first pass pools about evenly and no seed begins with an opinion.
        drawn = [generator(seed, str(s), "attention queries").normal(size=shape) for s in range(settings.seeds)]
        queries = torch.tensor(np.stack(drawn) / np.sqrt(store.width), dtype=torch.float32, device=self.device)
        self.queries = queries.requires_grad_()
        self.values = torch.zeros_like(queries).requires_grad_()
        self.intercepts = torch.zeros(settings.seeds, device=self.device).requires_grad_()
        self.optimiser = torch.optim.AdamW(
            [
                {"params": [self.queries, self.values], "weight_decay": settings.decay},
                {"params": [self.intercepts], "weight_decay": 0.0},
            ],
            lr=settings.rate,
        )

    def step(self, rows: Rows, weight: Floats) -> None:
        """One step on a batch; (n, seeds) weights, 0 where a seed keeps the row back."""
        import torch

        self.optimiser.zero_grad(set_to_none=False)
        total = torch.tensor(np.maximum(weight.sum(0), 1e-12), dtype=torch.float32, device=self.device)
        for at, x, mask in self._padded(rows.keys):
            score = pooled_scores(x, mask, *self._of_raw_states())
            y = torch.tensor(rows.y[at], dtype=torch.float32, device=self.device)[:, None].expand_as(score)
            if self.settings.kind == BINARY:
                loss = torch.nn.functional.binary_cross_entropy_with_logits(score, y, reduction="none")
            else:
                loss = (score - y) ** 2
            w = torch.tensor(weight[at], dtype=torch.float32, device=self.device)
            (loss * w / total).sum().backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def scores(self, rows: Rows) -> Floats:
        """(n, seeds) scores as they are now."""
        import torch

        found = np.zeros((len(rows.keys), self.settings.seeds))
        with torch.no_grad():
            for at, x, mask in self._padded(rows.keys):
                found[at] = pooled_scores(x, mask, *self._of_raw_states()).cpu().numpy()
        return found

    def _of_raw_states(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Parameters that read states before they are standardised: the same scores, without another copy of them.

        A logit then lacks the same number at every token, to which a softmax is blind; a value's goes into the
        intercept, for weights sum to 1.
        """
        queries, values = self.queries / self.scale, self.values / self.scale
        return queries, values, self.intercepts - (values @ self.mean).sum(1)

    def snapshot(self, s: int) -> tuple[Floats, Floats, Floats]:
        """A seed's parameters."""
        found = [p[s].detach().cpu().numpy().astype(np.float64) for p in (self.queries, self.values, self.intercepts)]
        return found[0], found[1], found[2]

    def _padded(self, keys: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.intp], torch.Tensor, torch.Tensor]]:
        """Which rows, their states, and where there is no padding."""
        import torch

        lengths = self.store.lengths(keys)
        for at in batches(lengths, TOKENS):
            longest = int(lengths[at].max())
            x = np.zeros((len(at), longest, self.store.width), np.float32)
            for i, row in enumerate(at):
                states = self.store.states(int(keys[row]), self.block)
                check_finite(states[None], keys[row : row + 1], f"block {self.block}")
                x[i, : len(states)] = states
            mask = torch.arange(longest)[None] < torch.from_numpy(lengths[at])[:, None]
            yield at, torch.from_numpy(x).to(self.device), mask.to(self.device)


def _row_weights(y: Floats, kind: str) -> Floats:
    """(n,) weights under which both classes count alike."""
    if kind != BINARY:
        return np.ones(len(y))
    share = float((y == 1).mean())
    return np.where(y == 1, 0.5 / share, 0.5 / (1 - share))


def _losses(y: Floats, score: Floats, kind: str) -> Floats:
    return np.logaddexp(0.0, score) - y * score if kind == BINARY else (score - y) ** 2


def _report(y: Floats, score: Floats, kind: str, passes: int, loss: float) -> dict[str, Any]:
    found: dict[str, Any] = {"passes": passes, "held_out": len(y), "held_out_loss": round(loss, 6)}
    if kind == BINARY:
        point = auroc(y, score)
        found["held_out_auroc"] = point.status if point.value is None else round(point.value, 6)
    return found
