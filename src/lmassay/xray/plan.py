"""What a run has to score: every prompt of every phase, each distinct context and continuation once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from lmassay.errors import LmassayError
from lmassay.models.tree import Continuations
from lmassay.xray.options import NEUTRAL_PROMPT, PromptStyle, Protocol, Tokenised, scorable
from lmassay.xray.prompt_swap import swap_prompts
from lmassay.xray.scored import PARAPHRASE, PROMPT_SWAP, REAL, SEMANTICS_BREAK, TASK_VARIANTS
from lmassay.xray.semantics_break import break_prompt

if TYPE_CHECKING:
    from lmassay.xray.task import Battery

PHASES = ("real", "controls", "paraphrase")
#: Tokens of one unit of work: what an interruption can cost.
SHARD_TOKENS = 2048

Target = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt with options, under one variant."""

    variant: str
    task_id: str
    family: str
    template: str
    set_id: str | None
    prompt: str
    options: tuple[str, ...]
    answer: int
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """An item with what is scored for it: its own prompt's continuations and the neutral prompt's."""

    item: Item
    own: Continuations
    neutral: Continuations
    flags: frozenset[str]
    n_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything to be scored, decided before the first forward pass.

    Attributes
    ----------
    items : tuple of PlannedItem
    shards : tuple of tuple of Continuations
        Distinct contexts, each with all its distinct targets, cut into units of work.
    skipped : dict of str to str
        Task id -> reason; a wording of a paraphrase group that is too long is only left out of its group.
    """

    items: tuple[PlannedItem, ...]
    shards: tuple[tuple[Continuations, ...], ...]
    skipped: dict[str, str] = field(default_factory=dict)


def items_of(battery: Battery, phases: Sequence[str], seed: int) -> list[Item]:
    """The battery's prompts under every variant the phases need; relabelling controls need none of their own."""
    items = [
        Item(REAL, t.id, t.family, t.template, t.set_id, t.prompt, t.options, t.answer, frozenset(t.flags))
        for t in battery.tasks
    ]
    if "controls" in phases:
        for task in battery.tasks:
            broken = break_prompt(task, seed)
            flags = frozenset(task.flags) | broken.flags
            about = (task.family, task.template, task.set_id)
            items.append(Item(SEMANTICS_BREAK, task.id, *about, broken.prompt, task.options, task.answer, flags))
        swaps = swap_prompts(battery, seed)
        for task in battery.tasks:
            swap = swaps[task.id]
            if swap.prompt is not None:
                flags = frozenset(task.flags) | swap.flags
                about = (task.family, task.template, task.set_id)
                items.append(Item(PROMPT_SWAP, task.id, *about, swap.prompt, task.options, task.answer, flags))
    if "paraphrase" in phases:
        items += [
            Item(PARAPHRASE, f"{g.id}/{k}", g.family, g.id, None, wording, g.options, g.answer)
            for g in battery.paraphrases
            for k, wording in enumerate(g.wordings)
        ]
    return items


def plan_run(
    items: Iterable[Item],
    style: PromptStyle,
    protocol: Protocol,
    *,
    context_length: int | None,
    over_length: str = "error",
) -> RunPlan:
    """Tokenise every item, find what is too long, and cut the distinct work into shards.

    Parameters
    ----------
    over_length : {"error", "skip"}
        What happens to a task whose longest scored sequence does not fit the model's context: the run is refused, or
        the task is left out of every variant, counted and named.

    Raises
    ------
    LmassayError
        ``prompt-too-long``, ``tokenizer-not-usable``.
    """

    @cache
    def neutral_of(options: tuple[str, ...]) -> Tokenised:
        return style.tokenise(NEUTRAL_PROMPT, options)

    planned = []
    too_long: dict[str, str] = {}
    wordings_too_long: dict[str, str] = {}
    for item in items:
        own = style.tokenise(item.prompt, item.options)
        neutral = neutral_of(item.options)
        here, there = scorable(own, protocol), scorable(neutral, protocol)
        length = max(_longest(here.request), _longest(there.request))
        if context_length is not None and length > context_length:
            left_out = too_long if item.variant in TASK_VARIANTS else wordings_too_long
            left_out.setdefault(item.task_id, f"{length} tokens, the model's context has {context_length}")
        flags = item.flags | here.flags
        if own.options != neutral.options:
            flags |= {"prior_mismatch"}
        # Not the request's context: the first distinct token's also holds what the options share.
        planned.append(PlannedItem(item, here.request, there.request, flags, len(own.context)))
    if (all_too_long := too_long | wordings_too_long) and over_length == "error":
        first, n_ids = next(iter(all_too_long)), len({p.item.task_id for p in planned})
        raise LmassayError(
            "prompt-too-long",
            f"{len(all_too_long)} of {n_ids} prompts do not fit: {first} has {all_too_long[first]}",
            "leave them out with --over-length skip, shorten them, or use a model with a longer context",
        )
    kept = [
        p for p in planned if p.item.task_id not in (too_long if p.item.variant in TASK_VARIANTS else wordings_too_long)
    ]
    if not any(p.item.variant == REAL for p in kept):
        raise LmassayError(
            "prompt-too-long", "no task of the battery fits the model's context", "use a model with a longer context"
        )
    return RunPlan(tuple(kept), _shards(kept), too_long)


def _longest(request: Continuations) -> int:
    return len(request.context) + max(map(len, request.targets)) - 1


def _shards(planned: Iterable[PlannedItem]) -> tuple[tuple[Continuations, ...], ...]:
    """Distinct work, longest contexts first, cut where a shard has its share of tokens.

    The order depends on the tokens alone, so that neither the order of tasks nor the batch size moves a boundary.
    """
    by_context: dict[Target, set[Target]] = {}
    for p in planned:
        for request in (p.own, p.neutral):
            by_context.setdefault(request.context, set()).update(request.targets)
    shards: list[list[Continuations]] = [[]]
    size = 0
    for context in sorted(by_context, key=lambda c: (-len(c), c)):
        targets = sorted(by_context[context])
        while targets:
            room = SHARD_TOKENS - size - len(context)
            taken, used = 0, 0
            while taken < len(targets) and (taken == 0 or used + len(targets[taken]) <= room):
                used += len(targets[taken])
                taken += 1
            if shards[-1] and used > room:
                shards.append([])
                size = 0
                continue
            shards[-1].append(Continuations(context, tuple(targets[:taken])))
            size += len(context) + used
            targets = targets[taken:]
            if targets:
                shards.append([])
                size = 0
    return tuple(tuple(shard) for shard in shards if shard)
