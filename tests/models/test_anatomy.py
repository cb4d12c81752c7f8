"""Parts are found by the table, else by structure, else refused with what was looked for."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

from lmassay.errors import LmassayError
from lmassay.models.anatomy import take_apart
from tiny_models import FAMILIES, VOCABULARY, tiny_hf

pytestmark = pytest.mark.tiny


def _refused(hf) -> str:
    with pytest.raises(LmassayError) as caught:
        take_apart(hf)
    assert caught.value.code == "model-not-supported"
    return caught.value.one_line()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_read_by_name_with_all_its_components(family):
    hf = tiny_hf(family)
    parts = take_apart(hf)
    assert parts.family != "structural"
    assert len(parts.blocks) == hf.config.get_text_config().num_hidden_layers
    assert all(isinstance(m, nn.Module) for m in (*parts.attention, *parts.mlp))
    assert len({id(m) for m in (*parts.attention, *parts.mlp)}) == 2 * len(parts.blocks)
    assert parts.head is hf.get_output_embeddings()
    assert (parts.norm is None) == (family == "opt_projected")


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "falcon", "phi"])
def test_an_unlisted_type_is_read_by_structure_to_the_same_parts(family):
    hf = tiny_hf(family)
    by_name = take_apart(hf)
    hf.config.model_type = "not_in_the_table"
    by_structure = take_apart(hf)
    assert by_structure.family == "structural"
    for part in ("embedding", "blocks", "norm", "head"):
        assert getattr(by_structure, part) is getattr(by_name, part)
    assert by_structure.attention == by_name.attention
    assert by_structure.mlp == by_name.mlp


def test_an_architecture_without_a_norm_is_refused_naming_what_was_looked_for():
    """I-5: never an identity in place of a norm that was not found."""
    hf = tiny_hf("llama")
    hf.config.model_type = "not_in_the_table"
    hf.model.norm = nn.Identity()
    message = _refused(hf)
    assert "looked for one norm after model.layers" in message
    assert "norm (Identity)" in message


def test_two_norms_after_the_blocks_are_refused_by_name():
    hf = tiny_hf("llama")
    hf.config.model_type = "not_in_the_table"
    hf.model.second_norm = nn.LayerNorm(32)
    assert "second_norm (LayerNorm)" in _refused(hf)


def test_an_architecture_without_a_list_of_blocks_is_refused_naming_what_was_looked_for():
    hf = tiny_hf("llama")
    hf.config.model_type = "not_in_the_table"
    hf.config.num_hidden_layers = 9
    assert "looked for a list of 9 equal blocks; found none" in _refused(hf)


def test_a_listed_family_without_its_norm_is_refused_by_path():
    hf = tiny_hf("llama")
    del hf.model.norm
    assert "no final norm at model.norm" in _refused(hf)


def test_an_encoder_decoder_is_refused():
    config = transformers.T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    assert "encoder-decoder" in _refused(transformers.T5ForConditionalGeneration(config))


@pytest.mark.parametrize("head", [nn.Sequential(nn.Linear(32, VOCABULARY)), nn.Linear(32, VOCABULARY)])
def test_a_head_that_is_no_plain_linear_layer_is_refused(head):
    hf = tiny_hf("llama")
    hf.lm_head = head
    if isinstance(head, nn.Linear):
        head.weight = nn.Parameter(head.weight.to(torch.int8), requires_grad=False)
    assert "head" in _refused(hf)
