"""Opening: every family passes its self-check, and what cannot be measured is refused in one line."""

from __future__ import annotations

import socket

import pytest
import torch
from torch import nn

from lmassay.errors import LmassayError
from lmassay.models.anatomy import take_apart
from lmassay.models.open import open_model
from lmassay.models.readout import lens_logits
from lmassay.models.tokens import view
from tiny_models import FAMILIES, tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
TOKENIZER = tiny_tokenizer()


@pytest.fixture
def folder(tmp_path):
    tiny_hf("llama").save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("family", FAMILIES)
def test_lens_of_the_last_block_equals_the_logits(tiny_model, family):
    model = tiny_model(family)
    assert model.numerics["lens_of_last_block"] < 1e-5
    assert model.numerics["identity_edit"] == 0
    assert model.numerics["right_padding"] < 1e-5
    assert None not in model.anatomy.attention
    assert None not in model.anatomy.mlp


def test_depths_count_embedding_blocks_and_output(tiny_model):
    """I-4."""
    assert tiny_model("gpt2").depths == ("embed", "block.0", "block.1", "block.2", "final")


def test_norming_the_last_hidden_state_again_is_wrong(tiny_model):
    """I-3: Hugging Face's last hidden state is normed already."""
    model = tiny_model("llama")
    out = model.hf(torch.tensor([[5, 6, 7]]), output_hidden_states=True)
    twice = lens_logits(model, out.hidden_states[-1][0])
    assert (twice - out.logits[0]).abs().max() > 0.01


def test_each_depth_is_normed_with_its_own_statistics(tiny_model):
    """I-1."""
    model = tiny_model("gpt2")
    states = model.hf(torch.tensor([[5, 6, 7]]), output_hidden_states=True).hidden_states[1][0]
    norm, head = model.anatomy.norm, model.anatomy.head
    scale = (states - states.mean(-1, keepdim=True)) / (states.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    torch.testing.assert_close(lens_logits(model, states), (scale * norm.weight + norm.bias) @ head.weight.T)


def test_soft_capped_logits_stay_under_the_cap(tiny_model):
    """I-6, I-7."""
    model = tiny_model("gemma2")
    assert float(lens_logits(model, torch.randn(4, 32) * 100).abs().max()) <= 3.0
    raw = torch.tensor([-9.0, 0.0, 7.0])
    torch.testing.assert_close(model.anatomy.finish(raw), 3 * torch.tanh(raw / 3))


def test_the_head_runs_in_float32_under_a_half_precision_body():
    """I-18."""
    model = open_model(tiny_hf("gemma2"), tokenizer=TOKENIZER, dtype="bfloat16")
    logits = lens_logits(model, torch.randn(2, 32, dtype=torch.bfloat16))
    assert logits.dtype == torch.float32


def test_a_model_whose_norm_is_not_the_one_found_is_refused_with_the_figure():
    hf = tiny_hf("llama")
    hf.model.norm.register_forward_hook(lambda _, __, out: out * 2)
    hf.lm_head.register_forward_hook(lambda _, __, out: out + torch.arange(out.shape[-1]))
    with pytest.raises(LmassayError, match=r"model-failed-self-check.*differs from its own output by \d.* nats"):
        open_model(hf, tokenizer=TOKENIZER)


def test_an_unknown_architecture_names_what_was_looked_for():
    """I-5: never a silent identity norm."""
    hf = tiny_hf("llama")
    hf.config.model_type = "unheard_of"
    hf.model.norm = nn.Identity()
    with pytest.raises(LmassayError, match=r"model-not-supported.*looked for one norm after model\.layers"):
        take_apart(hf)


def test_a_family_without_a_row_is_found_by_structure():
    hf = tiny_hf("llama")
    hf.config.model_type = "unheard_of"
    model = open_model(hf, tokenizer=TOKENIZER)
    assert model.anatomy.family == "structural"
    assert None not in model.anatomy.mlp


def test_a_model_object_needs_a_tokenizer():
    with pytest.raises(LmassayError, match=r"tokenizer-not-usable.*pass tokenizer"):
        open_model(tiny_hf("gpt2"))


def test_a_tokenizer_larger_than_the_model_is_refused():
    with pytest.raises(LmassayError, match="tokenizer has 320 tokens but the model only 100"):
        open_model(tiny_hf("gpt2", vocab_size=100), tokenizer=TOKENIZER)


@pytest.mark.parametrize("bos", ["none", "adds"])
def test_special_tokens_are_exactly_those_the_tokenizer_adds(bos):
    """I-23."""
    tokens = view(tiny_tokenizer(bos))
    assert [*tokens.prefix, *tokens.encode("A implies")] == tokens.hf.encode("A implies")


def test_a_folder_opens_with_the_network_blocked(folder, monkeypatch):
    """I-64."""

    def blocked(*_, **__):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", blocked)
    assert open_model(folder).n_blocks == 3


def test_the_fingerprint_follows_the_weights(folder):
    first = open_model(folder).fingerprint
    hf = tiny_hf("llama", seed=3)
    hf.save_pretrained(folder)
    second = open_model(folder).fingerprint
    assert first.weights != second.weights
    assert first.tokenizer == second.tokenizer


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(LmassayError, match=r"model-files-broken.*holds no weights"):
        open_model(folder)


def test_pickled_weights_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(LmassayError, match=r"unsafe-weights.*pytorch_model\.bin"):
        open_model(folder)


def test_cut_weights_are_refused(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(LmassayError, match="model-files-broken"):
        open_model(folder)


def test_a_cut_gguf_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" + b"\x01" * 40)
    with pytest.raises(LmassayError, match="model-files-broken"):
        open_model(tmp_path / "cut.gguf")
    assert not list((tmp_path / "cache").glob("converted/[!.]*"))


def test_a_hub_id_without_network_says_so_in_one_line(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(LmassayError, match="network-unavailable") as error:
        open_model("nobody/no-such-model")
    assert "\n" not in error.value.one_line()


def test_a_misspelt_name_gets_the_nearest_one():
    with pytest.raises(LmassayError, match=r"did you mean smollm2-135m\?"):
        open_model("smollm-135m")


@pytest.mark.real
def test_the_bundled_model_knows_the_capital_of_france(smollm):
    ids = torch.tensor([smollm.tokens.encode("The capital of France is")])
    assert smollm.tokens.hf.decode(smollm.hf(ids).logits[0, -1].argmax()) == " Paris"
    assert smollm.tokens.prefix == ()
    assert smollm.packing
    assert "dequantised" in smollm.notes[0]


@pytest.mark.real
def test_the_bundled_model_opens_again_without_its_gguf(smollm, monkeypatch):
    import gguf

    monkeypatch.setattr(gguf, "GGUFReader", None)
    assert open_model("smollm2-135m").fingerprint == smollm.fingerprint
