"""How often a kind of model is flagged, with exact limits, and whether the goal is met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lmassay.evidence import ALPHA, SURVIVES
from lmassay.measures.intervals import LEVEL

if TYPE_CHECKING:
    from lmassay.xray.calibrate.measured import ModelResult

#: What must be found, and what may be found where there is nothing.
DETECTED, FLAGGED = 0.95, 0.05
#: Figures the goal is about.
GOAL_FIGURES = ("psi_excess_p", "survives")
#: What a model is flagged by.
FIGURES: dict[str, tuple[Callable[[ModelResult], bool], str]] = {
    "psi_excess_p": (lambda m: m.psi_excess_p < ALPHA, "p of psi_excess below .05"),
    "survives": (lambda m: m.survives, "survives its controls (every row of real_win)"),
    "psi_row": (lambda m: m.rows[PSI_ROW] == SURVIVES, "the psi_bar row survives"),
    "xray_score": (lambda m: m.xray_score > 0, "XRay Score above 0"),
    "psi": (lambda m: m.psi > 0, "mean PSI above 0"),
}
PSI_ROW = "expectation under no skill"


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its exact (Clopper-Pearson) 95 % limits.

    Attributes
    ----------
    flagged, n : int
    value, low, high : float or None
        None where there is no model.
    """

    flagged: int
    n: int
    value: float | None
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


def rate(flags: Sequence[bool]) -> Rate:
    """The share of true ones."""
    n, k = len(flags), sum(flags)
    if not n:
        return Rate(0, 0, None, None, None)
    return Rate(k, n, k / n, *clopper_pearson(k, n))


def clopper_pearson(k: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Exact limits of a share: the shares under which k or more, and k or fewer, of n have chance (1 - level) / 2."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, tail))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - tail))
    return low, high


def rates_of(models: Sequence[ModelResult]) -> dict[str, Rate]:
    """Every figure's rate over the models."""
    return {name: rate([bool(flag(m)) for m in models]) for name, (flag, _) in FIGURES.items()}


def goal(positives: dict[str, Rate], negatives: dict[str, Rate]) -> dict[str, Any]:
    """Whether enough positives are found and few enough negatives are, by each of `GOAL_FIGURES`.

    A p-value that is exact flags 5 % of the negatives, so that in about half of all calibrations the counted share lies
    above .05 for no fault: missed is a share whose lower limit is above it. Within, the share counts as ``above, within
    limits``. Positives have no such excuse.
    """
    found: dict[str, Any] = {}
    for figure in GOAL_FIGURES:
        yes, no = positives[figure], negatives[figure]
        if yes.value is not None:
            found[f"{figure}: positives detected"] = _stated(yes, "met" if yes.value >= DETECTED else "missed")
        if no.value is not None and no.low is not None:
            above = "missed" if no.low > FLAGGED else "above, within limits"
            found[f"{figure}: negatives flagged"] = _stated(no, "met" if no.value <= FLAGGED else above)
    return found


def _stated(share: Rate, verdict: str) -> dict[str, Any]:
    return {**share.to_dict(), "verdict": verdict}
