"""The tuned lens: an affine translator for each depth, before the final norm and the head.

Belrose et al., *Eliciting Latent Predictions from Transformers with the Tuned Lens* (2023). Read are folders in the
layout of the ``tuned-lens`` package (``config.json`` beside ``params.pt``) and those that ``fit_lens`` writes
(``params.safetensors``, digests in the config).
"""

from __future__ import annotations

import hashlib
import pickle
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lmassay.errors import LmassayError
from lmassay.models.lens_name import LOGIT, TUNED, check_lens_name
from lmassay.models.readout import readout_dtype
from lmassay.storage.cache import cache_folder

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

CONFIG, PARAMETERS, PICKLED = "config.json", "params.safetensors", "params.pt"
LENS_TYPE = "linear_tuned_lens"
_KEY = re.compile(r"(\d+)\.(weight|bias)")


@dataclass(frozen=True, eq=False)
class TunedLens:
    """Translators of one model: a state becomes ``state + weight @ state + bias`` of its depth.

    Attributes
    ----------
    weight : (n_blocks, d_model, d_model)
        For ``embed`` and all blocks but the last, whose lens is the model's output already.
    bias : (n_blocks, d_model)
    sha256 : str
        Of both.
    """

    weight: Tensor
    bias: Tensor
    sha256: str


class Origin(BaseModel):
    """What only our own lenses say about themselves."""

    model_config = ConfigDict(extra="allow")

    weights_sha256: str
    dtype: str
    params_sha256: str


class LensConfig(BaseModel):
    """``config.json`` of a lens, in the fields of the ``tuned-lens`` package and one of our own."""

    model_config = ConfigDict(extra="ignore")

    base_model_name_or_path: str
    d_model: int
    num_hidden_layers: int
    bias: bool = True
    base_model_revision: str | None = None
    unembed_hash: str | None = None
    lens_type: str = LENS_TYPE
    lmassay: Origin | None = None


def translated(model: LanguageModel, states: Tensor, depth: int) -> Tensor:
    """(n, d_model) states of one depth -> what final norm and head shall read of them.

    The states themselves under the logit lens, and at the last block and ``final`` under any.
    """
    lens = model.lens
    if lens is None or depth >= len(lens.weight):
        return states
    rows = states.to(model.anatomy.head.weight.device, readout_dtype(model))
    return rows + torch.nn.functional.linear(rows, lens.weight[depth].to(rows), lens.bias[depth].to(rows))


def kept_folder(model: LanguageModel) -> Path:
    """Where `fit_lens` keeps the lens of these weights, in the user's cache."""
    return cache_folder() / "lenses" / model.fingerprint.weights[:32]


def with_lens(model: LanguageModel, lens: str = LOGIT) -> LanguageModel:
    """The model read through another lens.

    Parameters
    ----------
    lens : str
        ``logit``; ``tuned``, the lens that ``lmassay models fit-lens`` keeps for this model; or a folder.

    Raises
    ------
    LmassayError
        ``bad-request``, ``lens-mismatch``, ``model-files-broken``.
    """
    check_lens_name(lens)
    if lens == LOGIT:
        return replace(model, lens=None)
    folder = kept_folder(model) if lens == TUNED else Path(lens).expanduser()
    if lens == TUNED and not (folder / CONFIG).is_file():
        raise LmassayError(
            "bad-request",
            f"no lens has been fitted for {model.name} on this machine",
            f"fit one: lmassay models fit-lens {model.name} --text FILE; or name a lens's folder",
        )
    found, note = load_lens(folder, model)
    return replace(model, lens=found, notes=(*model.notes, note))


def load_lens(folder: Path, model: LanguageModel) -> tuple[TunedLens, str]:
    """A lens of this model, and what must be said beside every figure.

    Raises
    ------
    LmassayError
        ``lens-mismatch`` when it belongs to another model, ``model-files-broken`` when it cannot be read.
    """
    config = read_config(folder)
    by = _check_model(folder, config, model)
    weight, bias = _parameters(folder, config)
    sha256 = parameters_digest(weight, bias)
    if config.lmassay is not None and config.lmassay.params_sha256 != sha256:
        raise _broken(folder, "its parameters are not those its config.json was written for")
    if not bool(torch.isfinite(weight).all() and torch.isfinite(bias).all()):
        raise _broken(folder, "it holds NaN or infinite parameters")
    device, dtype = model.anatomy.head.weight.device, readout_dtype(model)
    note = f"tuned lens {sha256[:12]}, fitted on {config.base_model_name_or_path} (matched by {by})"
    return TunedLens(weight.to(device, dtype), bias.to(device, dtype), sha256), note


