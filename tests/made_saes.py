"""Small sparse autoencoders with random weights, saved in the layout of each library, each with an encoder of its own.

The encoders are plain numpy in float64, one token at a time, written from the libraries' formulas; they share nothing
with the package.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

WIDTH, FEATURES, K = 8, 20, 3


@dataclass(frozen=True)
class Made:
    """A folder, and what its library makes of one token."""

    folder: Path
    encode: Callable[[np.ndarray], np.ndarray]
    decode: Callable[[np.ndarray, np.ndarray], np.ndarray]


def tokens(n=12, width=WIDTH, seed=1):
    return np.random.default_rng(seed).normal(1.0, 2.0, (n, width)).astype(np.float32)


def weights(seed=0, width=WIDTH, n=FEATURES):
    """Encoder (width, n), its bias, decoder (n, width), its bias, all float32-representable; no decoder of length 1."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(width, n)), rng.normal(size=n), rng.normal(size=(n, width)), rng.normal(size=width)
    return tuple(w.astype(np.float32).astype(np.float64) for w in drawn)


def relu(x):
    return np.maximum(x, 0)


def largest(x, k):
    """All but the k largest are 0."""
    kept = np.zeros_like(x)
    best = np.argsort(-x)[:k]
    kept[best] = x[best]
    return kept


def _tensors(**arrays):
    return {k: torch.from_numpy(np.asarray(v, np.float32)).contiguous() for k, v in arrays.items()}


def _saved(folder, config, file, arrays, name="cfg.json"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(config))
    save_file(_tensors(**arrays), folder / file)


def _norms(normalisation):
    """In and out, as sae-lens has them: the standard deviation is that of a sample, the epsilon only in the way in."""

    def there(x):
        if normalisation == "layer_norm":
            centred = x - x.mean()
            return centred / (np.sqrt((centred**2).sum() / (len(x) - 1)) + 1e-5)
        if normalisation == "constant_norm_rescale":
            return x * np.sqrt(len(x)) / np.sqrt((x**2).sum())
        return x

    def back(y, x):
        if normalisation == "layer_norm":
            return y * np.sqrt(((x - x.mean()) ** 2).sum() / (len(x) - 1)) + x.mean()
        if normalisation == "constant_norm_rescale":
            return y * np.sqrt((x**2).sum()) / np.sqrt(len(x))
        return y

    return there, back


def sae_lens(
    folder, architecture="standard", *, version=6, normalisation="none", subtracts=True, rescales=False, **more
):
    """cfg.json and sae_weights.safetensors. `more` is added to the config."""
    w_enc, b_enc, w_dec, b_dec = weights()
    rng = np.random.default_rng(9)
    threshold, r_mag, b_mag = (rng.normal(size=FEATURES).astype(np.float32).astype(np.float64) for _ in range(3))
    about = {"model_name": "reader", "hook_name": "blocks.1.hook_resid_post", "prepend_bos": False, "context_size": 64}
    config = {
        "d_in": WIDTH, "d_sae": FEATURES, "dtype": "float32", "device": "cpu", "normalize_activations": normalisation,
        "apply_b_dec_to_input": subtracts, "reshape_activations": "none", "architecture": architecture,
    }  # fmt: skip
    if version == 6:
        config["metadata"] = {**about, "sae_lens_version": "6.13.0"}
    else:
        config |= {**about, "hook_layer": 1, "hook_head_index": None, "activation_fn_str": "relu", "dtype": "float32"}
    arrays = {"W_enc": w_enc, "b_enc": b_enc, "W_dec": w_dec, "b_dec": b_dec}
    lengths = np.sqrt((w_dec**2).sum(1)) if rescales else np.ones(FEATURES)
    if architecture == "jumprelu":
        if more.pop("log", False):
            arrays["log_threshold"], threshold = threshold, np.exp(threshold)
        else:
            arrays["threshold"] = threshold
    elif architecture == "topk":
        if version == 6:
            config |= {"k": K, "rescale_acts_by_decoder_norm": rescales}
        else:
            config |= {"architecture": "standard", "activation_fn_str": "topk", "activation_fn_kwargs": {"k": K}}
    elif architecture == "gated":
        arrays |= {"b_gate": b_enc, "r_mag": r_mag, "b_mag": b_mag}
        del arrays["b_enc"]
    elif architecture == "batchtopk":
        arrays["topk_threshold"] = np.float32(0.5)
        config |= {"k": float(K), "rescale_acts_by_decoder_norm": rescales}
    _saved(folder, config | more, "sae_weights.safetensors", arrays)
    there, back = _norms(normalisation)

    def encode(x):
        ready = there(x) - (b_dec if subtracts else 0)
        if architecture == "gated":
            return relu(ready @ (w_enc * np.exp(r_mag)) + b_mag) * (ready @ w_enc + b_enc > 0)
        pre = (ready @ w_enc + b_enc) * lengths
        if architecture == "topk":
            return relu(largest(pre, K))
        if architecture in ("jumprelu", "batchtopk"):
            return relu(pre) * (pre > (threshold if architecture == "jumprelu" else 0.5))
        return relu(pre)

    return Made(folder, encode, lambda f, x: back((f / lengths) @ w_dec + b_dec, x))


