"""Three ways to the same numbers: packed trees, a shared prompt cache, and one sequence at a time.

All return, for each `Continuations` and each of its targets, the log-probability of every token at every depth.
The plain way is the oracle of the other two and stays for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from lmassay.models.lens import target_log_probs
from lmassay.models.readout import lens_logits
from lmassay.models.rows import block_masked, edges_of
from lmassay.models.trace import Batch, trace
from lmassay.models.tree import Continuations, Plan, Tree, plan
from lmassay.models.tuned_lens import translated

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

#: For one `Continuations`: per target, (n_tokens, n_depths) float64 nats.
TargetScores = list[NDArray[np.float64]]

PACKED, CACHED, PLAIN = "packed", "cached", "plain"
BATCH_TOKENS = 1024
#: Nodes of one packed row: attention costs its square, and a long row leaves few rows to fill a batch with.
ROW_NODES = 256


def score(
    model: LanguageModel,
    requests: Sequence[Continuations],
    *,
    engine: str = PACKED,
    batch_tokens: int = BATCH_TOKENS,
) -> list[TargetScores]:
    """Log-probabilities of every target token at every depth of ``model.depths``.

    Parameters
    ----------
    requests : sequence of Continuations
    engine : {"packed", "cached", "plain"}
        ``packed`` falls back to ``cached`` where the self-check found that the model cannot be packed, or where a
        sequence is longer than a sliding window.
    batch_tokens : int
        Tokens, padding included, of one forward pass.
    """
    if engine == PLAIN:
        return [_plain(model, request) for request in requests]
    if engine == PACKED and packs(model, requests):
        return _packed(model, requests, batch_tokens)
    return _cached(model, requests, batch_tokens)


def packs(model: LanguageModel, requests: Sequence[Continuations]) -> bool:
    """Whether branches may share a row: the model allows it and no sequence is longer than a sliding window."""
    longest = max((len(r.context) + max(map(len, r.targets)) - 1 for r in requests), default=0)
    return model.packing and (model.window is None or longest <= model.window)


def _plain(model: LanguageModel, request: Continuations) -> TargetScores:
    """One sequence per forward pass, the whole vocabulary under log-softmax, the model's own logits at ``final``."""
    scores = []
    for target in request.targets:
        ids = torch.tensor([[*request.context, *target[:-1]]], device=model.device)
        cols = torch.arange(len(request.context) - 1, ids.shape[1])
        batch = Batch(ids, torch.ones_like(ids), torch.arange(ids.shape[1], device=model.device)[None])
        seen = trace(model, batch, torch.zeros_like(cols), cols, range(model.n_blocks + 1), logits=True)
        assert seen.logits is not None
        picked = torch.tensor(target)[:, None]
        read = [translated(model, state, depth) for depth, state in enumerate(seen.states)]
        by_depth = [*(lens_logits(model, state) for state in read), seen.logits]
        columns = [
            torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1).cpu().gather(1, picked)
            for logits in by_depth
        ]
        scores.append(torch.cat(columns, 1).double().numpy())
    return scores


