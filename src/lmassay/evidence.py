"""Evidence: a signal held against one of its controls, with an interval, a p-value and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lmassay.measures.intervals import CHANGE, CHANGES, FEW, FEWEST, Range, Resampling, interval, percentile_interval

ALPHA = 0.05
#: Differences too small to matter, by metric: what `fails` must stay under.
MARGINS = {"rate": 0.05, "psi": 0.05, "g_mean2": 0.05, "auroc": 0.05, "r2": 0.02, "kl": 0.02, "cosine": 0.05}

#: Between which a difference of two such figures lies, where they are bounded.
RANGES: dict[str, Range] = {"rate": CHANGE, "psi": CHANGES, "cosine": CHANGES}

#: Sums of the same numbers in another order differ in their last bits; no figure here resolves less than this.
ZERO = 1e-12

SURVIVES, FAILS, UNDECIDED = "survives", "fails", "undecided"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One row of the table every report opens with.

    Attributes
    ----------
    difference : float or None
        Signal minus control, oriented so that higher is better for the signal.
    low, high : float or None
        95 % interval of the difference.
    p, p_holm : float or None
        Two-sided bootstrap p-value, and Holm's over the rows of the run that share the signal.
    margin : float
        Difference under which the signal counts as no better than its control.
    verdict : str
        ``survives``, ``fails``, ``undecided``, or ``undecided (<reason>)``.
    """

    signal: str
    control: str
    metric: str
    signal_value: float | None
    control_value: float | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    n: int
    n_clusters: int
    margin: float
    verdict: str = UNDECIDED

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


def no_evidence(signal: str, control: str, metric: str, reason: str) -> Evidence:
    """The row of a control that could not be measured: undecided, with the reason."""
    empty = (None,) * 7
    return Evidence(signal, control, metric, *empty, 0, 0, MARGINS[metric], f"{UNDECIDED} ({reason})")


def paired_evidence(
    signal: str,
    control: str,
    metric: str,
    signal_values: ArrayLike,
    control_values: ArrayLike,
    resampling: Resampling,
) -> Evidence:
    """Compare two measurements of the same units; the verdict still waits for `judged`.

    Parameters
    ----------
    signal_values, control_values : (n,) float
        Paired by unit, in the order of the resampling's.
    """
    first, second = np.asarray(signal_values, np.float64), np.asarray(control_values, np.float64)
    if not len(first):
        return no_evidence(signal, control, metric, "no data")
    difference = first - second
    low, high, _ = interval(difference, resampling, RANGES.get(metric))
    p = bootstrap_p(resampling.means(difference)) if resampling.n_clusters >= FEWEST else None
    return Evidence(
        signal=signal,
        control=control,
        metric=metric,
        signal_value=float(first.mean()),
        control_value=float(second.mean()),
        difference=float(difference.mean()),
        low=low,
        high=high,
        p=p,
        p_holm=None,
        n=len(difference),
        n_clusters=resampling.n_clusters,
        margin=MARGINS[metric],
    )


def unpaired_evidence(
    signal: str,
    control: str,
    metric: str,
    signal_values: ArrayLike,
    control_values: ArrayLike,
    resampling: Resampling,
) -> Evidence:
    """Compare two measurements that were not taken on the same units, such as the tasks each condition lost.

    Both means are taken anew in every resample of whole clusters; resamples in which one has no unit are left out.

    Parameters
    ----------
    signal_values, control_values : (n,) float
        In the order of the resampling's units; NaN where a unit was not measured.
    """
    first, second = np.asarray(signal_values, np.float64), np.asarray(control_values, np.float64)
    have = [~np.isnan(values) for values in (first, second)]
    if not have[0].any() or not have[1].any():
        return no_evidence(signal, control, metric, "no data")
    n_clusters = min(resampling.n_clusters_of(there) for there in have)
    means = [float(v[there].mean()) for v, there in zip((first, second), have, strict=True)]
    low = high = p = None
    if n_clusters >= FEW:
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = [
                resampling.means(np.nan_to_num(v)) / resampling.means(there)
                for v, there in zip((first, second), have, strict=True)
            ]
        difference = drawn[0] - drawn[1]
        difference = difference[np.isfinite(difference)]
        low, high = percentile_interval(difference)
        p = bootstrap_p(difference)
    return Evidence(
        signal=signal,
        control=control,
        metric=metric,
        signal_value=means[0],
        control_value=means[1],
        difference=means[0] - means[1],
        low=low,
        high=high,
        p=p,
        p_holm=None,
        n=int((have[0] | have[1]).sum()),
        n_clusters=n_clusters,
        margin=MARGINS[metric],
    )


def bootstrap_p(draws: ArrayLike) -> float:
    """Two-sided: min(1, 2 min(1 + #{d* <= 0}, 1 + #{d* >= 0}) / (B + 1))."""
    drawn = np.asarray(draws)
    tail = min(1 + int((drawn <= ZERO).sum()), 1 + int((drawn >= -ZERO).sum()))
    return min(1.0, 2 * tail / (len(drawn) + 1))


def judged(rows: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """The rows with Holm's p over those that share a signal, and their verdicts."""
    adjusted: dict[int, float] = {}
    for signal in {row.signal for row in rows}:
        mine = sorted(
            (i for i, r in enumerate(rows) if r.signal == signal and r.p is not None), key=lambda i: _p(rows[i])
        )
        highest = 0.0
        for rank, index in enumerate(mine):
            highest = max(highest, min(1.0, (len(mine) - rank) * _p(rows[index])))
            adjusted[index] = highest
    return tuple(
        row if row.difference is None else replace(row, p_holm=adjusted.get(i), verdict=_verdict(row, adjusted.get(i)))
        for i, row in enumerate(rows)
    )


def _p(row: Evidence) -> float:
    assert row.p is not None
    return row.p


def _verdict(row: Evidence, p_holm: float | None) -> str:
    if row.n_clusters < FEW:
        return f"{UNDECIDED} (few_clusters)"
    assert p_holm is not None
    assert row.low is not None
    assert row.high is not None
    if p_holm < ALPHA and row.low > ZERO:
        return SURVIVES
    return FAILS if row.high < row.margin else UNDECIDED


def survives_its_controls(rows: Sequence[Evidence]) -> bool | None:
    """Whether every control's row survives; None where nothing could be measured in any."""
    if all(row.difference is None for row in rows):
        return None
    return all(row.verdict == SURVIVES for row in rows)