def sparsify(folder, activation="topk", **more):
    """cfg.json and sae.safetensors in a folder named after the module."""
    folder = folder / "layers.1"
    n, k = (21, 3) if activation == "groupmax" else (FEATURES, K)
    w_enc, b_enc, w_dec, b_dec = weights(1, n=n)
    config = {
        "activation": activation, "expansion_factor": 32, "normalize_decoder": True, "num_latents": n, "k": k,
        "multi_topk": False, "skip_connection": False, "transcode": False, "d_in": WIDTH,
    }  # fmt: skip
    arrays = {"encoder.weight": w_enc.T, "encoder.bias": b_enc, "W_dec": w_dec, "b_dec": b_dec}
    if "W_skip" in more:
        arrays["W_skip"] = more.pop("W_skip")
    _saved(folder, config | more, "sae.safetensors", arrays)

    def encode(x):
        pre = relu((x - b_dec) @ w_enc + b_enc)
        if activation == "topk":
            return largest(pre, k)
        kept = np.zeros(n)
        for group in range(k):
            place = group * (n // k) + int(np.argmax(pre[group * (n // k) : (group + 1) * (n // k)]))
            kept[place] = pre[place]
        return kept

    return Made(folder, encode, lambda f, x: f @ w_dec + b_dec)


def dictionary_learning(
    folder, kind="BatchTopKSAE", *, threshold=0.7, pickled=True, place="resid_post_layer_1", **more
):
    """config.json and ae.pt."""
    w_enc, b_enc, w_dec, b_dec = weights(2)
    rng = np.random.default_rng(5)
    r_mag, b_mag = (rng.normal(size=FEATURES).astype(np.float32).astype(np.float64) for _ in range(2))
    trainer = {
        "trainer_class": "Trainer", "dict_class": kind, "activation_dim": WIDTH, "dict_size": FEATURES, "k": K,
        "layer": 1, "lm_name": "org/reader", "submodule_name": place,
    }  # fmt: skip
    linear = {"encoder.weight": w_enc.T, "decoder.weight": w_dec.T}
    plain = {"W_enc": w_enc, "W_dec": w_dec, "b_enc": b_enc, "b_dec": b_dec}
    arrays = {
        "BatchTopKSAE": {**linear, "encoder.bias": b_enc, "b_dec": b_dec, "threshold": threshold},
        "MatryoshkaBatchTopKSAE": {**plain, "threshold": threshold},
        "AutoEncoderTopK": {**linear, "encoder.bias": b_enc, "b_dec": b_dec, "threshold": -1.0},
        "AutoEncoder": {**linear, "encoder.bias": b_enc, "bias": b_dec},
        "AutoEncoderNew": {**linear, "encoder.bias": b_enc, "decoder.bias": b_dec},
        "GatedAutoEncoder": {
            **linear, "decoder_bias": b_dec, "r_mag": r_mag, "gate_bias": b_enc, "mag_bias": b_mag
        },
        "JumpReluAutoEncoder": {**plain, "threshold": np.abs(r_mag)},
    }.get(kind, linear)  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"trainer": trainer | more, "buffer": {"ctx_len": 128}}))
    tensors = _tensors(**arrays)
    if "TopK" in kind:
        tensors["k"] = torch.tensor(K, dtype=torch.int)
    if kind.startswith("Matryoshka"):
        tensors["group_sizes"] = torch.tensor([5, 15])
    if pickled:
        torch.save(tensors, folder / "ae.pt")
    else:
        save_file(tensors, folder / "ae.safetensors")

    def encode(x):
        if kind == "GatedAutoEncoder":
            product = (x - b_dec) @ w_enc
            return relu(np.exp(r_mag) * product + b_mag) * (product + b_enc > 0)
        ready = x if kind in ("AutoEncoderNew", "JumpReluAutoEncoder") else x - b_dec
        pre = relu(ready @ w_enc + b_enc)
        if kind == "AutoEncoderTopK":
            return largest(pre, K)
        if kind == "JumpReluAutoEncoder":
            return pre * (pre > np.abs(r_mag))
        return pre * (pre > threshold) if "BatchTopK" in kind else pre

    return Made(folder, encode, lambda f, x: f @ w_dec + b_dec)


