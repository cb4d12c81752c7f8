"""Token trees: a context and its continuations with every shared prefix kept once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Continuations:
    """What is to be scored: `targets` given `context`, token by token.

    Attributes
    ----------
    context : tuple of int
        Never empty.
    targets : tuple of tuple of int
        Each scored in full; none empty.
    """

    context: tuple[int, ...]
    targets: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.context or not all(self.targets):
            raise ValueError("a context and every target need at least one token")


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes in topological order; every path from the root is a prefix of a scored sequence.

    Attributes
    ----------
    tokens, parents, positions : (n_nodes,) int64
        Parent -1 at the root; position is the distance from the root.
    edge_node, edge_target : (n_edges,) int64
        The node an edge leaves and the token it leads to.
    edge_slot : (n_edges,) int64
        Where the edge's value goes in the caller's flat list of distinct edges.
    """

    tokens: Ints
    parents: Ints
    positions: Ints
    edge_node: Ints
    edge_target: Ints
    edge_slot: Ints

    def __len__(self) -> int:
        return len(self.tokens)

    def visible(self) -> NDArray[np.bool_]:
        """(n_nodes, n_nodes) True where the column's node is the row's node or one of its ancestors."""
        seen = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                seen[node] |= seen[parent]
        return seen


@dataclass(frozen=True, slots=True)
class Plan:
    """Trees that together score one `Continuations`.

    Attributes
    ----------
    trees : tuple of Tree
        More than one where a single one would pass the size asked for.
    n_edges : int
        Distinct (context, next token) pairs.
    paths : tuple of tuple of int
        For each target, the edges whose log-probabilities belong to its tokens.
    """

    trees: tuple[Tree, ...]
    n_edges: int
    paths: tuple[tuple[int, ...], ...]


def plan(request: Continuations, max_nodes: int) -> Plan:
    """Build the trie over context and targets, split into trees of at most about `max_nodes` nodes.

    A split repeats the context, but never reads one distribution twice: the edges that leave the context itself
    all belong to the first tree. A branch is not split, so a tree is larger than `max_nodes` only where the context
    and one branch are.
    """
    tokens = list(request.context)
    parents = list(range(-1, len(tokens) - 1))
    children: dict[tuple[int, int], int] = {}
    edges: dict[tuple[int, int], int] = {}
    root = len(tokens) - 1
    paths = []
    branch_of: list[int] = [root] * len(tokens)
    for target in request.targets:
        node, path = root, []
        for at, token in enumerate(target):
            path.append(edges.setdefault((node, token), len(edges)))
            if at + 1 == len(target):
                break
            child = children.get((node, token))
            if child is None:
                child = children[node, token] = len(tokens)
                tokens.append(token)
                parents.append(node)
                branch_of.append(child if node == root else branch_of[node])
            node = child
        paths.append(tuple(path))
    trees = _split(tokens, parents, branch_of, root, edges, max_nodes)
    return Plan(trees=tuple(trees), n_edges=len(edges), paths=tuple(paths))


def _split(
    tokens: list[int],
    parents: list[int],
    branch_of: list[int],
    root: int,
    edges: dict[tuple[int, int], int],
    max_nodes: int,
) -> list[Tree]:
    branches: dict[int, list[int]] = {}
    for node in range(root + 1, len(tokens)):
        branches.setdefault(branch_of[node], []).append(node)
    leaving: dict[int, list[tuple[int, int]]] = {}
    for (node, token), slot in edges.items():
        leaving.setdefault(node, []).append((token, slot))
    groups: list[list[int]] = [[]]
    for nodes in branches.values():
        if groups[-1] and root + 1 + len(groups[-1]) + len(nodes) > max_nodes:
            groups.append([])
        groups[-1].extend(nodes)
    trees = []
    for number, group in enumerate(groups):
        old = [*range(root + 1), *group]
        new = {node: at for at, node in enumerate(old)}
        positions: list[int] = []
        for node in old:
            positions.append(0 if parents[node] < 0 else positions[new[parents[node]]] + 1)
        read = [
            (new[node], token, slot)
            for node in ([root, *group] if number == 0 else group)
            for token, slot in leaving.get(node, ())
        ]
        edge_array = np.array(read, dtype=np.int64).reshape(-1, 3)
        trees.append(
            Tree(
                tokens=np.array([tokens[node] for node in old], dtype=np.int64),
                parents=np.array([-1 if parents[n] < 0 else new[parents[n]] for n in old], dtype=np.int64),
                positions=np.array(positions, dtype=np.int64),
                edge_node=edge_array[:, 0],
                edge_target=edge_array[:, 1],
                edge_slot=edge_array[:, 2],
            )
        )
    return trees
