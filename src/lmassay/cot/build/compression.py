"""Task 9: what is lost when only some sentences of a chain of thought are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from lmassay.cot.build.asked_monitor import Monitor, Request, selections
from lmassay.cot.build.kept_costs import Choice, forced_letters, kept_costs
from lmassay.cot.build.letters import answer_kl
from lmassay.cot.build.prompts import Question
from lmassay.cot.build.rules import Dropped
from lmassay.cot.build.selectors import MONITOR, SELECTORS, Prefix, chosen, ranking
from lmassay.cot.build.sentences import parted, sentences
from lmassay.cot.build.workshop import Rollout, Row, Workshop
from lmassay.cot.compression import DELETION, KEPT, WHOLE
from lmassay.models.sampling import Sampling

if TYPE_CHECKING:
    from lmassay.models.attended import Attended


@dataclass(frozen=True, slots=True)
class Settings:
    """How task 9 is built.

    Attributes
    ----------
    rollouts : int
        Per question.
    shortest : int
        Sentences of the shortest prefix.
    step : int
        From one prefix length to the next.
    keep : tuple of int
        How many sentences are chosen (M).
    selectors : tuple of str
    monitor_tokens : int
        Limit of the monitor's reply.

    Raises
    ------
    ValueError
        For a selector that is none, and for numbers that leave nothing to choose.
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=16384))
    rollouts: int = 1
    shortest: int = 15
    step: int = 1
    keep: tuple[int, ...] = (3, 5, 10, 15, 20)
    selectors: tuple[str, ...] = SELECTORS
    monitor_tokens: int = 4096

    def __post_init__(self) -> None:
        strange = [name for name in self.selectors if name not in SELECTORS]
        if strange:
            raise ValueError(f"no selector {strange[0]!r} among {', '.join(SELECTORS)}")
        if self.shortest <= KEPT or self.step < 1:
            raise ValueError(f"a prefix has more than the {KEPT} sentences that are always kept, a step is 1 or more")
        if not self.keep or min(self.keep) < 1 or len(set(self.keep)) < len(self.keep):
            raise ValueError("numbers of kept sentences are positive, and each is named once")


@dataclass(frozen=True, slots=True)
class _Cut:
    """A rollout cut after `n` sentences; the one after them is known."""

    question: Question
    rollout: Rollout
    own: tuple[str, ...]
    following: str

    @property
    def name(self) -> str:
        return f"{self.question.id} {self.rollout.number} {len(self.own)}"

    @property
    def region(self) -> int:
        """Sentences to choose among."""
        return len(self.own) - KEPT


def build(
    shop: Workshop, settings: Settings, attended: Attended | None = None, monitor: Monitor | None = None
) -> list[Row]:
    """Cells (`lmassay.cot.compression.SCHEMA`), a row for each prefix, M and selector.

    Parameters
    ----------
    attended : Attended, optional
        How much each sentence is attended to; without it the selectors by attention are left out.
    monitor : Monitor, optional
        Who is asked by the selector ``monitor``; the subject itself where nobody is named.
    """
    cuts = _cuts(shop, settings)
    shop.count("prefixes compressed", len(cuts))
    shop.examples += [_example(shop, cut) for cut in cuts]
    monitored = _monitored(cuts, settings, monitor or Monitor(shop.engine, shop.draw))
    shop.drop(Dropped.NOT_CHOSEN, sum(one is None for one in monitored.values()))
    return [row for cut in cuts for row in _cells(shop, cut, settings, attended, monitored)]


def _example(shop: Workshop, cut: _Cut) -> Row:
    """A prefix as data, whose sentences can be told again."""
    question, rollout = cut.question, cut.rollout
    return {
        "example_id": cut.name, "split": shop.split[question.id], "question_id": question.id, "label": None,
        "prompt": question.prompt, "option": question.lettered, "cot": parted(cut.own),
        "prefix_length": len(cut.own), "rollout": rollout.number, "next_sentence": cut.following,
    }  # fmt: skip


def _cuts(shop: Workshop, settings: Settings) -> list[_Cut]:
    found = shop.rollouts([(q.id, q.text()) for q in shop.questions], settings.sampling, settings.rollouts)
    by_id = {q.id: q for q in shop.questions}
    cuts = []
    for rollout in shop.finished(chain.from_iterable(found)):
        parts = sentences(rollout.cot)
        if len(parts) <= settings.shortest:
            shop.drop(Dropped.TOO_FEW_SENTENCES)
        # The last sentence is never in a prefix: it is the next one of the longest.
        cuts += [
            _Cut(by_id[rollout.question], rollout, tuple(parts[:n]), parts[n])
            for n in range(settings.shortest, len(parts), settings.step)
        ]
    return cuts


def _monitored(cuts: list[_Cut], settings: Settings, monitor: Monitor) -> dict[tuple[str, int], list[int] | None]:
    """What the monitor chose, by prefix and M; all prefixes are asked about at once."""
    if MONITOR not in settings.selectors:
        return {}
    requests = [Request(cut.name, cut.question, cut.own, m) for cut in cuts for m in settings.keep if m <= cut.region]
    found = selections(monitor, requests, settings.monitor_tokens)
    return {(request.name, request.m): one for request, one in zip(requests, found, strict=True)}


def _cells(
    shop: Workshop,
    cut: _Cut,
    settings: Settings,
    attended: Attended | None,
    monitored: dict[tuple[str, int], list[int] | None],
) -> list[Row]:
    own, region = cut.own, cut.region
    asked = cut.question.text()
    # The whole prefix, none of the region, and each of its sentences alone, in one call: they share their prompt.
    kept_alone: list[Choice] = [tuple(range(region)), (), *((i,) for i in range(region))]
    logs = forced_letters(shop, cut.question, own, kept_alone)
    single = np.array([answer_kl(logs[0], one) for one in logs[2:]])
    from_last, from_next = attended(asked, own, cut.following) if attended is not None else (None, None)
    prefix = Prefix(
        cut.name,
        region,
        single,
        None if from_last is None else from_last[:region],
        None if from_next is None else from_next[:region],
    )
    cells: list[tuple[str, int, list[int] | None]] = [(WHOLE, region, None), (DELETION, 0, None)]
    for selector in settings.selectors:
        ranked = ranking(selector, prefix, shop.seed) if selector != MONITOR else None
        for m in (m for m in settings.keep if m <= region):
            kept = monitored[cut.name, m] if selector == MONITOR else None if ranked is None else chosen(ranked, m)
            if kept is not None:
                cells.append((selector, m, kept))
    # Selectors often choose the same sentences: each choice is measured once.
    choices = [tuple(kept) if kept is not None else tuple(range(m)) for _, m, kept in cells]
    costs = kept_costs(shop, cut.question, own, cut.following, choices)
    return [
        {
            "question": cut.question.id, "prefix_length": len(own), "n_region": region, "m": m, "selector": selector,
            "indices": kept, "answer_kl": costs[choice].answer_kl,
            "token_kl": costs[choice].token_kl, "floored_mass": 0.0, "rollout": cut.rollout.number,
            "token_kl_lower_bound": costs[choice].token_lower_bound, "answer_kl_exact": costs[choice].answer_exact,
            "single_kl": single.tolist() if selector == WHOLE else None,
        }
        for (selector, m, kept), choice in zip(cells, choices, strict=True)
    ]  # fmt: skip
