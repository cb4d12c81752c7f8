"""Folders of ``dictionary_learning``: ``ae.pt`` (a pickle; or ``ae.safetensors``) beside ``config.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmassay.models.saes.autoencoder import NONE, Activation, Gated, JumpRelu, Relu, SparseAutoencoder, Stated, TopK
from lmassay.models.saes.files import Tensors, broken, read_json, read_tensors, unsupported

NAME = "dictionary_learning"
CONFIG, PICKLED, CONVERTED = "config.json", "ae.pt", "ae.safetensors"
_BATCH = ("BatchTopKSAE", "MatryoshkaBatchTopKSAE")


def recognises(folder: Path) -> bool:
    """Whether a folder looks like one."""
    return (folder / CONFIG).is_file() and ((folder / PICKLED).is_file() or (folder / CONVERTED).is_file())


def read(folder: Path, *, allow_pickle: bool = False) -> SparseAutoencoder:
    """Read a folder.

    Raises
    ------
    LmassayError
        ``unsafe-weights`` when its pickle is not allowed; ``model-files-broken``; ``bad-request`` for a class or place
        that is not read here, and for a BatchTopK that was saved before it had a threshold.
    """
    path = folder / (CONVERTED if (folder / CONVERTED).is_file() else PICKLED)
    trainer = read_json(folder / CONFIG).get("trainer")
    if not isinstance(trainer, dict):
        raise broken(folder / CONFIG, "it has no 'trainer'")
    stated = _stated(trainer, folder)
    kind = str(trainer.get("dict_class", ""))
    held = {k.removeprefix("_orig_mod."): v for k, v in read_tensors(path, allow_pickle=allow_pickle).items()}
    tensors = Tensors(path, held)
    if "W_enc" in tensors:
        w_enc = tensors.take("W_enc", None, None)
        width, n = w_enc.shape
        w_dec, b_enc = tensors.take("W_dec", n, width), tensors.take("b_enc", n)
    else:
        w_enc = tensors.take("encoder.weight", None, None).T.contiguous()
        width, n = w_enc.shape
        w_dec = tensors.take("decoder.weight", width, n).T.contiguous()
        b_enc = tensors.take("encoder.bias", n) if "encoder.bias" in tensors else torch.zeros(n)
    for field, size in (("activation_dim", width), ("dict_size", n)):
        if trainer.get(field, size) != size:
            raise broken(folder / CONFIG, f"{field} is {trainer[field]}, and the encoder is {width} × {n}")
    b_dec, subtracts, activation = _rest(kind, trainer, tensors, width, n, folder)
    tensors.finish()
    return SparseAutoencoder(str(folder), NAME, w_enc, b_enc, w_dec, b_dec, activation, subtracts, NONE, stated)


def _rest(
    kind: str, trainer: dict[str, Any], tensors: Tensors, width: int, n: int, folder: Path
) -> tuple[Tensor, bool, Activation]:
    """Decoder bias, whether it is subtracted, and the activation: each class names and uses them in its own way."""
    if kind in _BATCH:
        threshold = float(tensors.take("threshold")) if "threshold" in tensors else -1.0
        if threshold < 0:
            raise unsupported(
                folder, "it has no threshold yet, and without one a token's features depend on its neighbours"
            )
        tensors.drop("k", "group_sizes")
        return tensors.take("b_dec", width), True, JumpRelu(torch.full((n,), threshold))
    if kind == "AutoEncoderTopK":
        k = int(tensors.take("k")) if "k" in tensors else trainer.get("k")
        if not isinstance(k, int) or not 1 <= k <= n:
            raise broken(folder / CONFIG, f"k is {k!r}, of {n} features")
        tensors.drop("threshold")
        return tensors.take("b_dec", width), True, TopK(k)
    if kind == "AutoEncoder":
        return tensors.take("bias", width), True, Relu()
    if kind == "AutoEncoderNew":
        return tensors.take("decoder.bias", width), False, Relu()
    if kind == "GatedAutoEncoder":
        gate, magnitude = tensors.take("gate_bias", n), tensors.take("mag_bias", n)
        return tensors.take("decoder_bias", width), True, Gated(tensors.take("r_mag", n).exp(), gate, magnitude)
    if kind == "JumpReluAutoEncoder":
        return tensors.take("b_dec", width), False, JumpRelu(tensors.take("threshold", n))
    raise unsupported(folder, f"its class is {kind!r}")


def _stated(trainer: dict[str, Any], folder: Path) -> Stated:
    place, layer = str(trainer.get("submodule_name") or ""), trainer.get("layer")
    if place and not place.startswith("resid"):
        raise unsupported(folder, f"it reads {place!r}, not the residual stream")
    if "resid_pre" in place:
        layer = layer - 1 if isinstance(layer, int) and layer else None
    return Stated(
        model=trainer.get("lm_name"),
        hook=place or None,
        block=layer if isinstance(layer, int) else None,
    )
