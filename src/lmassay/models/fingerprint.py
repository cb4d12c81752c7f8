"""Digests of what decides a model's numbers: weights, tokenizer, configuration."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lmassay.models.tokens import TokenizerView


def state_digest(hf: PreTrainedModel) -> str:
    """sha256 over names, types, shapes and bytes of all tensors, in order of name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(hf.state_dict().items()):
        digest.update(f"{name}\x1f{tensor.dtype}\x1f{tuple(tensor.shape)}\x1f".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tokenizer_digest(tokens: TokenizerView) -> str:
    """sha256 over the tokenizer's rules, its special tokens and its chat template."""
    backend = getattr(tokens.hf, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else json.dumps(sorted(tokens.hf.get_vocab().items()))
    return hashlib.sha256(json.dumps([rules, list(tokens.prefix), tokens.hf.chat_template]).encode()).hexdigest()


def config_digest(hf: PreTrainedModel) -> str:
    """sha256 over the configuration, without what names a place, a version or a precision."""
    volatile = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures"}
    content = {k: v for k, v in hf.config.to_dict().items() if k not in volatile}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
