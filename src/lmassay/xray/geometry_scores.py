"""Figures and Evidence of the phase `geometry`, from its table and without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.evidence import Evidence, no_evidence, paired_evidence
from lmassay.measures.intervals import CHANGE, SHARE, Estimate, exact, mean_estimate, percentile_interval, undefined
from lmassay.xray.geometry_cosines import Clustering, Consistency
from lmassay.xray.geometry_table import PROBE, TITLES, Cells, cells, reason
from lmassay.xray.phase import PhaseScores

if TYPE_CHECKING:
    import polars as pl

    from lmassay.xray.measured import Decided

RATE = "rate"


def summarise(table: pl.DataFrame, decided: Decided, seed: int) -> PhaseScores:
    """All figures of the phase.

    Parameters
    ----------
    table : pl.DataFrame
        A row per cell, as `geometry.measure` makes it.
    decided : Decided
        Not read: residuals need no decidable task.
    seed : int
        Of the intervals.
    """
    parts = (Consistency(table, seed), Clustering(table, seed), Probes(table, seed))
    found = {name: e for part in parts for name, e in part.figures().items()}
    places = sorted({place for part in parts for place in zip(part.first.indices, part.first.depths, strict=True)})
    by_depth = [
        {"depth": depth, "depth_index": index}
        | {name: e.to_dict() for part in parts for name, e in part.at(depth).items()}
        for index, depth in places
    ]
    details: dict[str, Any] = {"by_depth": by_depth}
    for part in parts[:2]:
        details |= part.details()
    return PhaseScores(
        scores={name: found[name] for name in TITLES},
        evidence=tuple(row for part in parts for row in part.evidence()),
        details=details,
        notices=tuple(notice for part in parts[:2] for notice in part.notices()),
    )


class Probes:
    """Probes of the residuals against shuffled labels, the words and the larger class, paired by task."""

    CONTROLS = (
        ("shuffled_label", "probe_nested_shuffled", f"{PROBE}_shuffled"),
        ("tfidf", "tfidf", "geometry_tfidf"),
        ("majority_class", "majority", "geometry_majority"),
    )

    def __init__(self, table: pl.DataFrame, seed: int) -> None:
        self.table = table
        names = ("probe", "probe_shuffled", "probe_nested", "probe_single", "probe_single_shuffled")
        self.first, self.shuffled, self.nested, self.single, self.draws = (cells(table, n, seed) for n in names)
        self.controls = [(control, cells(table, name, seed), figure) for control, name, figure in self.CONTROLS]

    @property
    def _why(self) -> str:
        return reason(self.table, "probe", "no task")

    def figures(self) -> dict[str, Estimate]:
        """Accuracies with their controls, and the published way beside them."""
        found = {PROBE: self._mean(self.nested, 0, TITLES[PROBE])}
        for _, control, figure in self.controls:
            found[figure] = self._mean(control, 0, TITLES[figure])
        title = TITLES["geometry_selectivity"]
        found["geometry_selectivity"] = (
            mean_estimate(
                self.nested.values[0] - self.controls[0][1].values[0],
                self.nested.resampling,
                title=title,
                within=CHANGE,
            )
            if self.nested
            else undefined(title, self._why)
        )
        found[f"{PROBE}_embed"] = self._mean(self.first, 0, TITLES[f"{PROBE}_embed"])
        found[f"{PROBE}_separable"] = self._separable()
        return found | self._single()

    def _mean(self, measure: Cells, at: int, title: str) -> Estimate:
        return measure.mean(measure.values[at], title, self._why, SHARE) if measure else undefined(title, self._why)

    def _separable(self) -> Estimate:
        title = TITLES[f"{PROBE}_separable"]
        if not self.first:
            return undefined(title, self._why)
        parted, n = np.flatnonzero((self.first.values == 1).all(1)), len(self.first.units)
        if not len(parted):
            return undefined(title, "no depth parts them all", n)
        return exact(title, self.first.indices[int(parted[0])], n)

    def _single(self) -> dict[str, Estimate]:
        names = (f"{PROBE}_single", f"{PROBE}_single_shuffled")
        if not self.single:
            why = reason(self.table, "probe_single", self._why)
            return {name: undefined(TITLES[name], why) for name in names}
        best = int(self.single.values.mean(1).argmax())
        peaks = self.draws.values.max(0)
        low, high = percentile_interval(peaks)
        return {
            names[0]: self._mean(self.single, best, TITLES[names[0]]),
            names[1]: Estimate(float(peaks.mean()), low, high, len(self.single.units), TITLES[names[1]], len(peaks)),
        }

    def at(self, depth: str) -> dict[str, Estimate]:
        """Accuracy on held-out templates and on shuffled labels at one depth."""
        if depth not in self.first.depths:
            return {}
        at = self.first.depths.index(depth)
        return {
            "probe": self._mean(self.first, at, "accuracy on held-out templates"),
            "probe_shuffled": self._mean(self.shuffled, at, "the same on labels shuffled by template"),
        }

    def evidence(self) -> list[Evidence]:
        """A row per control."""
        if not self.nested:
            return [no_evidence(PROBE, control, RATE, self._why) for control, _, _ in self.controls]
        signal, resampling = self.nested.values[0], self.nested.resampling
        return [
            paired_evidence(PROBE, control, RATE, signal, found.values[0], resampling)
            for control, found, _ in self.controls
        ]
