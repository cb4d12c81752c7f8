"""GGUF files, written tensor by tensor here: read whole, kept bit for bit, converted once, refused when cut."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
import torch

from lmassay.errors import LmassayError
from lmassay.models.gguf import converted
from lmassay.models.open import open_model
from tiny_models import tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
WIDTH, INNER, BLOCKS, HEADS, KV_HEADS, VOCABULARY = 32, 48, 2, 4, 2, 320


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    **{
        f"model.layers.{i}.{ours}": f"blk.{i}.{theirs}"
        for i in range(BLOCKS)
        for ours, theirs in {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        }.items()
    },
}


@pytest.fixture
def qwen():
    return tiny_hf("qwen2", num_hidden_layers=BLOCKS, layer_types=None, rope_theta=10000.0, rms_norm_eps=1e-6)


@pytest.fixture
def file(tmp_path, qwen):
    """The same Qwen2, written as float32 GGUF with its tokenizer."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_block_count(BLOCKS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    rules = json.loads(tiny_tokenizer().backend_tokenizer.to_str())["model"]
    vocabulary = sorted(rules["vocab"], key=rules["vocab"].get)
    # transformers' reader of Qwen2 tokenizers adds this token where the file has none.
    vocabulary[2] = "<|endoftext|>"
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary + [f"[unused{i}]" for i in range(VOCABULARY - len(vocabulary))])
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (VOCABULARY - 3))
    writer.add_token_merges([" ".join(pair) for pair in rules["merges"]])
    writer.add_pad_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in qwen.state_dict().items():
        stem, _, kind = name.rpartition(".")
        writer.add_tensor(f"{NAMES[stem]}.{kind}", np.ascontiguousarray(tensor.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_opens_to_the_numbers_that_were_written(file, qwen):
    model = open_model(file)
    for name, tensor in qwen.state_dict().items():
        assert torch.equal(model.hf.state_dict()[name], tensor), name
    ids = torch.tensor([[5, 6, 7, 200]])
    torch.testing.assert_close(model.hf(ids).logits, qwen(ids).logits, rtol=0, atol=1e-5)
    assert model.tokens.hf.decode(model.tokens.encode("Start with 7.")) == "Start with 7."
    assert model.notes == ("dequantised from GGUF (F32)",)


def test_opening_it_again_parses_nothing(file, monkeypatch):
    first = open_model(file).fingerprint
    monkeypatch.setattr(gguf, "GGUFReader", None)
    assert open_model(file).fingerprint == first


def test_a_moved_file_is_known_by_its_content(file, tmp_path):
    folder = converted(file)
    assert converted(file.rename(tmp_path / "elsewhere.gguf")) == folder


@pytest.mark.parametrize("kept", [0, 3, 4, 100, 4000, 0.5, -1])
def test_a_cut_file_is_refused_and_leaves_no_folder(file, cache, kept):
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    with pytest.raises(LmassayError) as caught:
        open_model(file)
    assert caught.value.code == "model-files-broken"
    assert "tiny.gguf is not a whole GGUF file" in caught.value.what
    assert not [p for p in cache.glob("converted/*") if not p.name.startswith(".")]


def test_no_file_of_that_name(tmp_path):
    with pytest.raises(LmassayError, match="model-not-found"):
        open_model(tmp_path / "none.gguf")
