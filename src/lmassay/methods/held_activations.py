"""Activations held in memory: for a notebook, for tests, and as the plainest reading of the contract."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.methods.activations import POOLINGS
from lmassay.seeds import derive, generator

Span = tuple[str, int, int]


@dataclass(frozen=True)
class HeldActivations:
    """States of a few examples.

    Parameters
    ----------
    model : str
        Name of the reader.
    held : mapping of int to mapping of int to (n_tokens, width) float32
        By example key, then by block.
    ids : mapping of int to (n_tokens,) int32, optional
        Token ids by key; -1 where none are given.
    parts : mapping of int to list of (kind, start, stop), optional
        Spans by key; one of the kind ``cot`` where none are given.

    Raises
    ------
    LmassayError
        ``bad-request`` when examples differ in blocks or width, or blocks of one example in length.
    """

    model: str
    held: Mapping[int, Mapping[int, NDArray[np.float32]]]
    ids: Mapping[int, NDArray[np.int32]] = field(default_factory=dict)
    parts: Mapping[int, Sequence[Span]] = field(default_factory=dict)
    poolings: tuple[str, ...] = POOLINGS

    def __post_init__(self) -> None:
        shapes = {
            (tuple(of), states.shape[1:]) for of in self.held.values() for states in of.values() if states.ndim == 2
        }
        lengths = [{len(states) for states in of.values()} for of in self.held.values()]
        if len(shapes) > 1 or any(len(n) != 1 for n in lengths) or (self.held and not shapes):
            raise LmassayError(
                "bad-request",
                "states of all examples must be (n_tokens, width) at the same blocks, as many for each block",
                "mend the arrays",
            )

    @property
    def blocks(self) -> tuple[int, ...]:
        """Those of every example."""
        return tuple(next(iter(self.held.values()), {}))

    @property
    def token_blocks(self) -> tuple[int, ...]:
        """All of them."""
        return self.blocks

    @property
    def width(self) -> int:
        """Components of a state."""
        return next((states.shape[1] for of in self.held.values() for states in of.values()), 0)

    @property
    def fingerprint(self) -> str:
        """sha256 over keys, blocks, states and ids."""
        found = hashlib.sha256(f"{self.model}\x1f{self.poolings}".encode())
        for key in sorted(self.held):
            found.update(f"{key} {self.spans(key)}".encode())
            found.update(self.token_ids(key).tobytes())
            for block, states in self.held[key].items():
                found.update(f"{block} {states.shape}".encode())
                found.update(np.ascontiguousarray(states, np.float32).tobytes())
        return found.hexdigest()

    def pooled(self, keys: NDArray[np.int64], block: int, pooling: str) -> NDArray[np.float32]:
        """See `Activations.pooled`."""
        rows = np.full((len(keys), self.width), np.nan, np.float32)
        for row, key in zip(rows, keys.tolist(), strict=True):
            states = self.states(key, block)
            if len(states):
                row[:] = {"last": lambda s: s[-1], "mean": lambda s: s.mean(0), "max": lambda s: s.max(0)}[pooling](
                    states
                )
        return rows

    def lengths(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Activations.lengths`."""
        return np.array([len(next(iter(self.held.get(key, {}).values()), ())) for key in keys.tolist()], np.int64)

    def states(self, key: int, block: int) -> NDArray[np.float32]:
        """See `Activations.states`."""
        of = self.held.get(key)
        return np.zeros((0, self.width), np.float32) if of is None else np.asarray(of[block], np.float32)

    def spans(self, key: int) -> list[Span]:
        """See `Activations.spans`."""
        n = int(self.lengths(np.array([key]))[0])
        return list(self.parts[key]) if key in self.parts else [("cot", 0, n)] if n else []

    def token_ids(self, key: int) -> NDArray[np.int32]:
        """See `Activations.token_ids`."""
        n = int(self.lengths(np.array([key]))[0])
        return np.asarray(self.ids[key], np.int32) if key in self.ids else np.full(n, -1, np.int32)


def word_states(
    examples: Iterable[VisibleExample], *, width: int = 8, blocks: tuple[int, ...] = (0, 1), model: str = "words"
) -> HeldActivations:
    """Activations made of the texts alone: a word is a token, and its state at a block a draw named by the word.

    They stand in for a reader's where a probe is to be checked without a model. An example without a word has none.
    """
    held, ids, parts = {}, {}, {}
    for example in examples:
        words: list[str] = []
        spans: list[Span] = []
        for segment in example.segments:
            found = segment.text.split()
            if found:
                spans.append((segment.kind, len(words), len(words) + len(found)))
                words += found
        if words:
            held[example.key] = {b: np.stack([_word_state(w, b, width) for w in words]) for b in blocks}
            ids[example.key] = np.array([derive(0, w, "word id") % 2**31 for w in words], np.int32)
            parts[example.key] = spans
    if not held:
        # A store of no example still has blocks and a width.
        held = {-1: {b: np.zeros((0, width), np.float32) for b in blocks}}
    return HeldActivations(model, held, ids, parts)


@lru_cache(maxsize=4096)
def _word_state(word: str, block: int, width: int) -> NDArray[np.float32]:
    return generator(0, word, f"state at block {block}").normal(size=width).astype(np.float32)
