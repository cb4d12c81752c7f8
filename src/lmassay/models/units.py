"""Work that starts in the middle of a model: trees with their clean states, run on from any block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lmassay.models.engines import ROW_NODES, batches, packs
from lmassay.models.rows import block_masked, right_padded
from lmassay.models.trace import Batch, trace
from lmassay.models.tree import Continuations, Tree, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmassay.models.language_model import LanguageModel
    from lmassay.models.tree import Ints


@dataclass(frozen=True, slots=True)
class Unit:
    """One row of work.

    Attributes
    ----------
    request : int
        Which of the requests it belongs to.
    root : int
        The last token of the context: from here on every node's next token is scored.
    edges : (n_edges,) int64
        Where the tree's edges go among the request's.
    """

    request: int
    tree: Tree
    root: int
    edges: Ints


@dataclass(frozen=True)
class Work:
    """Requests cut into units.

    Attributes
    ----------
    paths : tuple of tuple of tuple of int
        For each request and target, its edges.
    packed : bool
        Whether a unit holds all of a request's targets, or one target each.
    """

    units: tuple[Unit, ...]
    n_edges: tuple[int, ...]
    paths: tuple[tuple[tuple[int, ...], ...], ...]
    packed: bool

    def batch(self, model: LanguageModel, trees: Sequence[Tree]) -> Batch:
        """The trees as rows, under the mask this model takes."""
        return block_masked(model, trees) if self.packed else right_padded(model, trees)


def work_of(model: LanguageModel, requests: Sequence[Continuations], batch_tokens: int) -> Work:
    """One tree for a request's targets where the model can be packed, else one sequence per target."""
    packed = packs(model, requests)
    units: list[Unit] = []
    n_edges: list[int] = []
    paths: list[tuple[tuple[int, ...], ...]] = []
    for at, request in enumerate(requests):
        root = len(request.context) - 1
        if packed:
            whole = plan(request, min(ROW_NODES, batch_tokens))
            units += [Unit(at, tree, root, tree.edge_slot) for tree in whole.trees]
            n_edges.append(whole.n_edges)
            paths.append(whole.paths)
            continue
        start, own = 0, []
        for target in request.targets:
            (tree,) = plan(Continuations(request.context, (target,)), len(request.context) + len(target)).trees
            units.append(Unit(at, tree, root, tree.edge_slot + start))
            own.append(tuple(range(start, start + len(target))))
            start += len(target)
        n_edges.append(start)
        paths.append(tuple(own))
    return Work(tuple(units), tuple(n_edges), tuple(paths), packed)


def target_means(by_edge: np.ndarray, paths: Sequence[Sequence[int]]) -> np.ndarray:
    """(…, n_edges) log-probabilities of a request -> (…, n_targets) means over each target's tokens."""
    return np.stack([by_edge[..., list(path)].mean(-1) for path in paths], -1)


@dataclass(frozen=True)
class Clean:
    """Unedited states of a batch of trees at all their tokens.

    Attributes
    ----------
    states : (n_blocks + 1, n_tokens, d_model)
    first : (n_trees,) int64
        Where each tree's tokens begin.
    """

    states: Tensor
    first: Ints
    sites: dict[str, Tensor]

    def rows(self, depth: int, trees: Sequence[Tree]) -> Tensor:
        """(batch, width, d_model) states at one depth, zero where a row is padded."""
        width = max(map(len, trees))
        rows = torch.zeros(len(trees), width, self.states.shape[-1], dtype=self.states.dtype, device=self.states.device)
        for row, (tree, start) in enumerate(zip(trees, self.first.tolist(), strict=True)):
            rows[row, : len(tree)] = self.states[depth, start : start + len(tree)]
        return rows


def clean_states(model: LanguageModel, work: Work, trees: Sequence[Tree], *, record_sites: Sequence[str] = ()) -> Clean:
    """Run the trees once and keep the residual stream of every token at every depth but ``final``."""
    rows, cols, first = every_token(trees)
    depths = range(model.n_blocks + 1)
    seen = trace(model, work.batch(model, trees), rows, cols, depths, record_sites=record_sites)
    return Clean(seen.states, first, seen.sites)


def every_token(trees: Sequence[Tree]) -> tuple[Tensor, Tensor, Ints]:
    """Row and column of every token of every tree, and where each tree begins."""
    lengths = np.array([len(tree) for tree in trees])
    rows = torch.from_numpy(np.repeat(np.arange(len(trees)), lengths))
    cols = torch.cat([torch.arange(n) for n in lengths.tolist()])
    return rows, cols, np.cumsum(lengths) - lengths


def in_batches(units: Sequence[Unit], batch_tokens: int) -> Iterator[list[Unit]]:
    """Units of like length together, at most `batch_tokens` tokens, padding included."""
    for batch in batches([len(unit.tree) for unit in units], batch_tokens):
        yield [units[i] for i in batch]
