"""Training a stack of known-answer models at once, until each answers held-out tasks.

The models of a stack share nothing but the pass over them: each has its own seed, its own batches and, since Adam works
element by element, its own optimiser.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from lmassay.seeds import derive, generator, seeded_choice
from lmassay.xray.calibrate.models import HEADS, Stack, initial, n_blocks_of
from lmassay.xray.calibrate.words import encoded

if TYPE_CHECKING:
    from lmassay.xray.task import Task

BATCH = 64
RATE = 1e-2
DECAY = 0.05
BETAS = (0.9, 0.98)
#: Steps over which the rate rises, and falls to a tenth.
WARM_UP, FALLING = 30, 1000
#: Training ends at the first of these steps at which every model of the stack is skilled.
EVERY, MOST_STEPS = 50, 1500
#: Share of held-out tasks a skilled model answers.
SKILLED = 0.95


@dataclass(frozen=True, slots=True)
class Packed:
    """Prompts with one continuation each, padded.

    Attributes
    ----------
    ids : (n, n_tokens) int64
    at : (n, n_scored) int64
        Token whose next-token prediction is scored.
    target : (n, n_scored) int64
    weight : (n, n_scored) float32
        One over the continuation's length; 0 for padding.
    length : (n,) int64
    """

    ids: Tensor
    at: Tensor
    target: Tensor
    weight: Tensor
    length: Tensor

    def padded(self, n_tokens: int, n_scored: int) -> Packed:
        """As wide as that; padding stands at the end."""
        wide = functional.pad(self.ids, (0, n_tokens - self.ids.shape[1]))
        more = (0, n_scored - self.at.shape[1])
        at, target, weight = (functional.pad(column, more) for column in (self.at, self.target, self.weight))
        return Packed(wide, at, target, weight, self.length)

    def for_each(self, n_models: int) -> Packed:
        """All rows for each of so many models: (n_models, n, ...)."""
        columns = (self.ids, self.at, self.target, self.weight, self.length)
        return Packed(*(column.expand(n_models, *column.shape) for column in columns))


def packed(pairs: Sequence[tuple[str, str]]) -> Packed:
    """Pack pairs of prompt and continuation."""
    rows = [(encoded(prompt), encoded(continuation)) for prompt, continuation in pairs]
    n_tokens = max(len(prompt) + len(target) for prompt, target in rows)
    n_scored = max(len(target) for _, target in rows)
    ids = torch.zeros(len(rows), n_tokens, dtype=torch.int64)
    at = torch.zeros(len(rows), n_scored, dtype=torch.int64)
    target_ids = torch.zeros_like(at)
    weight = torch.zeros(len(rows), n_scored)
    for row, (prompt, target) in enumerate(rows):
        ids[row, : len(prompt) + len(target)] = torch.tensor([*prompt, *target])
        at[row, : len(target)] = torch.arange(len(target)) + len(prompt) - 1
        target_ids[row, : len(target)] = torch.tensor(target)
        weight[row, : len(target)] = 1 / len(target)
    return Packed(ids, at, target_ids, weight, torch.tensor([len(p) + len(t) for p, t in rows]))


def log_probs(stack: Mapping[str, Tensor], rows: Packed) -> Tensor:
    """(n_models, n) mean log-probability of each row's continuation, nats per token.

    In the last block only the scored tokens ask: nothing else is read.
    """
    n_models, n, n_tokens = rows.ids.shape
    width = stack["tokens"].shape[-1]
    offset = torch.arange(n_models)[:, None, None] * stack["tokens"].shape[1]
    state = functional.embedding(rows.ids + offset, stack["tokens"].reshape(-1, width))
    state = state + stack["positions"][:, None, :n_tokens]
    scored = rows.at[..., None].expand(-1, -1, -1, width)
    causal = (torch.arange(n_tokens) <= rows.at[..., None]).view(n_models * n, 1, -1, n_tokens)
    n_blocks = n_blocks_of(stack)
    for block in range(n_blocks):
        last = block == n_blocks - 1

        def linear(name: str, x: Tensor, part: slice = slice(None), block: int = block) -> Tensor:
            weight, bias = stack[f"{block}.{name}.weight"][..., part], stack[f"{block}.{name}.bias"][..., part]
            flat = torch.baddbmm(bias[:, None], x.reshape(n_models, -1, x.shape[-1]), weight)
            return flat.view(*x.shape[:-1], -1)

        normed = _norm(state, stack, f"{block}.ln1")
        key, value = linear("qkv", normed, slice(width, None)).chunk(2, -1)
        asking = normed
        if last:
            asking, state = normed.gather(2, scored), state.gather(2, scored)
        query = linear("qkv", asking, slice(0, width))
        q, k, v = (x.reshape(n_models * n, -1, HEADS, width // HEADS).transpose(1, 2) for x in (query, key, value))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=causal if last else None, is_causal=not last)
        state = state + linear("out", mixed.transpose(1, 2).reshape(state.shape))
        state = state + linear("down", torch.relu(linear("up", _norm(state, stack, f"{block}.ln2"))))
    logits = torch.einsum("mntd,mvd->mntv", _norm(state, stack, "norm"), stack["head"])
    picked = torch.log_softmax(logits, -1).gather(-1, rows.target[..., None])[..., 0]
    return (picked * rows.weight).sum(-1)


def _norm(x: Tensor, stack: Mapping[str, Tensor], name: str) -> Tensor:
    per_model = (x.shape[0], *[1] * (x.dim() - 2), x.shape[-1])
    normed = functional.layer_norm(x, x.shape[-1:])
    return normed * stack[f"{name}.weight"].view(per_model) + stack[f"{name}.bias"].view(per_model)


def accuracy(stack: Mapping[str, Tensor], tasks: Sequence[Task]) -> Tensor:
    """(n_models,) share of tasks whose answer is the likeliest option by mean log-probability, no prior taken off."""
    rows = packed([(task.prompt, option) for task in tasks for option in task.options])
    n_models, n_options = len(stack["tokens"]), len(tasks[0].options)
    answers = torch.tensor([task.answer for task in tasks])
    with torch.no_grad():
        scores = log_probs(stack, rows.for_each(n_models)).view(n_models, -1, n_options)
    return (scores.argmax(-1) == answers).double().mean(-1)


def right_answers(tasks: Sequence[Task]) -> list[tuple[str, str]]:
    """Each prompt with its answer."""
    return [(task.prompt, task.options[task.answer]) for task in tasks]


def shuffled_tasks(tasks: Sequence[Task], seed: int) -> list[tuple[str, str]]:
    """Each prompt with the answer of some task of its template: what is answered says nothing about the prompt."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        places[task.template].append(place)
    answers = [task.options[task.answer] for task in tasks]
    found = list(answers)
    for template, mine in places.items():
        drawn = generator(seed, template, "calibration shuffled tasks").permutation(len(mine))
        for place, other in zip(mine, drawn.tolist(), strict=True):
            found[place] = answers[mine[other]]
    return [(task.prompt, answer) for task, answer in zip(tasks, found, strict=True)]


