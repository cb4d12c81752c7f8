"""Phase `geometry`: how residuals at the last token of a prompt lie to each other, and what a line can part.

One row per cell goes into the table; every figure is recomputed from it (`geometry_scores`) without a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.seeds import derive, generator
from lmassay.xray.clustering import (
    centred_cosines,
    cosines_of,
    directions,
    mean_pair,
    neighbours,
    shuffled_families,
    shuffled_gap,
)
from lmassay.xray.geometry_scores import summarise
from lmassay.xray.geometry_table import BATTERY, cell, frame
from lmassay.xray.probe import (
    TFIDF_C,
    Held,
    held_out,
    majority,
    nested,
    predicted,
    shuffled_labels,
    single_split,
    split_by_template,
    standardised,
    tfidf,
)
from lmassay.xray.scored import PARAPHRASE, REAL
from lmassay.xray.task import FAMILY_GROUPS

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from lmassay.xray.phase import Measuring
    from lmassay.xray.plan import PlannedItem
    from lmassay.xray.residuals import Context
    from lmassay.xray.scored import Floats, Ints

__all__ = ["NAME", "TABLE", "measure", "summarise", "tabulate"]

NAME = "geometry"
TABLE = "geometry.parquet"

#: Relabellings a control is the mean of.
CLUSTERING_DRAWS = 100
PROBE_DRAWS = 10
ONE_WORDING = "one wording"
MORE_WORDINGS = "more wordings than tasks"
ONE_TASK = "the family has one task"
FEW_OTHERS = "the family has under two other tasks"
ONE_FAMILY = "one family"
ONE_TEMPLATE = "every family has one template"
NOTHING_LEFT = "nothing is left without the mean of the other prompts"
CENTRED = "_centred"
NO_GROUP = "no family of the group in this battery"

Row = dict[str, Any]


@dataclass(frozen=True)
class Prompts:
    """The prompts whose residuals are compared.

    Attributes
    ----------
    tasks : tuple of PlannedItem
        The battery's tasks by id: draws and folds depend on the order, so it is the battery's content's own.
    groups : dict of str to tuple of PlannedItem
        Wordings of each paraphrase group.
    """

    tasks: tuple[PlannedItem, ...]
    groups: dict[str, tuple[PlannedItem, ...]]

    @property
    def family(self) -> Ints:
        """(n_tasks,) codes."""
        return np.asarray(np.unique([t.item.family for t in self.tasks], return_inverse=True)[1], np.int64)

    @property
    def templates(self) -> list[str]:
        """Of the tasks."""
        return [t.item.template for t in self.tasks]


def measure(measuring: Measuring) -> pl.DataFrame:
    """Record the residuals of all tasks and wordings, and measure depth by depth.

    Raises
    ------
    LmassayError
        ``non-finite-logits``.
    """
    # Figures from a table need no torch.
    from lmassay.xray.residuals import COLUMNS, record_residuals

    items, depths, progress = measuring.plan.items, measuring.model.depths[:-1], measuring.progress
    n_shards = 0

    def shards_done(done: int, total: int) -> None:
        nonlocal n_shards
        n_shards = total
        if progress is not None:
            progress(done, total + len(depths))

    def depths_done(done: int) -> None:
        if progress is not None:
            progress(n_shards + done, n_shards + len(depths))

    residuals = record_residuals(
        measuring.model,
        [_context(p) for p in items if p.item.variant in (REAL, PARAPHRASE)],
        measuring.parts(COLUMNS),
        batch_tokens=measuring.batch_tokens,
        progress=shards_done,
    )
    return tabulate(items, depths, residuals.at, measuring.seed, depths_done)


def tabulate(
    items: Sequence[PlannedItem],
    depths: Sequence[str],
    states_at: Callable[[int, Sequence[Context]], Floats],
    seed: int,
    done: Callable[[int], None] = lambda _: None,
) -> pl.DataFrame:
    """The phase's table from residuals.

    Parameters
    ----------
    depths : sequence of str
        ``embed`` and the block outputs.
    states_at : callable
        ``states_at(depth index, contexts)`` gives (n_contexts, d_model) float64: one depth is in memory at a time.
    done : callable
        Called with the number of depths done.
    """
    import polars as pl

    prompts = _prompts(items)
    contexts = [_context(p) for p in (*prompts.tasks, *(w for group in prompts.groups.values() for w in group))]
    cosines, probing = Cosines(prompts, seed), Probing.of(prompts, seed)
    frames = [frame(list(probing.status_rows()))]
    for index, depth in enumerate(depths):
        states = states_at(index, contexts)
        found = [*cosines.rows(states), *probing.rows(states[: len(prompts.tasks)])]
        # `final` is the state that the final norm reads: the last block's.
        names = [(index, depth), (index + 1, "final")] if index == len(depths) - 1 else [(index, depth)]
        frames += [frame([{"depth": name, "depth_index": at, **row} for row in found]) for at, name in names]
        done(index + 1)
    return pl.concat([*frames, frame(list(probing.chosen_rows(depths)))])


def _context(planned: PlannedItem) -> Context:
    """The prompt's own tokens: what is scored may begin later, after tokens that all options share."""
    return planned.own.context[: planned.n_prompt_tokens]


