"""Random-weight models of every family, built from the real configuration classes, small enough for any test.

Norm weights are moved off one and every bias off zero, so that a dropped norm or bias cannot hide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

VOCABULARY = 320
CONTEXT = 128
CORPUS = [
    "Start with 7. Add 5. The result is 12.",
    "If A implies B, B implies C, then A implies C.",
    "Let a = 3, b = a + 2. Then b equals 5.",
    "Simplify x minus x. The result is zero. Answer: it closes by contradiction.",
]

_LLAMA: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT2 = {
    "n_layer": 3,
    "n_head": 4,
    "n_embd": 32,
    "vocab_size": VOCABULARY,
    "n_positions": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_NO_KV = {k: v for k, v in _LLAMA.items() if k != "num_key_value_heads"}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BLOOM = {"hidden_size": 32, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY, **_SPECIAL}

#: family -> (model class, configuration class, its arguments)
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "gpt_neo": ("GPTNeoForCausalLM", "GPTNeoConfig", {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 16, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "bos_token_id": 1, "eos_token_id": 2}),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {**_GPT2, "rotary_dim": 4}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**_NO_KV, "use_parallel_residual": True, "rotary_pct": 0.5}),
    "gpt_neox_serial": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**_NO_KV, "use_parallel_residual": False}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA),
    "llama_tied": ("LlamaForCausalLM", "LlamaConfig", {**_LLAMA, "tie_word_embeddings": True}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_LLAMA, "sliding_window": 16, "head_dim": 8}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _LLAMA),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**_LLAMA, "head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**_LLAMA, "head_dim": 8, "sliding_window": 16, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 8}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**_LLAMA, "head_dim": 8, "sliding_window": 16, "query_pre_attn_scalar": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "opt": ("OPTForCausalLM", "OPTConfig", {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "word_embed_proj_dim": 32, **_SPECIAL}),
    "opt_projected": ("OPTForCausalLM", "OPTConfig", {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "word_embed_proj_dim": 16, "do_layer_norm_before": False, **_SPECIAL}),
    "phi": ("PhiForCausalLM", "PhiConfig", {**_LLAMA, "partial_rotary_factor": 0.5}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", _LLAMA),
    "falcon": ("FalconForCausalLM", "FalconConfig", {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, **_SPECIAL}),
    "falcon_alibi": ("FalconForCausalLM", "FalconConfig", {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": VOCABULARY, "alibi": True, "bias": True, "parallel_attn": False, "multi_query": False, **_SPECIAL}),
    "bloom": ("BloomForCausalLM", "BloomConfig", _BLOOM),
    "mpt": ("MptForCausalLM", "MptConfig", {"d_model": 32, "n_layers": 3, "n_heads": 4, "vocab_size": VOCABULARY, "max_seq_len": CONTEXT, **_SPECIAL}),
    "cohere": ("CohereForCausalLM", "CohereConfig", {**_LLAMA, "logit_scale": 0.25}),
    "cohere2": ("Cohere2ForCausalLM", "Cohere2Config", {**_LLAMA, "logit_scale": 0.25, "sliding_window": 16}),
    "granite": ("GraniteForCausalLM", "GraniteConfig", {**_LLAMA, "logits_scaling": 3.0, "embedding_multiplier": 2.0, "residual_multiplier": 0.5}),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _LLAMA),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**_LLAMA, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", {**_LLAMA, "sliding_window": None}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", _LLAMA),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", _LLAMA),
}  # fmt: skip


def tiny_hf(family: str, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model of the family in evaluation mode, the same for the same seed."""
    model_class, config_class, arguments = FAMILIES[family]
    config = getattr(transformers, config_class)(**{**arguments, **changes})
    torch.manual_seed(seed)
    build: Callable[[Any], PreTrainedModel] = getattr(transformers, model_class)
    model = build(config)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for module in model.modules():
            bias = getattr(module, "bias", None)
            if isinstance(bias, nn.Parameter):
                bias.copy_(0.1 * torch.randn(bias.shape, generator=generator))
            if "norm" in type(module).__name__.lower() and isinstance(getattr(module, "weight", None), nn.Parameter):
                module.weight.add_(0.3 * torch.randn(module.weight.shape, generator=generator))
        embedding = model.get_input_embeddings().weight
        embedding.copy_(torch.randn(embedding.shape, generator=generator) * 0.5)
    return model.eval()


def tiny_tokenizer(bos: str = "none", chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on a few sentences.

    Parameters
    ----------
    bos : {"none", "adds"}
        Whether it puts ``<s>`` before a text by default.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    if bos == "adds":
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]),
            ]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", padding_side="right"
    )
    fast.chat_template = chat_template
    return fast
