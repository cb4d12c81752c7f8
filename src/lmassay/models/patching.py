"""Carry-forward patching: an early state put in the place of a later one, and the rest of the network run on.

For a cell (source, target) the residual stream at `source` replaces the output of block `target` at every token whose
next-token prediction is scored, and only the blocks after the target are run. The tokens before them keep their clean
states, so the prompt is shared: one row holds it once, and behind it a copy of the scored tokens for every source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lmassay.models.engines import BATCH_TOKENS, ROW_NODES, batches
from lmassay.models.lens import target_log_probs
from lmassay.models.rows import edges_of
from lmassay.models.trace import Resume, trace
from lmassay.models.tree import Continuations, Tree
from lmassay.models.units import Clean, Unit, clean_states, in_batches, target_means, work_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.models.language_model import LanguageModel
    from lmassay.models.tree import Ints

#: (index into ``model.depths`` the states come from, block whose output they replace).
Cell = tuple[int, int]


def cells_of(sources: Sequence[int], targets: Sequence[int]) -> list[Cell]:
    """Every source with every target block after it, targets first.

    Depth 0 is what enters block 0 and depth i + 1 the output of block i, so block t comes after depth s when s <= t.
    """
    return [(source, target) for target in targets for source in sorted(sources) if source <= target]


@dataclass(frozen=True, slots=True)
class _Row:
    """A tree with one copy of its scored tokens per cell.

    Attributes
    ----------
    node : (n,) int64
        The token of the clean tree each token repeats.
    source : (n,) int64
        The depth its state comes from; -1 for the clean state at the target.
    cell : (n_edges,) int64
        For each edge, the cell it is read for.
    """

    unit: int
    tree: Tree
    node: Ints
    source: Ints
    cell: Ints


def patched_means(
    model: LanguageModel,
    requests: Sequence[Continuations],
    cells: Sequence[Sequence[Cell]],
    *,
    batch_tokens: int = BATCH_TOKENS,
) -> list[NDArray[np.float64]]:
    """Mean log-probability per target token at ``final`` under every patch of every request.

    Parameters
    ----------
    cells : sequence of sequence of Cell
        For each request, where states come from (``final`` excluded) and which block's output they replace.

    Returns
    -------
    list of (n_cells, n_targets) float64
        In nats, for each request in the order of its cells.
    """
    work = work_of(model, requests, batch_tokens)
    values = [np.full((len(c), n), np.nan) for c, n in zip(cells, work.n_edges, strict=True)]
    for units in in_batches([unit for unit in work.units if cells[unit.request]], batch_tokens):
        trees = [unit.tree for unit in units]
        clean = clean_states(model, work, trees)
        for target in sorted({target for unit in units for _, target in cells[unit.request]}):
            rows = [
                row
                for at, unit in enumerate(units)
                for row in _rows(
                    at,
                    unit,
                    [(i, s) for i, (s, t) in enumerate(cells[unit.request]) if t == target],
                    packed=work.packed,
                )
            ]
            for batch in batches([len(row.tree) for row in rows], batch_tokens):
                members = [rows[i] for i in batch]
                edges = edges_of([row.tree for row in members])
                start = Resume(target, _states(clean, members, target))
                seen = trace(
                    model,
                    work.batch(model, [row.tree for row in members]),
                    edges.rows,
                    edges.cols,
                    (model.n_blocks,),
                    resume=start,
                )
                found = target_log_probs(
                    model, seen.states, edges.context, edges.target, depths=(model.n_blocks,)
                ).numpy()[0]
                at = 0
                for row in members:
                    n = len(row.cell)
                    values[units[row.unit].request][row.cell, row.tree.edge_slot] = found[at : at + n]
                    at += n
    return [target_means(v, p) for v, p in zip(values, work.paths, strict=True)]


def _rows(at: int, unit: Unit, cells: Sequence[tuple[int, int]], *, packed: bool) -> list[_Row]:
    """The unit's rows for one target: as many cells in each as fit, or one where the model cannot be packed."""
    room = max(1, (ROW_NODES - unit.root) // (len(unit.tree) - unit.root)) if packed else 1
    return [_row(at, unit, cells[first : first + room]) for first in range(0, len(cells), room)]


def _row(at: int, unit: Unit, cells: Sequence[tuple[int, int]]) -> _Row:
    places, sources = (np.array(column, dtype=np.int64) for column in zip(*cells, strict=True))
    tree, root = unit.tree, unit.root
    n = len(tree) - root
    node = np.concatenate([np.arange(root), *[np.arange(root, len(tree))] * len(sources)])
    # A copy's parents are its own scored tokens; the first of them follows the shared context.
    shift = np.repeat(np.arange(len(sources)) * n, n)
    parents = np.concatenate([tree.parents[:root], tree.parents[node[root:]]])
    parents[root:] += np.where(parents[root:] >= root, shift, 0)
    copies = np.repeat(np.arange(len(sources)), len(tree.edge_node))
    return _Row(
        unit=at,
        tree=Tree(
            tokens=tree.tokens[node],
            parents=parents,
            positions=tree.positions[node],
            edge_node=np.tile(tree.edge_node, len(sources)) + copies * n,
            edge_target=np.tile(tree.edge_target, len(sources)),
            edge_slot=np.tile(unit.edges, len(sources)),
        ),
        node=node,
        source=np.concatenate([np.full(root, -1), np.repeat(sources, n)]),
        cell=places[copies],
    )


def _states(clean: Clean, rows: Sequence[_Row], target: int) -> Tensor:
    """(batch, width, d_model) output of block `target`: clean for the context, of its source for a scored token."""
    width = max(len(row.tree) for row in rows)
    depth = np.zeros((len(rows), width), dtype=np.int64)
    token = np.zeros_like(depth)
    for at, row in enumerate(rows):
        n = len(row.node)
        depth[at, :n] = np.where(row.source < 0, target + 1, row.source)
        token[at, :n] = clean.first[row.unit] + row.node
    device = clean.states.device
    return clean.states[torch.from_numpy(depth).to(device), torch.from_numpy(token).to(device)]
