"""The XRay Score: four signs, compared exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

HALF = Fraction(1, 2)


def xray_score(real: int, controls: Sequence[int], mean_jaccard: Fraction) -> int:
    """Sum of sign(real - control) over the three controls, and sign(mean Jaccard - 1/2).

    Parameters
    ----------
    real, controls : int
        Tasks won internally, out of the same number of tasks.

    Returns
    -------
    int in -4..+4
    """
    return sum(_sign(Fraction(real - control)) for control in controls) + _sign(mean_jaccard - HALF)


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)
