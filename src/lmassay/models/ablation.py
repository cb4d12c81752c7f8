"""Ablation: one component's output replaced at every token, and the network run on from its block.

Nothing before the component changes, so each pass resumes from the clean states that enter its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from lmassay.models.components import Component
from lmassay.models.edits import Columns, Edit, Mean, Resample, Zero
from lmassay.models.engines import BATCH_TOKENS, batches
from lmassay.models.lens import target_log_probs
from lmassay.models.rows import chain, edges_of, right_padded
from lmassay.models.trace import Resume, trace
from lmassay.models.tree import Continuations
from lmassay.models.units import Unit, clean_states, every_token, in_batches, target_means, work_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.models.language_model import LanguageModel
    from lmassay.models.tree import Ints

Context = tuple[int, ...]


class Replacement(Protocol):
    """What takes the place of a component's output."""

    def for_batch(
        self, model: LanguageModel, units: Sequence[Unit], batch_tokens: int
    ) -> Callable[[Component], Zero | Mean | Resample]:
        """The edit of each component for a batch of rows, in the component's own columns."""
        ...


@dataclass(frozen=True)
class Zeroed:
    """Nothing: the whole output, biases included, is zero."""

    def for_batch(
        self, model: LanguageModel, units: Sequence[Unit], batch_tokens: int
    ) -> Callable[[Component], Zero | Mean | Resample]:
        """Zero, whatever the rows."""
        return lambda component: Zero(component.site)


@dataclass(frozen=True)
class Averaged:
    """One vector per component.

    Attributes
    ----------
    vectors : mapping of str to (width,) tensor
        By site.
    """

    vectors: Mapping[str, Tensor]

    def for_batch(
        self, model: LanguageModel, units: Sequence[Unit], batch_tokens: int
    ) -> Callable[[Component], Zero | Mean | Resample]:
        """The component's mean, whatever the rows."""
        return lambda component: Mean(component.site, _own(self.vectors[component.site], component))


@dataclass(frozen=True)
class Resampled:
    """The output another prompt has there, aligned from the last prompt token.

    A token k places before the end of its prompt gets the donor's k places before its end, or the donor's first where
    the donor is shorter; the tokens of an option get the donor's last.

    Attributes
    ----------
    donors : sequence of Context
        For each request the donor's prompt.
    """

    donors: Sequence[Context]
    sites: Sequence[str]

    def for_batch(
        self, model: LanguageModel, units: Sequence[Unit], batch_tokens: int
    ) -> Callable[[Component], Zero | Mean | Resample]:
        """Run the batch's donors once, then hand out their outputs."""
        contexts = list(dict.fromkeys(self.donors[unit.request] for unit in units))
        outputs, first = _site_outputs(model, contexts, self.sites, batch_tokens)
        width = max(len(unit.tree) for unit in units)
        token = np.zeros((len(units), width), dtype=np.int64)
        for row, unit in enumerate(units):
            donor = self.donors[unit.request]
            before_end = np.clip(unit.root - unit.tree.positions, 0, len(donor) - 1)
            token[row, : len(unit.tree)] = first[donor] + len(donor) - 1 - before_end
        at = torch.from_numpy(token)
        return lambda component: Resample(component.site, _own(outputs[component.site][at], component))


def _own(values: Tensor, component: Component) -> Tensor:
    return values if component.columns is None else values[..., slice(*component.columns)]


def _outputs(
    model: LanguageModel, contexts: Sequence[Context], sites: Sequence[str], batch_tokens: int
) -> Iterator[tuple[list[Context], Ints, dict[str, Tensor]]]:
    """Batches of contexts: which they are, where each one's tokens begin, and the (n_tokens, width) outputs."""
    for batch in batches([len(c) for c in contexts], batch_tokens):
        members = [contexts[i] for i in batch]
        chains = [chain(context) for context in members]
        rows, cols, starts = every_token(chains)
        yield members, starts, trace(model, right_padded(model, chains), rows, cols, (), record_sites=sites).sites


def _site_outputs(
    model: LanguageModel, contexts: Sequence[Context], sites: Sequence[str], batch_tokens: int
) -> tuple[dict[str, Tensor], dict[Context, int]]:
    """(n_tokens, width) outputs of each site over all contexts, and where each context begins."""
    collected: dict[str, list[Tensor]] = {site: [] for site in sites}
    first: dict[Context, int] = {}
    n = 0
    for members, starts, outputs in _outputs(model, contexts, sites, batch_tokens):
        first |= {context: n + int(start) for context, start in zip(members, starts, strict=True)}
        n += sum(map(len, members))
        for site in sites:
            collected[site].append(outputs[site])
    return {site: torch.cat(parts) for site, parts in collected.items()}, first


def site_means(
    model: LanguageModel, contexts: Sequence[Context], sites: Sequence[str], *, batch_tokens: int = BATCH_TOKENS
) -> dict[str, Tensor]:
    """(width,) mean output of each site over every token of every context."""
    total: dict[str, Tensor] = {}
    for _, _, outputs in _outputs(model, contexts, sites, batch_tokens):
        for site in sites:
            added = outputs[site].double().sum(0)
            total[site] = total[site] + added if site in total else added
    n = sum(map(len, contexts))
    return {site: summed / n for site, summed in total.items()}


def ablated_means(
    model: LanguageModel,
    requests: Sequence[Continuations],
    components: Sequence[Component],
    replacement: Replacement,
    *,
    batch_tokens: int = BATCH_TOKENS,
) -> list[NDArray[np.float64]]:
    """Mean log-probability per target token at every depth, without each component in turn.

    Parameters
    ----------
    components : sequence of Component
        Block by block, as `components_of` gives them.

    Returns
    -------
    list of (n_components, n_targets, n_depths) float64
        For each request, in nats; depths before the component are those of the clean pass.
    """
    work = work_of(model, requests, batch_tokens)
    n = model.n_blocks
    values = [np.full((len(components), n + 2, edges), np.nan) for edges in work.n_edges]
    for units in in_batches(work.units, batch_tokens):
        trees = [unit.tree for unit in units]
        batch, edges = work.batch(model, trees), edges_of(trees)
        clean = clean_states(model, work, trees)
        read = torch.from_numpy(clean.first)[edges.rows] + edges.cols
        before = target_log_probs(model, clean.states[:, read.to(clean.states.device)], edges.context, edges.target)
        edit_of = replacement.for_batch(model, units, batch_tokens)
        entering: Resume | None = None
        for at, component in enumerate(components):
            block = component.block
            if block and (entering is None or entering.block != block - 1):
                entering = Resume(block - 1, clean.rows(block, trees))
            own = edit_of(component)
            edit: Edit = own if component.columns is None else Columns(own, *component.columns)
            depths = range(block + 1, n + 1)
            seen = trace(model, batch, edges.rows, edges.cols, depths, edits=[edit], resume=entering)
            after = target_log_probs(model, seen.states, edges.context, edges.target, depths=depths)
            found = torch.cat([before[: block + 1], after, after[-1:]]).numpy()
            start = 0
            for unit in units:
                stop = start + len(unit.edges)
                values[unit.request][at][:, unit.edges] = found[:, start:stop]
                start = stop
    return [np.swapaxes(target_means(v, paths), 1, 2) for v, paths in zip(values, work.paths, strict=True)]
