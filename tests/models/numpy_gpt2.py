"""GPT-2 in plain numpy, float64, one sequence at a time: an implementation that shares nothing with the package."""

from __future__ import annotations

import numpy as np


def _norm(x, weight, bias, eps=1e-5):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


def _gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _attention(x, w, head_count):
    n, d = x.shape
    q, k, v = np.split(x @ w["attn.c_attn.weight"] + w["attn.c_attn.bias"], 3, axis=1)
    size = d // head_count
    out = np.zeros_like(x)
    for h in range(head_count):
        part = slice(h * size, (h + 1) * size)
        for i in range(n):
            scores = q[i, part] @ k[: i + 1, part].T / np.sqrt(size)
            weights = np.exp(scores - scores.max())
            out[i, part] = weights / weights.sum() @ v[: i + 1, part]
    return out @ w["attn.c_proj.weight"] + w["attn.c_proj.bias"]


def log_probs_at_depths(state: dict, ids: list[int], head_count: int, block_count: int) -> list[np.ndarray]:
    """Per depth (embed, blocks, final): (tokens, vocabulary) log-probabilities under the lens."""
    s = {name.removeprefix("transformer."): tensor.double().numpy() for name, tensor in state.items()}
    x = s["wte.weight"][ids] + s["wpe.weight"][: len(ids)]
    states = [x]
    for block in range(block_count):
        prefix = f"h.{block}."
        w = {name.removeprefix(prefix): value for name, value in s.items() if name.startswith(prefix)}
        x = x + _attention(_norm(x, w["ln_1.weight"], w["ln_1.bias"]), w, head_count)
        hidden = _gelu(_norm(x, w["ln_2.weight"], w["ln_2.bias"]) @ w["mlp.c_fc.weight"] + w["mlp.c_fc.bias"])
        x = x + hidden @ w["mlp.c_proj.weight"] + w["mlp.c_proj.bias"]
        states.append(x)
    found = []
    for x in [*states, states[-1]]:
        logits = _norm(x, s["ln_f.weight"], s["ln_f.bias"]) @ s["lm_head.weight"].T
        logits = logits - logits.max(-1, keepdims=True)
        found.append(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))
    return found
