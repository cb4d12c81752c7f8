"""Token trees keep every shared prefix once and score every token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.models.tree import Continuations, plan

tokens = st.integers(0, 4)
requests = st.builds(
    Continuations,
    st.lists(tokens, min_size=1, max_size=4).map(tuple),
    st.lists(st.lists(tokens, min_size=1, max_size=4).map(tuple), min_size=1, max_size=6).map(tuple),
)


def _path(tree, node):
    tokens = []
    while node >= 0:
        tokens.append(int(tree.tokens[node]))
        node = int(tree.parents[node])
    return tuple(tokens[::-1])


@given(requests, st.integers(1, 12))
def test_every_token_of_every_target_is_scored_after_its_own_prefix(request, max_nodes):
    made = plan(request, max_nodes)
    edges = {}
    for tree in made.trees:
        for node, target, slot in zip(tree.edge_node, tree.edge_target, tree.edge_slot, strict=True):
            assert slot not in edges, "one distribution must not be read twice"
            edges[int(slot)] = (_path(tree, int(node)), int(target))
    assert len(edges) == made.n_edges
    for target, path in zip(request.targets, made.paths, strict=True):
        assert [edges[slot] for slot in path] == [(request.context + target[:i], t) for i, t in enumerate(target)]


@given(requests)
def test_equal_contexts_are_read_once(request):
    made = plan(request, 1000)
    contexts = {(request.context + target[:i]) for target in request.targets for i in range(len(target))}
    (tree,) = made.trees
    assert {_path(tree, int(node)) for node in tree.edge_node} == contexts
    assert len(tree) == len(request.context) + len({c for c in contexts if len(c) > len(request.context)})


@given(requests, st.integers(1, 12))
def test_a_node_sees_its_ancestors_and_nothing_else(request, max_nodes):
    for tree in plan(request, max_nodes).trees:
        for node, row in enumerate(tree.visible()):
            assert _path(tree, node) == tuple(int(tree.tokens[i]) for i in np.flatnonzero(row))
            assert tree.positions[node] == row.sum() - 1


@pytest.mark.parametrize(("context", "targets"), [((), ((1,),)), ((1,), ((),))])
def test_an_empty_context_or_target_is_refused(context, targets):
    with pytest.raises(ValueError, match="at least one token"):
        Continuations(context, targets)