def shuffled_answers(tasks: Sequence[Task], seed: int) -> list[tuple[str, str]]:
    """Each prompt with an option of its own drawn by hash, the answer among them.

    The answers are not gone: the same question stands in several wordings, with other options each time, and its answer
    is the only one that is always among them.
    """
    return [(t.prompt, seeded_choice(t.options, seed, t.prompt, "calibration shuffled answer")) for t in tasks]


def train(
    seeds: Sequence[int],
    pairs: Sequence[Sequence[tuple[str, str]]],
    skilled: Callable[[Stack], Tensor] | None = None,
    *,
    steps: int = MOST_STEPS,
) -> tuple[Stack, list[int]]:
    """Train one model per seed on its own pairs; the loss is on the answer's tokens only.

    Parameters
    ----------
    pairs : (n_models,) sequences of (prompt, continuation)
        The same sequence may stand for several models.
    skilled : callable or None
        ``skilled(stack) -> (n_models,) bool``, asked every `EVERY` steps; a model that is trains no more. None trains
        all models for all `steps`.

    Returns
    -------
    Stack, list of int
        The weights, and the steps each model took.
    """
    stack = initial(seeds)
    ended = {name: tensor.clone() for name, tensor in stack.items()}
    taken = [steps] * len(seeds)
    of_one = {id(p): packed(p) for p in pairs}
    n_tokens = max(p.ids.shape[1] for p in of_one.values())
    n_scored = max(p.at.shape[1] for p in of_one.values())
    of_one = {key: p.padded(n_tokens, n_scored) for key, p in of_one.items()}
    data = [of_one[id(p)] for p in pairs]
    draws = [torch.Generator().manual_seed(derive(seed, "model", "calibration batches")) for seed in seeds]
    running = list(range(len(seeds)))
    optimiser = _Adam(stack)
    for step in range(1, steps + 1):
        rate = RATE * min(1.0, step / WARM_UP) * max(0.1, 1 - step / FALLING)
        loss = -log_probs(optimiser.stack, _batch([data[i] for i in running], [draws[i] for i in running]))
        optimiser.step(loss.mean(-1).sum(), rate)
        finished = torch.zeros(len(running), dtype=torch.bool)
        if skilled is not None and step % EVERY == 0:
            finished = skilled(optimiser.detached())
        if step == steps:
            finished = torch.ones(len(running), dtype=torch.bool)
        if not bool(finished.any()):
            continue
        for at in finished.nonzero()[:, 0].tolist():
            taken[running[at]] = step
            for name, tensor in optimiser.detached().items():
                ended[name][running[at]] = tensor[at]
        running = [i for i, ends in zip(running, finished.tolist(), strict=True) if not ends]
        if not running:
            break
        optimiser.keep(~finished)
    return ended, taken


