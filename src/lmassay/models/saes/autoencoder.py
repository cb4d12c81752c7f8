"""A sparse autoencoder as it is used: states in, sparse features out, and back; whatever file it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Values of features held at once: 32 MB, whatever the number of features.
CHUNK = 1 << 23

NONE, LAYER_NORM, CONSTANT_NORM = "none", "layer_norm", "constant_norm_rescale"
NORMALISATIONS = (NONE, LAYER_NORM, CONSTANT_NORM)
_EPSILON = 1e-5


class Activation(Protocol):
    """What becomes of the pre-activations."""

    kind: ClassVar[str]

    def __call__(self, pre: Tensor) -> Tensor:
        """(n, n_features) pre-activations -> (n, n_features) features, none below 0."""
        ...

    def record(self) -> dict[str, Any]:
        """Its parameters, tensors among them."""
        ...


@dataclass(frozen=True, eq=False)
class Relu:
    """What is above 0."""

    kind: ClassVar[str] = "relu"

    def __call__(self, pre: Tensor) -> Tensor:
        """See `Activation`."""
        return pre.relu()

    def record(self) -> dict[str, Any]:
        """See `Activation`."""
        return {}


@dataclass(frozen=True, eq=False)
class JumpRelu:
    """What is above 0 and above its feature's threshold, unchanged.

    Attributes
    ----------
    threshold : (n_features,)
    """

    threshold: Tensor
    kind: ClassVar[str] = "jumprelu"

    def __call__(self, pre: Tensor) -> Tensor:
        """See `Activation`."""
        return pre.relu() * (pre > self.threshold)

    def record(self) -> dict[str, Any]:
        """See `Activation`."""
        return {"threshold": self.threshold}


@dataclass(frozen=True, eq=False)
class TopK:
    """The k largest of a token, where they are above 0."""

    k: int
    kind: ClassVar[str] = "topk"

    def __call__(self, pre: Tensor) -> Tensor:
        """See `Activation`."""
        top = pre.topk(min(self.k, pre.shape[-1]), dim=-1, sorted=False)
        return torch.zeros_like(pre).scatter_(-1, top.indices, top.values.relu())

    def record(self) -> dict[str, Any]:
        """See `Activation`."""
        return {"k": self.k}


@dataclass(frozen=True, eq=False)
class GroupMax:
    """The largest of each of k groups of neighbouring features, where it is above 0."""

    k: int
    kind: ClassVar[str] = "groupmax"

    def __call__(self, pre: Tensor) -> Tensor:
        """See `Activation`."""
        groups = pre.reshape(*pre.shape[:-1], self.k, -1)
        best = groups.max(dim=-1, keepdim=True)
        return torch.zeros_like(groups).scatter_(-1, best.indices, best.values.relu()).flatten(-2)

    def record(self) -> dict[str, Any]:
        """See `Activation`."""
        return {"k": self.k}


@dataclass(frozen=True, eq=False)
class Gated:
    """A gate decides whether a feature is on, and a rescaled copy of the same product how much.

    Attributes
    ----------
    scale : (n_features,)
        Factor of the magnitudes, always positive.
    gate_bias, magnitude_bias : (n_features,)
    """

    scale: Tensor
    gate_bias: Tensor
    magnitude_bias: Tensor
    kind: ClassVar[str] = "gated"

    def __call__(self, pre: Tensor) -> Tensor:
        """See `Activation`."""
        return (pre * self.scale + self.magnitude_bias).relu() * (pre + self.gate_bias > 0)

    def record(self) -> dict[str, Any]:
        """See `Activation`."""
        return {"scale": self.scale, "gate_bias": self.gate_bias, "magnitude_bias": self.magnitude_bias}


@dataclass(frozen=True, slots=True)
class Stated:
    """What a file says about where its autoencoder belongs; None where it says nothing.

    Attributes
    ----------
    model : str or None
        Name of the model it was trained on.
    hook : str or None
        As written in the file, or told from the folder's name.
    block : int or None
        The block whose output it reads.
    bos : bool or None
        Whether the texts it was trained on began with the tokenizer's first token.
    notes : tuple of str
        What else a reader must know.
    """

    model: str | None = None
    hook: str | None = None
    block: int | None = None
    bos: bool | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SparseAutoencoder:
    """Encoder and decoder in float32, in one layout.

    Attributes
    ----------
    name : str
        File or folder.
    layout : str
        Which of the known formats it was read from.
    w_enc : (width, n_features)
    b_enc : (n_features,)
    w_dec : (n_features, width)
    b_dec : (width,)
    subtracts_b_dec : bool
        Whether the decoder's bias is taken from a state before it is encoded.
    normalisation : str
        What is done to a state first, and undone after decoding: ``none``, ``layer_norm`` (mean 0, standard
        deviation 1) or ``constant_norm_rescale`` (length √width).
    """

    name: str
    layout: str
    w_enc: Tensor
    b_enc: Tensor
    w_dec: Tensor
    b_dec: Tensor
    activation: Activation
    subtracts_b_dec: bool
    normalisation: str
    stated: Stated

    @property
    def width(self) -> int:
        """Of the states it reads."""
        return int(self.w_enc.shape[0])

    @property
    def n_features(self) -> int:
        """Features in all."""
        return int(self.w_enc.shape[1])

    @property
    def shape(self) -> str:
        """For messages: ``576 → 4,096``."""
        return f"{self.width:,} → {self.n_features:,}"

    @torch.no_grad()
    def encode(self, states: NDArray[Any] | Tensor) -> Tensor:
        """(n, width) states -> (n, n_features) features; for many states see `encoded`."""
        ready, _, _ = self._normalised(_rows(states))
        if self.subtracts_b_dec:
            ready = ready - self.b_dec
        return self.activation(ready @ self.w_enc + self.b_enc)

    @torch.no_grad()
    def decode(self, features: Tensor, states: NDArray[Any] | Tensor) -> Tensor:
        """(n, n_features) features of (n, width) states -> (n, width); the states' own mean and length come back."""
        _, mean, scale = self._normalised(_rows(states))
        return (features @ self.w_dec + self.b_dec) * scale + mean

    def encoded(self, states: NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
        """(n, width) states -> features of some rows at a time, so that memory does not grow with n."""
        step = max(1, CHUNK // self.n_features)
        for start in range(0, len(states), step):
            rows = slice(start, min(start + step, len(states)))
            yield rows, self.encode(states[rows])

    def _normalised(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States as the encoder wants them, with what was taken off: (n, 1) mean and (n, 1) scale."""
        mean, scale = states.new_zeros(len(states), 1), states.new_ones(len(states), 1)
        if self.normalisation == LAYER_NORM:
            mean = states.mean(-1, keepdim=True)
            centred = states - mean
            scale = centred.std(-1, keepdim=True)
            # The epsilon stands in the way in and not in the way out, as in sae-lens.
            return centred / (scale + _EPSILON), mean, scale
        if self.normalisation == CONSTANT_NORM:
            scale = states.norm(dim=-1, keepdim=True) / self.width**0.5
            return states / scale.clamp_min(torch.finfo(scale.dtype).tiny), mean, scale
        return states, mean, scale

    @property
    def sha256(self) -> str:
        """Of everything that decides a number; its name and what it states are not among it."""
        digest = hashlib.sha256()
        parameters = self.activation.record()
        plain = {k: v for k, v in parameters.items() if not isinstance(v, Tensor)}
        record = [self.activation.kind, plain, self.subtracts_b_dec, self.normalisation]
        digest.update(json.dumps(record, sort_keys=True).encode())
        tensors = {"w_enc": self.w_enc, "b_enc": self.b_enc, "w_dec": self.w_dec, "b_dec": self.b_dec}
        tensors |= {k: v for k, v in parameters.items() if isinstance(v, Tensor)}
        for key, tensor in sorted(tensors.items()):
            digest.update(f"\x1f{key}\x1f{tuple(tensor.shape)}\x1f".encode())
            digest.update(tensor.contiguous().numpy().astype("<f4").data)
        return digest.hexdigest()


def _rows(states: NDArray[Any] | Tensor) -> Tensor:
    if isinstance(states, Tensor):
        return states.float()
    # A copy, for a state may lie in a file mapped for reading.
    return torch.from_numpy(np.array(states, np.float32))
