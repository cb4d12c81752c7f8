"""Opening: every family passes its self-check, and what cannot be measured is refused in one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import safetensors.torch
import torch
import transformers

from lmassay.errors import LmassayError
from lmassay.models.open import open_model
from tiny_models import FAMILIES, VOCABULARY, tiny_hf, tiny_tokenizer

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


def test_files_that_lack_a_weight_are_refused_by_its_name(folder):
    """Random numbers in its place would pass every other check."""
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LmassayError, match=r"model-files-broken.*no fitting weights for lm_head\.weight"):
        open_model(folder)


def test_a_tied_head_is_no_missing_weight(tmp_path):
    tiny_hf("llama_tied").save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    assert "lm_head.weight" not in safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert open_model(tmp_path).n_blocks == 3


def test_a_folder_without_a_tokenizer_is_refused(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(LmassayError, match="model-files-broken") as caught:
        open_model(folder)
    assert "tokenizer" in caught.value.what


def test_an_encoder_decoder_folder_is_refused(tmp_path):
    config = transformers.T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    with pytest.raises(LmassayError, match=r"model-not-supported.*no decoder-only language model"):
        open_model(tmp_path)


class Wrapper(torch.nn.Module):
    """As peft wraps a model: not a PreTrainedModel itself."""

    def __init__(self, inner, prompt_learning=False):
        super().__init__()
        self.inner = inner
        self.active_peft_config = type("Config", (), {"is_prompt_learning": prompt_learning})()

    def get_base_model(self):
        return self.inner


def test_an_adapter_wrapper_is_opened_with_its_adapters_inside():
    """The adapter sits in the base model's own modules, so it is measured with it."""
    hf = tiny_hf("llama")
    plain = open_model(hf, tokenizer=TOKENIZER)
    ids = torch.tensor([[5, 6, 7]])
    before = hf(ids).logits

    class Adapted(torch.nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.linear, self.delta = linear, torch.nn.Linear(32, 32, bias=False)

        def forward(self, x):
            return self.linear(x) + self.delta(x)

    hf.model.layers[1].self_attn.q_proj = Adapted(hf.model.layers[1].self_attn.q_proj)
    model = open_model(Wrapper(hf), tokenizer=TOKENIZER)
    assert model.hf is hf
    assert not torch.equal(model.hf(ids).logits, before)
    assert model.fingerprint.weights != plain.fingerprint.weights


def test_an_adapter_of_learned_prompt_tokens_is_refused():
    with pytest.raises(LmassayError, match=r"model-not-supported.*learned tokens before the prompt"):
        open_model(Wrapper(tiny_hf("llama"), prompt_learning=True), tokenizer=TOKENIZER)


def test_a_bfloat16_model_in_hand_stays_bfloat16_and_its_file_opens_as_float32(folder):
    hf = tiny_hf("llama").to(torch.bfloat16)
    assert open_model(hf, tokenizer=TOKENIZER).convention()["dtype"] == "bfloat16"
    assert open_model(folder).convention()["dtype"] == "float32"


def test_the_fingerprint_of_a_model_in_hand_changes_with_one_weight():
    hf = tiny_hf("gpt2")
    first = open_model(hf, tokenizer=TOKENIZER).fingerprint
    assert open_model(tiny_hf("gpt2"), tokenizer=TOKENIZER).fingerprint == first
    with torch.no_grad():
        hf.transformer.h[1].mlp.c_fc.bias[3] += 1e-3
    second = open_model(hf, tokenizer=TOKENIZER).fingerprint
    assert second.weights != first.weights
    assert (second.tokenizer, second.config) == (first.tokenizer, first.config)


def test_the_fingerprint_follows_tokenizer_and_configuration():
    first = open_model(tiny_hf("gpt2"), tokenizer=TOKENIZER).fingerprint
    other = open_model(tiny_hf("gpt2", layer_norm_epsilon=1e-3), tokenizer=tiny_tokenizer("adds")).fingerprint
    assert other.weights == first.weights
    assert other.tokenizer != first.tokenizer
    assert other.config != first.config


@pytest.mark.parametrize(("asked", "word"), [({"dtype": "float12"}, "dtype"), ({"device": "cuda:99"}, "device")])
def test_an_unusable_dtype_or_device_is_named(asked, word):
    with pytest.raises(LmassayError, match=f"bad-request.*{word}"):
        open_model(tiny_hf("gpt2"), tokenizer=TOKENIZER, **asked)


OFFLINE = """
import socket, sys
def blocked(*_, **__):
    raise OSError("the network was used")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = blocked
from lmassay.models.engines import score
from lmassay.models.open import open_model
from lmassay.models.tree import Continuations
print(len(score(open_model(sys.argv[1]), [Continuations((5, 6), ((7,), (8,)))])[0]))
from lmassay.errors import LmassayError
try:
    open_model("nobody/no-such-model")
except LmassayError as error:
    print(error.code, error.exit_status)
"""


def test_a_fresh_process_without_network_scores_a_folder_and_names_what_it_cannot_fetch(folder):
    """I-64: nothing is called at import, and a hub id fails with nothing but the error."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(folder)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["2", "network-unavailable 3"]
    assert done.stderr == ""
