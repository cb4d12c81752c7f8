"""The XRay Score: four signs, compared exactly."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

HALF = Fraction(1, 2)


def xray_score(wins: Iterable[tuple[int, int]], mean_jaccard: Fraction) -> int:
    """Sum of sign(real - control) over the three controls, and sign(mean Jaccard - 1/2).

    Parameters
    ----------
    wins : pairs of int
        For each control, the tasks won internally by the real label and by the control, out of the same tasks.

    Returns
    -------
    int in -4..+4
    """
    return sum(_sign(Fraction(real - control)) for real, control in wins) + _sign(mean_jaccard - HALF)


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)