def _prompts(items: Sequence[PlannedItem]) -> Prompts:
    tasks = sorted((p for p in items if p.item.variant == REAL), key=lambda p: p.item.task_id)
    groups: dict[str, list[PlannedItem]] = {}
    for planned in sorted((p for p in items if p.item.variant == PARAPHRASE), key=lambda p: p.item.task_id):
        groups.setdefault(planned.item.template, []).append(planned)
    return Prompts(tuple(tasks), {name: tuple(group) for name, group in sorted(groups.items())})


class Cosines:
    """Consistency of paraphrases and clustering of families, with their controls, at one depth after another."""

    def __init__(self, prompts: Prompts, seed: int) -> None:
        self.prompts = prompts
        self.family = prompts.family
        rng = generator(seed, "battery", "geometry shuffled families")
        templates_of = Counter(family for family, _ in set(zip(self.family.tolist(), prompts.templates, strict=True)))
        several = max(templates_of.values()) > 1
        self.no_shuffle = ONE_FAMILY if len(templates_of) == 1 else None if several else ONE_TEMPLATE
        self.relabelled = (
            [] if self.no_shuffle else shuffled_families(self.family, prompts.templates, rng, CLUSTERING_DRAWS)
        )

    def rows(self, states: Floats) -> Iterator[Row]:
        """Cells of one depth; `states` (n_tasks + n_wordings, d_model) in the order of tasks, then groups."""
        n = len(self.prompts.tasks)
        for suffix, cosines in (("", cosines_of(states[:n])), (CENTRED, centred_cosines(states[:n]))):
            yield from self._consistency(states, cosines, suffix)
            yield from self._clustering(cosines, suffix)

    def _consistency(self, states: Floats, cosines: Floats, suffix: str) -> Iterator[Row]:
        tasks = self.prompts.tasks
        n = at = len(tasks)
        families = np.array([t.item.family for t in tasks])
        for name, group in self.prompts.groups.items():
            wordings = states[at : at + len(group)]
            at += len(group)
            family = group[0].item.family
            own = {_context(w) for w in group}
            # Not the group's own question: a random group holds other ones, and so does the mean.
            others = np.array([_context(t) not in own for t in tasks])
            same = others & (families == family)
            if not suffix:
                units = directions(wordings)
            elif others.any():
                units = directions(wordings, states[:n][others].mean(0))
            else:
                units = np.full_like(wordings, np.nan)
            about = {"kind": "group", "unit": name, "family": family}
            value = mean_pair(units @ units.T)
            yield cell(
                f"consistency{suffix}", value, len(group), ONE_WORDING if len(group) < 2 else NOTHING_LEFT, about
            )
            value = mean_pair(cosines[np.ix_(others, others)])
            few = others.sum() < max(2, len(group))
            why = MORE_WORDINGS if few else NOTHING_LEFT
            yield cell(f"consistency_random{suffix}", np.nan if few else value, int(others.sum()), why, about)
            value = mean_pair(cosines[np.ix_(same, same)])
            why = FEW_OTHERS if same.sum() < 2 else NOTHING_LEFT
            yield cell(f"consistency_family{suffix}", value, int(same.sum()), why, about)

    def _clustering(self, cosines: Floats, suffix: str) -> Iterator[Row]:
        found = neighbours(cosines, [self.family])[0]
        control = None
        if suffix and not self.no_shuffle:
            control = shuffled_gap(cosines, self.relabelled)
        sizes = Counter(t.item.family for t in self.prompts.tasks)
        for i, task in enumerate(self.prompts.tasks):
            about = _about(task)
            alone = ONE_TASK if sizes[task.item.family] == 1 else NOTHING_LEFT
            other = ONE_FAMILY if len(sizes) == 1 else NOTHING_LEFT
            yield cell(f"within{suffix}", found.within[i], int(found.n_within[i]), alone, about)
            yield cell(f"between{suffix}", found.between[i], int(found.n_between[i]), other, about)
            if suffix:
                value = np.nan if control is None else control[i]
                yield cell("gap_shuffled", value, CLUSTERING_DRAWS, self.no_shuffle or NOTHING_LEFT, about)


