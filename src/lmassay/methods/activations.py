"""What a probe reads: a reader model's states at the visible tokens of examples, wherever they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError

if TYPE_CHECKING:
    from lmassay.methods.method import Examples

#: How the states of an example's tokens become one: that of the last token, their mean, their maximum by component.
POOLINGS = ("last", "mean", "max")


@runtime_checkable
class Activations(Protocol):
    """States of one reader model; examples are named by `VisibleExample.key`.

    The attributes are properties, so that a store may compute them.
    """

    @property
    def model(self) -> str:
        """Name of the reader."""
        ...

    @property
    def width(self) -> int:
        """Components of a state."""
        ...

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks whose pooled states are there; block i stands for the residual stream after it."""
        ...

    @property
    def poolings(self) -> tuple[str, ...]:
        """Of `POOLINGS`."""
        ...

    @property
    def token_blocks(self) -> tuple[int, ...]:
        """Blocks whose state at every kept token is there, all of them among `blocks`; may be none."""
        ...

    @property
    def fingerprint(self) -> str:
        """sha256 that changes whenever a number could."""
        ...

    def pooled(self, keys: NDArray[np.int64], block: int, pooling: str) -> NDArray[np.float32]:
        """(n, width) pooled states; a row of NaN where the example was skipped or is not there."""
        ...

    def lengths(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) kept tokens; 0 where the example was skipped or is not there."""
        ...

    def states(self, key: int, block: int) -> NDArray[np.float32]:
        """(n_tokens, width) one example's states at its kept tokens, in order; no rows where `lengths` is 0."""
        ...

    def spans(self, key: int) -> list[tuple[str, int, int]]:
        """Kind of segment, first kept token and the one after the last, in the order of the tokens."""
        ...

    def token_ids(self, key: int) -> NDArray[np.int32]:
        """(n_tokens,) the reader's ids of the kept tokens."""
        ...


def keys_of(examples: Examples) -> NDArray[np.int64]:
    """(n,) the keys of any sequence of examples."""
    keys = getattr(examples, "keys", None)
    if isinstance(keys, np.ndarray):
        return keys.astype(np.int64, copy=False)
    return np.array([example.key for example in examples], np.int64)


def given(method: Any) -> Activations:
    """The activations a method was given.

    Raises
    ------
    LmassayError
        ``bad-request`` where it has none.
    """
    found = getattr(method, "activations", None)
    if found is None:
        raise LmassayError(
            "bad-request",
            f"method {method.id} reads activations and was given none",
            "extract them with `lmassay cot activations TASK --model MODEL --out DIR`, "
            "then run with `--activations DIR`",
        )
    store: Activations = found
    return store


def asked_of(there: tuple[Any, ...], asked: Any, what: str, store: Activations) -> tuple[Any, ...]:
    """The blocks or poolings asked for (one, several, or None for all that are there).

    Raises
    ------
    LmassayError
        ``bad-request`` naming what is not there, or that nothing is.
    """
    wanted = there if asked is None else tuple(asked) if isinstance(asked, tuple | list) else (asked,)
    lacking = [w for w in wanted if w not in there]
    if lacking or not wanted:
        has = ", ".join(map(str, there)) or "none"
        missing = f"{what} {lacking[0]!r}" if lacking else f"any {what}"
        raise LmassayError(
            "bad-request",
            f"the activations of {store.model} do not have {missing}; they have {has}",
            "name one of those, or extract again with `lmassay cot activations`",
        )
    return tuple(dict.fromkeys(wanted))
