"""A prompt cache with room to grow in place, whose rows can be joined, dropped and cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel


class Slots(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one block in slots made beforehand.

    Growing by concatenation, as the parent does, copies every row's whole past at every token. A layer with a sliding
    window keeps all of it too: the model's own mask hides what is outside, and rows can then be cut and joined.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: tuple[Tensor, Tensor] | None = None
        self.used = 0

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new tokens' keys and values; returns all of them."""
        stop = self.used + key_states.shape[-2]
        if self.held is None or stop > self.held[0].shape[-2]:
            self.held = (self._grown(0, key_states, stop), self._grown(1, value_states, stop))
            self.is_initialized = True
            self.device = key_states.device
        self.held[0][..., self.used : stop, :] = key_states
        self.held[1][..., self.used : stop, :] = value_states
        self.used = stop
        self._show()
        return self.keys, self.values

    def _grown(self, which: int, like: Tensor, slots: int) -> Tensor:
        grown = like.new_empty((*like.shape[:-2], slots, like.shape[-1]))
        if self.held is not None:
            grown[..., : self.used, :] = self.held[which][..., : self.used, :]
        return grown

    def put(self, keys: Tensor, values: Tensor, used: int) -> None:
        """Take over slots of which the first `used` are filled."""
        self.held, self.used, self.is_initialized, self.device = (keys, values), used, True, keys.device
        self._show()

    def cut(self, used: int) -> None:
        """Forget all but the first `used` slots."""
        self.used = used
        self._show()

    def _show(self) -> None:
        assert self.held is not None
        self.keys, self.values = (part[..., : self.used, :] for part in self.held)


@dataclass(frozen=True)
class Past:
    """One row's past, to be put into a cache.

    Attributes
    ----------
    cache : Cache
        Of `Slots`.
    row : int
    start, stop : int
        Its slots there.
    """

    cache: Any
    row: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def new_cache(model: LanguageModel) -> Any:
    """An empty cache."""
    return Cache(layers=[Slots() for _ in range(model.n_blocks)])


def cut(cache: Any, used: int) -> None:
    """Forget all but the first `used` slots of every layer."""
    for layer in cache.layers:
        layer.cut(used)


def joined(model: LanguageModel, pasts: Sequence[Past], room: int, *, release: Any = None) -> Any:
    """A new cache whose rows are copies of the given pasts, ending at the same slot, with `room` more slots.

    Aligned at their ends, rows stay free of gaps as they grow, which distances and sliding windows need.

    Parameters
    ----------
    release : Cache, optional
        Emptied layer by layer as it is copied, so that two whole caches are never held.
    """
    width = max(map(len, pasts))
    cache = new_cache(model)
    for index, layer in enumerate(cache.layers):
        sources = [past.cache.layers[index].held for past in pasts]
        made = []
        for which in (0, 1):
            like = sources[0][which]
            slots = like.new_empty((len(pasts), like.shape[1], width + room, like.shape[-1]))
            for row, (past, source) in enumerate(zip(pasts, sources, strict=True)):
                # What is masked must still be a number.
                slots[row, :, : width - len(past)] = 0
                slots[row, :, width - len(past) : width] = source[which][past.row, :, past.start : past.stop]
            made.append(slots)
        layer.put(made[0], made[1], width)
        if release is not None:
            release.layers[index].held = None
    return cache


def bytes_per_token(model: LanguageModel, cache: Any) -> int:
    """Bytes that one token of one row takes in a filled cache."""
    return sum(part.shape[1] * part.shape[-1] * part.element_size() for layer in cache.layers for part in layer.held)


def free_bytes(device: torch.device) -> int:
    """Memory a cache may take: half of what a card has free, or a quarter of the machine's available memory."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024 // 4
    except (OSError, KeyError, ValueError):
        return 2 << 30
