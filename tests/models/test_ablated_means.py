"""Ablation against full forward passes with one hook each, one sequence at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.errors import LmassayError
from lmassay.models.ablation import Averaged, Resampled, Zeroed, ablated_means, site_means
from lmassay.models.components import HEAD, components_of
from lmassay.models.trace import site_module
from lmassay.models.tree import Continuations

pytestmark = pytest.mark.tiny

#: Parallel residual, grouped queries, post-norms, ALiBi and logit scaling; `test_trace` resumes every family.
FAMILIES = ["gpt2", "gpt_neox", "qwen3", "gemma2", "opt", "bloom", "mpt", "falcon", "cohere"]

REQUESTS = [
    Continuations((5, 9, 11, 40), ((7,), (7, 8), (21, 22, 23), (7, 8, 30))),
    Continuations((12, 13), ((50, 51), (60,))),
]
DONORS = [(80, 81), (90, 91, 92, 93, 94)]


def plain_sites(model, tokens, sites):
    """Each site's output over one sequence, by hooks of torch alone."""
    seen = {}

    def keep(site):
        def before(_, args, kwargs):
            seen[site] = (args[0] if args else kwargs["hidden_states"]).reshape(len(tokens), -1).clone()

        def after(_, __, output):
            tensor = output[0] if isinstance(output, tuple) else output
            seen[site] = tensor.reshape(len(tokens), -1).clone()

        module = site_module(model, site)
        return (
            module.register_forward_pre_hook(before, with_kwargs=True)
            if site.endswith("heads")
            else module.register_forward_hook(after)
        )

    handles = [keep(site) for site in sites]
    with torch.inference_mode():
        model.hf(torch.tensor([tokens]))
    for handle in handles:
        handle.remove()
    return seen


def plain(model, request, component, value_at):
    """(n_targets, n_blocks + 2): whole passes; `value_at(k)` is what a token k places before the prompt's end gets."""
    rows = []
    columns = slice(*(component.columns or (None, None)))
    for target in request.targets:
        ids = torch.tensor([[*request.context, *target[:-1]]])
        places = [max(0, len(request.context) - 1 - t) for t in range(ids.shape[1])]
        put = torch.stack([value_at(k) for k in places])

        def change(tensor, put=put):
            changed = tensor.clone()
            # One row: whether it is flattened, as in OPT, or not, the view is (tokens, width).
            changed.view(len(put), -1)[:, columns] = put[:, columns].to(tensor)
            return changed

        def before(_, args):
            return (change(args[0]), *args[1:])

        def after(_, __, output):
            return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

        module = site_module(model, component.site)
        states = []
        handle = (
            module.register_forward_pre_hook(before) if component.kind == HEAD else module.register_forward_hook(after)
        )
        recorders = [
            block.register_forward_hook(lambda _, __, o, seen=states: seen.append(o[0] if isinstance(o, tuple) else o))
            for block in model.anatomy.blocks
        ]
        with torch.inference_mode():
            out = model.hf(ids, output_hidden_states=True)
        for h in (handle, *recorders):
            h.remove()
        at = torch.arange(len(request.context) - 1, ids.shape[1])
        embed = out.hidden_states[0]
        by_depth = []
        for state in (embed, *states):
            read = state[0, at]
            for part in (model.anatomy.norm, model.anatomy.projection):
                read = read if part is None else part(read)
            by_depth.append(model.anatomy.finish(model.anatomy.head(read)))
        by_depth.append(out.logits[0, at])
        rows.append(
            [
                torch.log_softmax(x.double(), -1)[torch.arange(len(target)), torch.tensor(target)].mean()
                for x in by_depth
            ]
        )
    return np.array(rows)


def check(model, components, replacement, value_of):
    found = ablated_means(model, REQUESTS, components, replacement)
    for number, (request, values) in enumerate(zip(REQUESTS, found, strict=True)):
        for at, component in enumerate(components):
            expected = plain(model, request, component, value_of(number, component))
            # Some families keep float32 inside (norms, soft-caps) whatever the weights' precision.
            np.testing.assert_allclose(values[at], expected, rtol=0, atol=1e-6, err_msg=component.name)


@pytest.mark.parametrize("family", FAMILIES)
def test_zeroed_components_equal_whole_passes(tiny_model, family):
    model = tiny_model(family, dtype="float64")
    components = components_of(model, heads=True)[-6:]
    check(model, components, Zeroed(), lambda _, component: lambda k: torch.zeros(4096)[: width(model, component)])


def width(model, component):
    return plain_sites(model, (5, 6), [component.site])[component.site].shape[-1]


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma2", "bloom"])
def test_a_mean_is_over_every_prompt_token_and_stands_at_every_token(tiny_model, family):
    model = tiny_model(family, dtype="float64")
    components = components_of(model, heads=True)
    sites = sorted({c.site for c in components})
    contexts = [r.context for r in REQUESTS]
    means = site_means(model, contexts, sites)
    outputs = [plain_sites(model, context, sites) for context in contexts]
    for site in sites:
        expected = torch.cat([seen[site] for seen in outputs]).mean(0)
        torch.testing.assert_close(means[site], expected.double(), rtol=0, atol=1e-6)
    check(model, components[:4], Averaged(means), lambda _, component: lambda k: means[component.site])


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma2", "bloom"])
def test_a_donor_is_aligned_from_the_last_prompt_token(tiny_model, family):
    model = tiny_model(family, dtype="float64")
    components = components_of(model, heads=True)[:5]
    sites = sorted({c.site for c in components})
    outputs = [plain_sites(model, donor, sites) for donor in DONORS]

    def value_of(number, component):
        donor = outputs[number][component.site]
        return lambda k: donor[max(0, len(donor) - 1 - k)]

    check(model, components, Resampled(DONORS, sites), value_of)


def test_components_stand_block_by_block_with_every_query_head(tiny_model):
    model = tiny_model("qwen3")
    n_heads = model.hf.config.num_attention_heads
    assert model.hf.config.num_key_value_heads < n_heads
    names = [c.name for c in components_of(model, heads=True)]
    assert names[: n_heads + 2] == ["block.0.attention", "block.0.mlp", *(f"block.0.head.{h}" for h in range(n_heads))]
    assert len(names) == model.n_blocks * (n_heads + 2)
    assert len(components_of(model)) == 2 * model.n_blocks


def test_a_model_whose_parts_were_not_found_is_refused(tiny_model):
    from dataclasses import replace

    model = tiny_model("gpt2")
    blind = replace(model, anatomy=replace(model.anatomy, mlp=(None,) * model.n_blocks))
    with pytest.raises(LmassayError, match="no mlp was found in block 0"):
        components_of(blind)


@settings(max_examples=8, deadline=None)
@given(batch_tokens=st.sampled_from([16, 40, 4096]), swap=st.booleans())
def test_neither_batches_nor_order_matter(tiny_model, batch_tokens, swap):
    model = tiny_model("llama", dtype="float64")
    components = components_of(model, heads=True)
    first = ablated_means(model, REQUESTS, components, Zeroed())
    order = [1, 0] if swap else [0, 1]
    again = ablated_means(model, [REQUESTS[i] for i in order], components, Zeroed(), batch_tokens=batch_tokens)
    for at, i in enumerate(order):
        np.testing.assert_allclose(again[at], first[i], rtol=0, atol=1e-9)
