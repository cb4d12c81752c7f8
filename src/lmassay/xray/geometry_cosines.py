"""Cosine figures of the phase `geometry`: wordings against random groups, families against shuffled ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.evidence import Evidence, no_evidence, paired_evidence
from lmassay.measures.intervals import Estimate, exact, mean_estimate, undefined
from lmassay.xray.clustering import Neighbours, gap_over_tasks, ratio_over_tasks
from lmassay.xray.geometry_table import CONSISTENCY, GAP, TITLES, Cells, cells, over_blocks, reason

if TYPE_CHECKING:
    import polars as pl

    from lmassay.xray.scored import Floats

NO_GROUPS = "no paraphrase group was run"
NO_RATIO = "no positive cosine between families"
COSINE = "cosine"


class Consistency:
    """Wordings of one question against random groups of other prompts, paired by group."""

    CONTROLS = (("random_group", f"{CONSISTENCY}_random", "random"), ("same_family", f"{CONSISTENCY}_family", "family"))

    def __init__(self, table: pl.DataFrame, seed: int) -> None:
        self.table = table
        self.by_name = {
            f"consistency{control}{suffix}": cells(table, f"consistency{control}{suffix}", seed)
            for control in ("", "_random", "_family")
            for suffix in ("", "_centred")
        }
        self.first, self.random = self.by_name["consistency"], self.by_name["consistency_random"]
        self.centred = self.by_name["consistency_centred"]

    def figures(self) -> dict[str, Estimate]:
        """Peak with its control, and the means over block outputs."""
        names = [name for name in TITLES if name.startswith("geometry_consistency")]
        if not self.first:
            return {name: undefined(TITLES[name], NO_GROUPS) for name in names}
        found = {}
        at = _peak(self.first.values, self.first.blocks)
        title = TITLES["geometry_consistency_depth"]
        if at is None:
            why = reason(self.table, "consistency", NO_GROUPS)
            found = {name: undefined(TITLES[name], why) for name in names[:3]}
        else:
            found[names[0]] = self._mean("consistency", at, TITLES[names[0]])
            found[names[1]] = exact(title, self.first.indices[at], int(np.isfinite(self.first.values[at]).sum()))
            found[names[2]] = self._mean("consistency_random", at, TITLES[names[2]])
        for name, measure in zip(names[3:], ("", "_random", "_family"), strict=True):
            group = self.by_name[f"consistency{measure}_centred"]
            keep, (values,) = over_blocks(group)
            found[name] = (
                mean_estimate(values, group.resampled(keep), title=TITLES[name])
                if keep.any()
                else undefined(TITLES[name], reason(self.table, f"consistency{measure}_centred", NO_GROUPS))
            )
        return found

    def _mean(self, measure: str, at: int, title: str) -> Estimate:
        group = self.by_name[measure]
        return group.mean(group.values[at], title, reason(self.table, measure, NO_GROUPS))

    def at(self, depth: str) -> dict[str, Estimate]:
        """Means over groups at one depth, raw and centred, with both controls."""
        if depth not in self.first.depths:
            return {}
        at = self.first.depths.index(depth)
        return {name: self._mean(name, at, name.replace("_", " ")) for name in self.by_name}

    def evidence(self) -> list[Evidence]:
        """A row per control."""
        rows = []
        for control, _, name in self.CONTROLS:
            other = self.by_name[f"consistency_{name}_centred"]
            if not self.first:
                rows.append(no_evidence(CONSISTENCY, control, COSINE, NO_GROUPS))
                continue
            keep, (signal, against) = over_blocks(self.centred, other)
            if keep.any():
                rows.append(
                    paired_evidence(CONSISTENCY, control, COSINE, signal, against, self.centred.resampled(keep))
                )
                continue
            why = reason(
                self.table, f"consistency_{name}_centred", reason(self.table, "consistency_centred", NO_GROUPS)
            )
            rows.append(no_evidence(CONSISTENCY, control, COSINE, why))
        return rows

    def details(self) -> dict[str, Any]:
        """A row per group: its own peak, and its centred mean."""
        rows = []
        for g, (name, family) in enumerate(zip(self.first.units, self.first.family, strict=True)):
            column = self.first.values[:, [g]]
            at = _peak(column, self.first.blocks)
            centred = self.centred.values[self.centred.blocks, g]
            row = {"group": name, "family": family, "n_wordings": int(self.first.n[0, g])}
            row |= {"peak": None, "peak_depth": None, "centred": None, "status": "ok"}
            if at is None:
                row["status"] = f"undefined: {self._why(name)}"
            else:
                row |= {"peak": float(column[at, 0]), "peak_depth": self.first.depths[at]}
            if np.isfinite(centred).any():
                row["centred"] = float(np.nanmean(centred))
            rows.append(row)
        return {"groups": rows}

    def _why(self, group: str) -> str:
        import polars as pl

        return reason(self.table.filter(pl.col("unit") == group), "consistency", NO_GROUPS)

    def notices(self) -> list[str]:
        """How many groups have no pair of wordings."""
        n = sum(row["peak"] is None for row in self.details()["groups"])
        return [f"geometry: {n} of {len(self.first.units)} paraphrase groups have no consistency"] if n else []


class Clustering:
    """Families against shuffled families, paired by task."""

    def __init__(self, table: pl.DataFrame, seed: int) -> None:
        self.table = table
        names = ("within", "between", "within_centred", "between_centred", "gap_shuffled")
        within, between, within_centred, between_centred, self.shuffled = (cells(table, name, seed) for name in names)
        self.first = within
        self.raw = _by_depth(within, between)
        self.ratios = [ratio_over_tasks(found) for found in self.raw]
        self.gaps = [gap_over_tasks(found) for found in _by_depth(within_centred, between_centred)]
        both = [
            (gap, control)
            for gap, control, block in zip(self.gaps, self.shuffled.values, self.first.blocks, strict=True)
            if block and gap is not None and np.isfinite(control).all()
        ]
        self.pairs = np.mean(both, axis=0) if both else None
        blocks = [g for g, block in zip(self.gaps, self.first.blocks, strict=True) if block and g is not None]
        self.gap = np.mean(blocks, axis=0) if blocks else None

    def _why(self, suffix: str = "") -> str:
        return reason(self.table, f"within{suffix}", reason(self.table, f"between{suffix}", NO_RATIO))

    def _estimate(self, values: Floats | None, title: str, why: str) -> Estimate:
        return undefined(title, why) if values is None else mean_estimate(values, self.first.resampling, title=title)

    def _best(self) -> int | None:
        means = np.array([np.nan if r is None else r.mean() for r in self.ratios])
        return None if not np.isfinite(means).any() else int(np.nanargmax(means))

    def figures(self) -> dict[str, Estimate]:
        """Best depth and its ratio; the gap over block outputs and its control."""
        best = self._best()
        title = TITLES["geometry_clustering_depth"]
        n = len(self.first.units)
        return {
            "geometry_clustering": self._estimate(
                None if best is None else self.ratios[best], TITLES["geometry_clustering"], self._why()
            ),
            "geometry_clustering_depth": (
                undefined(title, self._why()) if best is None else exact(title, self.first.indices[best], n)
            ),
            GAP: self._estimate(self.gap, TITLES[GAP], self._why("_centred")),
            f"{GAP}_shuffled": self._estimate(
                None if self.pairs is None else self.pairs[1],
                TITLES[f"{GAP}_shuffled"],
                reason(self.table, "gap_shuffled", self._why("_centred")),
            ),
        }

    def at(self, depth: str) -> dict[str, Estimate]:
        """Ratio, and gap with its control, at one depth."""
        at = self.first.depths.index(depth)
        control = self.shuffled.values[at]
        return {
            "clustering": self._estimate(self.ratios[at], "within-family over between-family cosine", self._why()),
            "clustering_gap": self._estimate(self.gaps[at], "within minus between, centred", self._why("_centred")),
            "clustering_gap_shuffled": self.shuffled.mean(
                control,
                "the same, families shuffled by template",
                reason(self.table, "gap_shuffled", self._why("_centred")),
            ),
        }

    def evidence(self) -> list[Evidence]:
        """One row."""
        if self.pairs is None:
            why = (
                self._why("_centred") if self.gap is None else reason(self.table, "gap_shuffled", self._why("_centred"))
            )
            return [no_evidence(GAP, "shuffled_family", COSINE, why)]
        signal, control = self.pairs
        return [paired_evidence(GAP, "shuffled_family", COSINE, signal, control, self.first.resampling)]

    def details(self) -> dict[str, Any]:
        """A row per family at the depth of the best ratio, or the last where there is none."""
        best = self._best()
        at = len(self.raw) - 1 if best is None else best
        found = self.raw[at]
        rows = []
        for family in sorted(set(self.first.family)):
            mine = np.array([f == family for f in self.first.family])
            rows.append(
                {
                    "family": family,
                    "depth": self.first.depths[at],
                    "n": int(mine.sum()),
                    "within": _pooled(found.within[mine], found.n_within[mine]),
                    "between": _pooled(found.between[mine], found.n_between[mine]),
                    "status": "ok" if found.n_within[mine].any() else "undefined: the family has one task",
                }
            )
        return {"families": rows}

    def notices(self) -> list[str]:
        """Families without a pair."""
        alone = [row["family"] for row in self.details()["families"] if row["within"] is None]
        return [f"geometry: no pair of tasks within {', '.join(alone)}"] if alone else []


def _by_depth(within: Cells, between: Cells) -> list[Neighbours]:
    return [
        Neighbours(w, b, n.astype(np.int64), m.astype(np.int64))
        for w, b, n, m in zip(within.values, between.values, within.n, between.n, strict=True)
    ]


def _peak(values: Floats, blocks: Any) -> int | None:
    """The block output of the highest mean over units that have a value; the earliest of equals."""
    best: tuple[float, int] | None = None
    for at in np.flatnonzero(blocks).tolist():
        known = values[at][np.isfinite(values[at])]
        if len(known) and (best is None or known.mean() > best[0]):
            best = float(known.mean()), at
    return None if best is None else best[1]


def _pooled(means: Floats, counts: Any) -> float | None:
    """Mean over pairs."""
    total = counts.sum()
    return float((np.where(counts > 0, np.nan_to_num(means), 0.0) * counts).sum() / total) if total else None
