"""What the readers of all formats share: tensors from files, where a hook lies, what to say when they do not fit."""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lmassay.errors import LmassayError

#: Outputs of a block, in the names of TransformerLens and of Hugging Face.
_POST = re.compile(r"blocks\.(\d+)\.(?:hook_resid_post|hook_out)|(?:[\w.]+\.)?(?:layers|h|blocks)\.(\d+)(?:\.output)?")
#: Inputs of a block, which are the outputs of the one before.
_PRE = re.compile(r"blocks\.(\d+)\.(?:hook_resid_pre|hook_in)")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises
    ------
    LmassayError
        ``model-files-broken``.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise broken(path, " ".join(str(error).split())[:120]) from error
    if not isinstance(found, dict):
        raise broken(path, "it is no JSON object")
    return found


def read_tensors(path: Path, *, allow_pickle: bool = False) -> dict[str, Tensor]:
    """Tensors by name, from a ``.safetensors``, ``.npz`` or (when allowed) pickled file.

    Raises
    ------
    LmassayError
        ``model-files-broken``; ``unsafe-weights`` for a pickle that was not allowed.
    """
    if path.suffix not in (".safetensors", ".npz") and not allow_pickle:
        raise LmassayError(
            "unsafe-weights",
            f"{path.name} is a pickle, which can run code when loaded",
            "if you trust its source, allow it: --option allow_pickle=true; or convert it to safetensors",
        )
    try:
        if path.suffix == ".safetensors":
            found: Any = load_file(path)
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                found = {key: torch.from_numpy(np.array(arrays[key])) for key in arrays.files}
        else:
            # Even then only tensors and plain containers are taken.
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (
        OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError,
        SafetensorError, pickle.UnpicklingError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        raise broken(path, " ".join(str(error).split())[:120] or type(error).__name__) from error
    if not isinstance(found, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in found.items()):
        raise broken(path, "it holds other things than tensors by name")
    return found


class Tensors:
    """The tensors of a file, each taken once, checked, and made float32; what is left over is refused."""

    def __init__(self, path: Path, held: dict[str, Tensor]) -> None:
        self.path = path
        self._held = dict(held)

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def take(self, name: str, *shape: int | None) -> Tensor:
        """A tensor of this shape (None: any length).

        Raises
        ------
        LmassayError
            ``model-files-broken`` when it is missing, of another shape, or not finite.
        """
        if name not in self._held:
            raise broken(self.path, f"it has no tensor {name!r}, only {', '.join(sorted(self._held)) or 'none'}")
        found = self._held.pop(name).detach().to(torch.float32)
        fits = found.ndim == len(shape) and all(w in (None, s) for w, s in zip(shape, found.shape, strict=True))
        if not fits:
            wanted = tuple("any" if w is None else w for w in shape)
            raise broken(self.path, f"{name} should be {wanted}, is {tuple(found.shape)}")
        if not bool(torch.isfinite(found).all()):
            raise broken(self.path, f"{name} holds NaN or infinite values")
        return found.contiguous()

    def drop(self, *names: str) -> None:
        """Leave out what decides no number."""
        for name in names:
            self._held.pop(name, None)

    def finish(self) -> None:
        """Refuse tensors that no rule took: what they do would be left out silently.

        Raises
        ------
        LmassayError
            ``bad-request``.
        """
        if self._held:
            raise unsupported(
                self.path, f"it holds {', '.join(sorted(self._held))}, of which this reader knows nothing"
            )


def block_of(hook: str, path: Path) -> int:
    """The block whose output a hook is.

    Raises
    ------
    LmassayError
        ``bad-request`` for a hook that is not in the residual stream between blocks.
    """
    if match := _POST.fullmatch(hook):
        return int(match[1] or match[2])
    if (match := _PRE.fullmatch(hook)) and int(match[1]):
        return int(match[1]) - 1
    raise unsupported(path, f"it reads {hook!r}, and states are kept where a block ends")


def broken(path: Path, what: str) -> LmassayError:
    """``model-files-broken``, of an autoencoder."""
    return LmassayError("model-files-broken", f"sparse autoencoder {path}: {what}", "copy its files again")


def unsupported(path: Path, what: str) -> LmassayError:
    """``bad-request``, for an autoencoder that cannot be used here."""
    return LmassayError(
        "bad-request", f"sparse autoencoder {path}: {what}", "choose another one (docs/cot-sae.md lists what is read)"
    )