def _with_final(by_block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Append ``final``, which the self-check has shown to be the lens of the last block."""
    return np.concatenate([by_block, by_block[-1:]])


def _gather(plan_: Plan, by_edge: NDArray[np.float64]) -> TargetScores:
    """(n_depths, n_edges) values of a plan -> per target (n_tokens, n_depths)."""
    return [np.ascontiguousarray(by_edge[:, list(path)].T) for path in plan_.paths]


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices grouped by length, longest first, so that padding is little and the first batch the largest."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _packed(model: LanguageModel, requests: Sequence[Continuations], batch_tokens: int) -> list[TargetScores]:
    plans = [plan(request, min(ROW_NODES, batch_tokens)) for request in requests]
    values = [np.full((model.n_blocks + 1, p.n_edges), np.nan) for p in plans]
    trees = [(at, tree) for at, p in enumerate(plans) for tree in p.trees]
    for batch in batches([len(tree) for _, tree in trees], batch_tokens):
        members = [trees[i] for i in batch]
        states, context, target = run_rows(model, [tree for _, tree in members])
        found = target_log_probs(model, states, context, target).numpy()
        start = 0
        for at, tree in members:
            stop = start + len(tree.edge_slot)
            values[at][:, tree.edge_slot] = found[:, start:stop]
            start = stop
    return [_gather(p, _with_final(v)) for p, v in zip(plans, values, strict=True)]


def run_rows(model: LanguageModel, trees: Sequence[Tree]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run one tree per row under a block mask.

    Returns the states (n_blocks + 1, n_contexts, d_model), and each edge's context and target.
    """
    edges = edges_of(trees)
    seen = trace(model, block_masked(model, trees), edges.rows, edges.cols, range(model.n_blocks + 1))
    return seen.states, edges.context, edges.target


def _cached(model: LanguageModel, requests: Sequence[Continuations], batch_tokens: int) -> list[TargetScores]:
    """Prompts of equal length run together once; their branches then run from copies of the prompts' cache."""
    plans = [plan(request, sum(map(len, request.targets)) + len(request.context)) for request in requests]
    results: list[TargetScores | None] = [None] * len(requests)
    by_length: dict[int, list[int]] = {}
    for at, request in enumerate(requests):
        by_length.setdefault(len(request.context), []).append(at)
    for length, members in sorted(by_length.items(), reverse=True):
        fit = max(1, batch_tokens // length)
        for start in range(0, len(members), fit):
            group = members[start : start + fit]
            found = _run_cached(model, [requests[i] for i in group], [plans[i] for i in group], batch_tokens)
            for at, values in zip(group, found, strict=True):
                results[at] = _gather(plans[at], _with_final(values))
    return [r for r in results if r is not None]


def _leaf_paths(tree: Tree, n_context: int) -> list[list[int]]:
    """Node paths below the context, one per leaf; together they cover every node."""
    inner = set(tree.parents.tolist())
    paths = []
    for leaf in range(n_context, len(tree)):
        if leaf in inner:
            continue
        path, node = [], leaf
        while node >= n_context:
            path.append(node)
            node = int(tree.parents[node])
        paths.append(path[::-1])
    return paths


def _run_cached(
    model: LanguageModel, requests: Sequence[Continuations], plans: Sequence[Plan], batch_tokens: int
) -> list[NDArray[np.float64]]:
    from transformers import DynamicCache

    n_context = len(requests[0].context)
    values = [np.full((model.n_blocks + 1, p.n_edges), np.nan) for p in plans]
    trees = [p.trees[0] for p in plans]
    cache = DynamicCache(config=model.hf.config)
    ids = torch.tensor([r.context for r in requests], device=model.device)
    position = torch.arange(n_context, device=model.device).expand_as(ids)
    rows = torch.arange(len(requests))
    last = torch.full_like(rows, n_context - 1)
    depths = range(model.n_blocks + 1)
    seen = trace(model, Batch(ids, torch.ones_like(ids), position), rows, last, depths, cache=cache)
    _read(model, seen.states, [(i, n_context - 1) for i in range(len(requests))], trees, values)
    branches = [(i, path) for i, tree in enumerate(trees) for path in _leaf_paths(tree, n_context)]
    for batch in batches([n_context + len(path) for _, path in branches], batch_tokens):
        members = [branches[i] for i in batch]
        width = max(len(path) for _, path in members)
        ids = torch.zeros(len(members), width, dtype=torch.int64)
        mask = torch.zeros(len(members), n_context + width, dtype=torch.int64)
        where: dict[tuple[int, int], tuple[int, int]] = {}
        for row, (i, path) in enumerate(members):
            ids[row, : len(path)] = torch.from_numpy(trees[i].tokens[path])
            mask[row, : n_context + len(path)] = 1
            for col, node in enumerate(path):
                where.setdefault((i, node), (row, col))
        own = _copy_rows(cache, torch.tensor([i for i, _ in members], device=model.device))
        place = torch.tensor(list(where.values()))
        position = torch.arange(n_context, n_context + width).expand_as(ids)
        now = Batch(ids.to(model.device), mask.to(model.device), position.to(model.device))
        seen = trace(model, now, place[:, 0], place[:, 1], depths, cache=own)
        _read(model, seen.states, list(where), trees, values)
    return values


def _copy_rows(cache: object, rows: torch.Tensor) -> object:
    """A cache of its own that holds the chosen rows, so that branches never see each other's tokens."""
    import copy

    own = copy.deepcopy(cache)
    own.batch_select_indices(rows)  # type: ignore[attr-defined]
    return own


def _read(
    model: LanguageModel,
    states: torch.Tensor,
    nodes: Iterable[tuple[int, int]],
    trees: Sequence[Tree],
    values: Sequence[NDArray[np.float64]],
) -> None:
    """Fill in the values of every edge that leaves one of the nodes `states` were recorded at."""
    context: list[int] = []
    edges: list[tuple[int, int]] = []
    target: list[int] = []
    for at, (i, node) in enumerate(nodes):
        for edge in np.flatnonzero(trees[i].edge_node == node):
            context.append(at)
            edges.append((i, int(trees[i].edge_slot[edge])))
            target.append(int(trees[i].edge_target[edge]))
    if not edges:
        return
    found = target_log_probs(model, states, torch.tensor(context), torch.tensor(target)).numpy()
    for column, (i, slot) in enumerate(edges):
        values[i][:, slot] = found[:, column]
