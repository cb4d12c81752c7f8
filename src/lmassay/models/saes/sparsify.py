"""Autoencoders of ``eai-sparsify``: a folder named after its module, ``cfg.json`` beside ``sae.safetensors``."""

from __future__ import annotations

from pathlib import Path

from lmassay.models.saes.autoencoder import NONE, Activation, GroupMax, SparseAutoencoder, Stated, TopK
from lmassay.models.saes.files import Tensors, block_of, broken, read_json, read_tensors, unsupported

NAME = "eai-sparsify"
CONFIG, WEIGHTS = "cfg.json", "sae.safetensors"
#: Switches under which features are not a function of the state alone, or stand for another module's output.
_OTHERS = {
    "transcode": "a transcoder",
    "skip_connection": "an autoencoder with a skip connection",
    "embed_skip": "an autoencoder that also reads the embedding",
    "gram_lookup": "an autoencoder of what an n-gram table leaves",
    "signed": "an autoencoder with negative features",
}


def recognises(folder: Path) -> bool:
    """Whether a folder looks like one."""
    return (folder / WEIGHTS).is_file() and (folder / CONFIG).is_file()


def read(folder: Path, *, allow_pickle: bool = False) -> SparseAutoencoder:
    """Read a folder.

    Raises
    ------
    LmassayError
        ``model-files-broken``; ``bad-request`` for a transcoder and the like.
    """
    config = read_json(folder / CONFIG)
    for switch, what in _OTHERS.items():
        if config.get(switch):
            raise unsupported(folder, f"it is {what}")
    tensors = Tensors(folder / WEIGHTS, read_tensors(folder / WEIGHTS))
    if "W_skip" in tensors:
        raise unsupported(folder, f"it is {_OTHERS['skip_connection']}")
    w_enc = tensors.take("encoder.weight", None, None).T.contiguous()
    width, n = w_enc.shape
    for field, size in (("d_in", width), ("num_latents", n)):
        # No number of latents (0, or the field missing) means the expansion factor times the width.
        if config.get(field) not in (None, 0, size):
            raise broken(folder / CONFIG, f"{field} is {config[field]}, and encoder.weight is {n} × {width}")
    b_enc, b_dec = tensors.take("encoder.bias", n), tensors.take("b_dec", width)
    w_dec = tensors.take("W_dec", n, width)
    tensors.finish()
    hook = folder.resolve().name
    known = "layers" in hook or hook.startswith("h.") or hook == "embed_tokens"
    return SparseAutoencoder(
        str(folder), NAME, w_enc, b_enc, w_dec, b_dec, _activation(config, n, folder), True, NONE,
        # Its own command cuts texts into pieces wherever they are, so most begin with no first token.
        Stated(hook=hook if known else None, block=block_of(hook, folder) if known else None),
    )  # fmt: skip


def _activation(config: dict[str, object], n: int, folder: Path) -> Activation:
    k, kind = config.get("k"), config.get("activation", "topk")
    if not isinstance(k, int) or not 1 <= k <= n:
        raise broken(folder / CONFIG, f"k is {k!r}, of {n} features")
    if kind == "topk":
        return TopK(k)
    if kind == "groupmax":
        if n % k:
            raise broken(folder / CONFIG, f"{n} features do not make {k} groups")
        return GroupMax(k)
    raise unsupported(folder, f"its activation function is {kind!r}")
