"""Trees as rows of a batch: which token stands where, what it sees, and where its edges are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lmassay.models.trace import Batch
from lmassay.models.tree import Continuations, plan

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel
    from lmassay.models.tree import Ints, Tree


@dataclass(frozen=True, slots=True)
class Edges:
    """Where a batch of trees is read.

    Attributes
    ----------
    rows, cols : (n_contexts,) int64
        The nodes that edges leave.
    context, target : (n_edges,) int64
        For each edge of each tree, in order, the node it leaves (as index into `rows`) and the token it leads to.
    """

    rows: Tensor
    cols: Tensor
    context: Tensor
    target: Tensor


def edges_of(trees: Sequence[Tree]) -> Edges:
    """Number the nodes that are read, tree by tree."""
    rows: list[int] = []
    cols: list[int] = []
    contexts = []
    for row, tree in enumerate(trees):
        nodes, edge_context = np.unique(tree.edge_node, return_inverse=True)
        contexts.append(edge_context + len(rows))
        rows.extend([row] * len(nodes))
        cols.extend(nodes.tolist())
    target = np.concatenate([tree.edge_target for tree in trees])
    return Edges(
        torch.tensor(rows), torch.tensor(cols), torch.from_numpy(np.concatenate(contexts)), torch.from_numpy(target)
    )


def chain(tokens: tuple[int, ...]) -> Tree:
    """A context alone: its one edge is never read."""
    return plan(Continuations(tokens, ((0,),)), len(tokens)).trees[0]


def block_masked(model: LanguageModel, trees: Sequence[Tree]) -> Batch:
    """One tree per row, every token seeing itself and its ancestors."""
    ids, positions, width = _placed(trees)
    visible = np.zeros((len(trees), 1, width, width), dtype=bool)
    visible[:, 0, np.arange(width), np.arange(width)] = True
    for row, tree in enumerate(trees):
        visible[row, 0, : len(tree), : len(tree)] = tree.visible()
    mask = torch.zeros(visible.shape, dtype=model.dtype).masked_fill_(~torch.from_numpy(visible), -torch.inf)
    return Batch(ids.to(model.device), mask.to(model.device), positions.to(model.device))


def right_padded(model: LanguageModel, chains: Sequence[Tree]) -> Batch:
    """One sequence per row, for families that take no block mask."""
    ids, positions, width = _placed(chains)
    lengths = torch.tensor([len(chain) for chain in chains])
    mask = (torch.arange(width) < lengths[:, None]).long()
    return Batch(ids.to(model.device), mask.to(model.device), positions.to(model.device))


def _placed(trees: Sequence[Tree]) -> tuple[Tensor, Tensor, int]:
    width = max(map(len, trees))
    ids: Ints = np.zeros((len(trees), width), dtype=np.int64)
    positions = np.zeros_like(ids)
    for row, tree in enumerate(trees):
        ids[row, : len(tree)], positions[row, : len(tree)] = tree.tokens, tree.positions
    return torch.from_numpy(ids), torch.from_numpy(positions), width
