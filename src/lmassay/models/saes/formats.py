"""Which format a folder is in. A new one is a module with ``NAME``, ``recognises`` and ``read``, and a row here."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from lmassay.errors import LmassayError
from lmassay.models.saes import dictionary_learning, gemma_scope, sae_lens, sparsify
from lmassay.models.saes.autoencoder import SparseAutoencoder

#: Asked in this order.
FORMATS: tuple[ModuleType, ...] = (sae_lens, sparsify, dictionary_learning, gemma_scope)


def open_sae(path: Path | str, *, allow_pickle: bool = False) -> SparseAutoencoder:
    """Read a sparse autoencoder from its folder, or from a file in it.

    Parameters
    ----------
    allow_pickle : bool
        Take the pickles of ``dictionary_learning``; even then only tensors and plain containers.

    Raises
    ------
    LmassayError
        ``model-not-found``, ``model-files-broken``, ``unsafe-weights``, ``bad-request``.
    """
    given = Path(path).expanduser()
    folder = given.parent if given.is_file() else given
    for known in FORMATS:
        if known.recognises(folder):
            found: SparseAutoencoder = known.read(folder, allow_pickle=allow_pickle)
            return found
    raise LmassayError(
        "model-not-found",
        f"{given} holds no sparse autoencoder that can be read" if folder.is_dir() else f"no folder {given}",
        "name the folder with cfg.json and sae_weights.safetensors or sae.safetensors, config.json and ae.pt, "
        "or params.npz",
    )