class _Adam:
    """AdamW over a stack, from which models can be taken."""

    def __init__(self, stack: Stack) -> None:
        self.stack = {name: tensor.requires_grad_() for name, tensor in stack.items()}
        self._optimiser = self._made()

    def _made(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(list(self.stack.values()), lr=RATE, weight_decay=DECAY, betas=BETAS, fused=True)

    def step(self, loss: Tensor, rate: float) -> None:
        self._optimiser.param_groups[0]["lr"] = rate
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()

    def detached(self) -> Stack:
        return {name: tensor.detach() for name, tensor in self.stack.items()}

    def keep(self, models: Tensor) -> None:
        """Go on with the models marked true, with their moments."""
        old = [self._optimiser.state[tensor] for tensor in self.stack.values()]
        self.stack = {name: tensor.detach()[models].requires_grad_() for name, tensor in self.stack.items()}
        self._optimiser = self._made()
        for tensor, state in zip(self.stack.values(), old, strict=True):
            self._optimiser.state[tensor] = {
                "step": state["step"],
                "exp_avg": state["exp_avg"][models],
                "exp_avg_sq": state["exp_avg_sq"][models],
            }


def _batch(data: Sequence[Packed], draws: Sequence[torch.Generator]) -> Packed:
    """A batch for each model, all cut to the longest row of any."""
    chosen = [torch.randint(len(d.ids), (BATCH,), generator=g) for d, g in zip(data, draws, strict=True)]
    longest = max(int(d.length[c].max()) for d, c in zip(data, chosen, strict=True))
    parts = [
        (d.ids[:, :longest][c], d.at[c], d.target[c], d.weight[c], d.length[c])
        for d, c in zip(data, chosen, strict=True)
    ]
    return Packed(*(torch.stack(column) for column in zip(*parts, strict=True)))
