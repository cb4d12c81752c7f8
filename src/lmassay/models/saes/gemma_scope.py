"""Gemma Scope: JumpReLU with the scale of the states folded into the weights.

``params.npz`` in a folder like ``layer_20/width_16k/average_l0_71``; of Gemma Scope 2 ``params.safetensors`` beside a
``config.json``.
"""

from __future__ import annotations

import re
from pathlib import Path

from lmassay.models.saes.autoencoder import NONE, JumpRelu, SparseAutoencoder, Stated
from lmassay.models.saes.files import Tensors, block_of, read_json, read_tensors, unsupported

NAME = "gemma-scope"
FIRST, SECOND, CONFIG = "params.npz", "params.safetensors", "config.json"
_LAYER = re.compile(r"layer_(\d+)")
#: In the names of folders whose autoencoders read something else than a block's output.
_ELSEWHERE = re.compile(r"-att\b|-mlp\b|attn_out|mlp_out|transcoder|embedding|crosscoder|\bclt")


def recognises(folder: Path) -> bool:
    """Whether a folder looks like one."""
    return (folder / FIRST).is_file() or (folder / SECOND).is_file()


def read(folder: Path, *, allow_pickle: bool = False) -> SparseAutoencoder:
    """Read a folder.

    Raises
    ------
    LmassayError
        ``model-files-broken``; ``bad-request`` for a transcoder, or one of attention, MLP or embedding.
    """
    path = folder / (FIRST if (folder / FIRST).is_file() else SECOND)
    # The suite's folders say which place and layer; what lies above them is the user's own.
    parts = folder.resolve().parts[-4:]
    if elsewhere := next((p for p in parts if _ELSEWHERE.search(p)), None):
        raise unsupported(folder, f"by the folder {elsewhere!r} it does not read the output of a block")
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    hook = config.get("hf_hook_point_in")
    if config.get("type", "sae") != "sae" or config.get("hf_hook_point_out", hook) != hook:
        raise unsupported(folder, f"it is a {config.get('type', 'transcoder')}")
    tensors = Tensors(path, read_tensors(path))
    if "affine_skip_connection" in tensors:
        raise unsupported(folder, "it is a transcoder with a skip connection")
    names = {key: key if key in tensors else key.replace("w_", "W_") for key in ("w_enc", "w_dec")}
    w_enc = tensors.take(names["w_enc"], None, None)
    width, n = w_enc.shape
    w_dec = tensors.take(names["w_dec"], n, width)
    b_enc, b_dec, threshold = tensors.take("b_enc", n), tensors.take("b_dec", width), tensors.take("threshold", n)
    tensors.finish()
    layer = next((m for p in reversed(parts) if (m := _LAYER.search(p))), None)
    stated = Stated(
        model=config.get("model_name"),
        hook=hook or (layer[0] if layer else None),
        block=block_of(str(hook), folder) if hook else int(layer[1]) if layer else None,
        bos=True,
    )
    return SparseAutoencoder(str(folder), NAME, w_enc, b_enc, w_dec, b_dec, JumpRelu(threshold), False, NONE, stated)