@dataclass
class Probing:
    """Probes of logic against compute, with their controls, at one depth after another.

    Attributes
    ----------
    chosen : (n,) bool
        Tasks that are of one of the two groups.
    labels : (1 + PROBE_DRAWS, n_chosen) int64
        The real ones, then those shuffled by template.
    fold : (n_chosen,) int64 or str
        Or why there is none.
    """

    tasks: tuple[PlannedItem, ...]
    chosen: NDArray[np.bool_]
    labels: Ints
    fold: Ints | str
    test: NDArray[np.bool_] | None
    found: list[Held]

    @classmethod
    def of(cls, prompts: Prompts, seed: int) -> Probing:
        """Draw labels and splits."""
        groups = [FAMILY_GROUPS.get(t.item.family) for t in prompts.tasks]
        chosen = np.array([g is not None for g in groups])
        tasks = tuple(t for t, keep in zip(prompts.tasks, chosen, strict=True) if keep)
        y = np.array([int(g == "logic") for g in groups if g is not None], np.int64)
        templates = [t.item.template for t in tasks]
        if len(set(y.tolist())) < 2:
            return cls(tasks, chosen, y[None], NO_GROUP, None, [])
        fold = split_by_template(y, templates, derive(seed, "battery", "geometry folds"))
        drawn = shuffled_labels(y, templates, generator(seed, "battery", "geometry shuffled labels"), PROBE_DRAWS)
        test = single_split(y, derive(seed, "battery", "geometry single split"))
        return cls(tasks, chosen, np.vstack([y, drawn]), fold, test, [])

    def status_rows(self) -> Iterator[Row]:
        """Why there is no probe, where there is none."""
        about = {"kind": BATTERY, "unit": BATTERY}
        if isinstance(self.fold, str):
            yield cell("probe", np.nan, len(self.tasks), self.fold, about)
        if self.test is None:
            reason = self.fold if isinstance(self.fold, str) else "a class has one task"
            yield cell("probe_single", np.nan, len(self.tasks), reason, about)

    def rows(self, states: Floats) -> Iterator[Row]:
        """Cells of one depth; `states` (n_tasks, d_model)."""
        features = standardised(states[self.chosen])
        if not isinstance(self.fold, str):
            held = held_out(features, self.labels, self.fold)
            self.found.append(held)
            yield from self._by_task("probe", held.right[0], 1)
            yield from self._by_task("probe_shuffled", held.right[1:].mean(0), PROBE_DRAWS)
        if self.test is not None:
            right = predicted(features, self.labels, ~self.test, self.test) == self.labels[:, self.test]
            tested = [t for t, keep in zip(self.tasks, self.test, strict=True) if keep]
            for task, hit in zip(tested, right[0], strict=True):
                yield cell("probe_single", hit, 1, "", _about(task))
            for draw, share in enumerate(right[1:].mean(1)):
                about = {"kind": "draw", "unit": str(draw)}
                yield cell("probe_single_shuffled", share, len(tested), "", about)

    def chosen_rows(self, depths: Sequence[str]) -> Iterator[Row]:
        """What the depth chosen inside the training folds gives, and TF-IDF with its strength chosen alike."""
        if isinstance(self.fold, str):
            return
        right, choice = nested(self.found, self.fold)
        for row, at in zip(self._by_task("probe_nested", right[0], 1), choice[0].tolist(), strict=True):
            yield {"depth": depths[at], "depth_index": at, **row}
        yield from self._by_task("probe_nested_shuffled", right[1:].mean(0), PROBE_DRAWS)
        text = tfidf([t.item.prompt for t in self.tasks])
        baseline, _ = nested([held_out(text, self.labels[:1], self.fold, c) for c in TFIDF_C], self.fold)
        yield from self._by_task("tfidf", baseline[0], 1)
        yield from self._by_task("majority", majority(self.labels[0], self.fold), 1)

    def _by_task(self, name: str, values: NDArray[Any], n: int) -> Iterator[Row]:
        for task, value in zip(self.tasks, values, strict=True):
            yield cell(name, value, n, "", _about(task))


def _about(task: PlannedItem) -> Row:
    item = task.item
    return {
        "kind": "task",
        "unit": item.task_id,
        "family": item.family,
        "template": item.template,
        "set": item.set_id,
    }