def read_config(folder: Path) -> LensConfig:
    """``config.json`` of a lens folder."""
    try:
        config = LensConfig.model_validate_json((folder / CONFIG).read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise _broken(folder, f"{CONFIG}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except OSError as error:
        raise _broken(folder, f"{CONFIG}: {error.strerror or error}") from error
    if config.lens_type != LENS_TYPE:
        raise LmassayError(
            "bad-request", f"{folder} is a lens of type {config.lens_type!r}", f"only {LENS_TYPE} can be read"
        )
    return config


def width(model: LanguageModel) -> int:
    """Of the residual stream; the embedding's own differs where a model projects it."""
    return int(model.hf.config.get_text_config().hidden_size)


def unembedding_hash(head: Tensor) -> str:
    """The ``tuned-lens`` package's mark of an unembedding: sha256 of numpy's abridged print at one decimal.

    It sees the corners of the matrix only, so it tells models apart and not versions of one model.
    """
    with np.printoptions(edgeitems=3, threshold=1000, linewidth=75, suppress=False, floatmode="maxprec", sign="-"):
        return hashlib.sha256(np.array_str(head.detach().cpu().numpy(), precision=1).encode()).hexdigest()


def parameters_digest(weight: Tensor, bias: Tensor) -> str:
    """sha256 over types, shapes and bytes of a lens's parameters."""
    digest = hashlib.sha256()
    for tensor in (weight, bias):
        digest.update(f"{tensor.dtype}\x1f{tuple(tensor.shape)}\x1f".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _check_model(folder: Path, config: LensConfig, model: LanguageModel) -> str:
    """By what the lens is known to be this model's; refused where something says otherwise."""
    shape, own = (config.num_hidden_layers, config.d_model), (model.n_blocks, width(model))
    if shape != own:
        what = f"{shape[0]} blocks of width {shape[1]}; {model.name} has {own[0]} of {own[1]}"
        raise _mismatch(folder, config, model, f"for {what}")
    if config.lmassay is not None:
        stored, found = config.lmassay.weights_sha256, model.fingerprint.weights
        if stored != found:
            dtype = str(model.dtype).removeprefix("torch.")
            # Weights from a hub are hashed as loaded, so another precision is another hash.
            hint = "" if config.lmassay.dtype == dtype else f" (fitted in {config.lmassay.dtype}, opened in {dtype})"
            raise _mismatch(folder, config, model, f"weights {stored[:12]}, not {found[:12]}{hint}")
        return "the hash of the weights"
    if config.unembed_hash is not None:
        head = model.anatomy.head.weight
        # The package hashes the head in the type it was trained in, which the config does not tell.
        found_hashes = {unembedding_hash(head.to(t)) for t in (torch.float32, torch.float16)}
        if config.unembed_hash not in found_hashes:
            raise _mismatch(folder, config, model, f"unembedding {config.unembed_hash[:12]}, another than this one's")
        return "the hash of the unembedding"
    names = {Path(n).name.casefold() for n in (model.name, str(model.hf.config.name_or_path)) if n}
    if Path(config.base_model_name_or_path).name.casefold() not in names:
        raise _mismatch(folder, config, model, "another name, and no hash to tell by")
    return "shape and name only"


def _mismatch(folder: Path, config: LensConfig, model: LanguageModel, how: str) -> LmassayError:
    return LmassayError(
        "lens-mismatch",
        f"{folder} is a lens of {config.base_model_name_or_path} ({how})",
        f"fit one for this model: lmassay models fit-lens {model.name} --text FILE",
    )


def _broken(folder: Path, what: str) -> LmassayError:
    return LmassayError("model-files-broken", f"lens {folder}: {what}", f"copy its files again: {CONFIG}, {PARAMETERS}")


def _parameters(folder: Path, config: LensConfig) -> tuple[Tensor, Tensor]:
    """(n_blocks, d_model, d_model) weights and (n_blocks, d_model) biases, zero where a lens has none."""
    state = _state(folder)
    n, d = config.num_hidden_layers, config.d_model
    kinds = ("weight", "bias") if config.bias else ("weight",)
    expected = {f"{i}.{kind}": (d, d) if kind == "weight" else (d,) for i in range(n) for kind in kinds}
    found = {key: tuple(value.shape) for key, value in state.items()}
    if found != expected:
        wrong = sorted(k for k in {*found, *expected} if found.get(k) != expected.get(k))[0]
        raise _broken(folder, f"{wrong} should be {expected.get(wrong, 'absent')}, is {found.get(wrong, 'absent')}")
    weight = torch.stack([state[f"{i}.weight"] for i in range(n)])
    if not config.bias:
        return weight, weight.new_zeros(n, d)
    return weight, torch.stack([state[f"{i}.bias"] for i in range(n)])


def _state(folder: Path) -> dict[str, Tensor]:
    ours, theirs = folder / PARAMETERS, folder / PICKLED
    state: Any
    try:
        # Of a pickled file only tensors and plain containers are taken, so nothing in it can run.
        state = load_file(ours) if ours.is_file() else torch.load(theirs, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, SafetensorError, pickle.UnpicklingError) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise _broken(folder, f"{ours.name if ours.is_file() else theirs.name}: {why}") from error
    if not isinstance(state, dict) or not all(
        isinstance(k, str) and _KEY.fullmatch(k) and isinstance(v, Tensor) and v.is_floating_point()
        for k, v in state.items()
    ):
        raise _broken(folder, "its parameters are no tensors named <i>.weight and <i>.bias")
    return state
