"""What each token of one example contributed to a method's score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lmassay.examples import VisibleExample

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Contributions:
    """Shares of a score by token.

    Attributes
    ----------
    values : (n_tokens,) float64
        In the order of `Activations.token_ids`; higher speaks for the positive class (or a larger number).
    score : float
        The example's score.
    rest : float or None
        What of the score belongs to no token, so that ``values.sum() + rest == score``; None where `values` are no
        shares of it.
    what : str
        One line: what the values are.
    notes : tuple of str
        Lines of the method's own, such as the features it used.
    """

    values: Floats
    score: float
    rest: float | None
    what: str
    notes: tuple[str, ...] = ()

    def largest(self, n: int) -> list[int]:
        """Places of the `n` tokens with the largest contribution of either sign, largest first; of equals the first."""
        order = np.argsort(-np.abs(self.values), kind="stable")
        return [int(i) for i in order[:n]]


@runtime_checkable
class Contributing(Protocol):
    """A method that can say what it used."""

    def contributions(self, example: VisibleExample) -> Contributions:
        """Of one example that has activations.

        Raises
        ------
        LmassayError
            ``bad-request`` where it has none, or where no token's state was kept.
        """
        ...