def gemma_scope(folder, *, second=False, **more):
    """params.npz under layer_1/width_16k/…, or params.safetensors with a config."""
    w_enc, b_enc, w_dec, b_dec = weights(3)
    threshold = np.abs(np.random.default_rng(4).normal(size=FEATURES)).astype(np.float32).astype(np.float64)
    if second:
        folder = folder / "resid_post" / "layer_1_width_16k_l0_small"
        config = {
            "hf_hook_point_in": "model.layers.1.output", "hf_hook_point_out": "model.layers.1.output", "width": FEATURES,
            "model_name": "google/gemma-3-270m", "architecture": "jump_relu", "l0": 20, "type": "sae",
        }  # fmt: skip
        arrays = {"w_enc": w_enc, "b_enc": b_enc, "w_dec": w_dec, "b_dec": b_dec, "threshold": threshold}
        _saved(folder, config | more, "params.safetensors", arrays, "config.json")
    else:
        folder = folder / "layer_1" / "width_16k" / "average_l0_71"
        folder.mkdir(parents=True)
        arrays = {"W_enc": w_enc, "b_enc": b_enc, "W_dec": w_dec, "b_dec": b_dec, "threshold": threshold}
        np.savez(folder / "params.npz", **{k: v.astype(np.float32) for k, v in arrays.items()})

    def encode(x):
        pre = x @ w_enc + b_enc
        return relu(pre) * (pre > threshold)

    return Made(folder, encode, lambda f, x: f @ w_dec + b_dec)


#: Every layout with every activation and normalisation it can have.
CASES = {
    "sae_lens standard": lambda f: sae_lens(f),
    "sae_lens standard 5": lambda f: sae_lens(f, version=5, normalisation="layer_norm"),
    "sae_lens standard rescaled": lambda f: sae_lens(f, normalisation="constant_norm_rescale", subtracts=False),
    "sae_lens standard layer norm": lambda f: sae_lens(f, normalisation="layer_norm"),
    "sae_lens jumprelu": lambda f: sae_lens(f, "jumprelu"),
    "sae_lens jumprelu log": lambda f: sae_lens(f, "jumprelu", log=True),
    "sae_lens topk": lambda f: sae_lens(f, "topk"),
    "sae_lens topk rescaled": lambda f: sae_lens(f, "topk", rescales=True),
    "sae_lens topk 5": lambda f: sae_lens(f, "topk", version=5),
    "sae_lens gated": lambda f: sae_lens(f, "gated"),
    "sae_lens batchtopk checkpoint": lambda f: sae_lens(f, "batchtopk", rescales=True),
    "sparsify topk": lambda f: sparsify(f),
    "sparsify groupmax": lambda f: sparsify(f, "groupmax"),
    "dictionary_learning BatchTopKSAE": lambda f: dictionary_learning(f),
    "dictionary_learning BatchTopKSAE converted": lambda f: dictionary_learning(f, pickled=False),
    "dictionary_learning MatryoshkaBatchTopKSAE": lambda f: dictionary_learning(f, "MatryoshkaBatchTopKSAE"),
    "dictionary_learning AutoEncoderTopK": lambda f: dictionary_learning(f, "AutoEncoderTopK"),
    "dictionary_learning AutoEncoder": lambda f: dictionary_learning(f, "AutoEncoder"),
    "dictionary_learning AutoEncoderNew": lambda f: dictionary_learning(f, "AutoEncoderNew"),
    "dictionary_learning GatedAutoEncoder": lambda f: dictionary_learning(f, "GatedAutoEncoder"),
    "dictionary_learning JumpReluAutoEncoder": lambda f: dictionary_learning(f, "JumpReluAutoEncoder"),
    "gemma_scope": lambda f: gemma_scope(f),
    "gemma_scope 2": lambda f: gemma_scope(f, second=True),
}
