"""Releases of sae-lens: ``cfg.json`` beside ``sae_weights.safetensors``, of version 6 and of those before.

Before 6 the file is flat, and its missing fields have the defaults of that time; from 6 on what concerns the model
stands under ``metadata``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lmassay.models.saes.autoencoder import (
    NONE,
    NORMALISATIONS,
    Activation,
    Gated,
    JumpRelu,
    Relu,
    SparseAutoencoder,
    Stated,
    TopK,
)
from lmassay.models.saes.files import Tensors, block_of, broken, read_json, read_tensors, unsupported

NAME = "sae-lens"
CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
#: Checkpoints of these, saved in the middle of training, hold one threshold and decoders of any length.
_BATCH = ("batchtopk", "matryoshka_batchtopk")
_EXPECTED = "expected_average_only_in"


def recognises(folder: Path) -> bool:
    """Whether a folder looks like one."""
    return (folder / WEIGHTS).is_file() and (folder / CONFIG).is_file()


def read(folder: Path, *, allow_pickle: bool = False) -> SparseAutoencoder:
    """Read a folder.

    Raises
    ------
    LmassayError
        ``model-files-broken``; ``bad-request`` for an architecture or hook that is not read here.
    """
    path = folder / CONFIG
    config = read_json(path)
    about = config.get("metadata") or config
    architecture = str(config.get("architecture", "standard"))
    function = str(config.get("activation_fn") or config.get("activation_fn_str") or "relu")
    k = config.get("k")
    if function == "topk":
        architecture, k = "topk", (config.get("activation_fn_kwargs") or {}).get("k", k)
    elif function != "relu":
        raise unsupported(folder, f"its activation function is {function!r}")
    if about.get("hook_head_index") is not None or config.get("reshape_activations", NONE) != NONE:
        raise unsupported(folder, "it reads attention heads, not the residual stream")
    normalisation, notes = _normalisation(config, folder)

    tensors = Tensors(folder / WEIGHTS, read_tensors(folder / WEIGHTS))
    w_enc = tensors.take("W_enc", None, None)
    width, n = w_enc.shape
    for field, size in (("d_in", width), ("d_sae", n)):
        if config.get(field, size) != size:
            raise broken(path, f"{field} is {config[field]}, and W_enc is {width} × {n}")
    w_dec, b_dec = tensors.take("W_dec", n, width), tensors.take("b_dec", width)
    if "scaling_factor" in tensors and not torch.allclose(tensors.take("scaling_factor", n), torch.ones(n)):
        raise unsupported(folder, "its decoder was fine-tuned by a scaling factor")
    if architecture == "gated":
        b_enc = torch.zeros(n)
        gate, magnitude = tensors.take("b_gate", n), tensors.take("b_mag", n)
        activation: Activation = Gated(tensors.take("r_mag", n).exp(), gate, magnitude)
    else:
        b_enc = tensors.take("b_enc", n)
        rescales = config.get("rescale_acts_by_decoder_norm", architecture in _BATCH)
        if rescales and architecture in ("topk", *_BATCH):
            # The features are those of an autoencoder whose decoder directions have length one.
            lengths = w_dec.norm(dim=-1).clamp_min(1e-8)
            w_enc, b_enc, w_dec = w_enc * lengths, b_enc * lengths, w_dec / lengths[:, None]
        activation = _activation(architecture, k, tensors, n, folder)
    tensors.finish()
    hook = about.get("hook_name") or about.get("hook_point")
    stated = Stated(
        model=about.get("model_name"),
        hook=hook,
        block=block_of(str(hook), folder) if hook else None,
        bos=about.get("prepend_bos", None if "metadata" in config else True),
        notes=notes,
    )
    subtracts = bool(config.get("apply_b_dec_to_input", True))
    return SparseAutoencoder(
        str(folder), NAME, w_enc, b_enc, w_dec, b_dec, activation, subtracts, normalisation, stated
    )


def _normalisation(config: dict[str, Any], folder: Path) -> tuple[str, tuple[str, ...]]:
    found = config.get("normalize_activations") or NONE
    if found is True or found == _EXPECTED:
        return NONE, (
            "it was trained on states scaled to an average length, by a factor its file does not hold; "
            "it is read as if the factor were folded into the weights",
        )
    if found not in NORMALISATIONS:
        raise unsupported(folder, f"its states are normalised by {found!r}")
    return str(found), ()


def _activation(architecture: str, k: Any, tensors: Tensors, n: int, folder: Path) -> Activation:
    if architecture == "standard":
        return Relu()
    if architecture == "jumprelu":
        if "log_threshold" in tensors:
            return JumpRelu(tensors.take("log_threshold", n).exp())
        return JumpRelu(tensors.take("threshold", n))
    if architecture == "topk":
        if not isinstance(k, int) or k < 1:
            raise broken(folder / CONFIG, f"k is {k!r}")
        return TopK(k)
    if architecture in _BATCH:
        return JumpRelu(tensors.take("topk_threshold").expand(n).contiguous())
    raise unsupported(folder, f"its architecture is {architecture!r}")
