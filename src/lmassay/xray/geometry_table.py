"""The table of the phase `geometry`: its columns, its cells read back as arrays, and what figures there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.measures.intervals import Estimate, Range, Resampling, mean_estimate, undefined
from lmassay.seeds import generator

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from lmassay.xray.scored import Floats

#: What a row without a unit of its own is about; it only bears a status.
BATTERY = "battery"

PROBE, CONSISTENCY, GAP = "geometry_probe", "geometry_consistency_centred", "geometry_clustering_gap"

TITLES = {
    "geometry_consistency": "mean pairwise cosine of a group's wordings, peak over block outputs (a maximum flatters)",
    "geometry_consistency_depth": "index of the depth of that peak",
    "geometry_consistency_random": "the same cosine over random groups of other prompts, at that depth",
    CONSISTENCY: "the same without the mean residual of the other prompts, mean over block outputs",
    f"{CONSISTENCY}_random": "the same over random groups of other prompts",
    f"{CONSISTENCY}_family": "the same over other prompts of the group's family",
    "geometry_clustering": "within-family over between-family cosine, best depth (a maximum flatters)",
    "geometry_clustering_depth": "index of that depth",
    GAP: "within-family minus between-family cosine without that mean, mean over block outputs",
    f"{GAP}_shuffled": "the same, families shuffled by template",
    PROBE: "logic against compute, accuracy on held-out templates, depth chosen inside the training folds",
    f"{PROBE}_shuffled": "the same on labels shuffled by template",
    "geometry_selectivity": "geometry_probe minus geometry_probe_shuffled",
    "geometry_tfidf": "words and word pairs of the prompt on the same folds, strength chosen inside them",
    "geometry_majority": "the larger class of the training folds",
    f"{PROBE}_embed": "accuracy on held-out templates at embed",
    f"{PROBE}_separable": "index of the first depth at which every held-out task is right",
    f"{PROBE}_single": "one 70/30 split, templates not held out, best depth (a maximum flatters)",
    f"{PROBE}_single_shuffled": "the same on labels shuffled by template, best depth of each draw; range of the draws",
}


def cell(measure: str, value: Any, n: int, reason: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """A row; a value that is no number is left out, and the row says why."""
    number = float(value)
    known = bool(np.isfinite(number))
    return {
        "measure": measure,
        **about,
        "value": number if known else None,
        "n": n,
        "status": None if known else reason,
    }


def frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """The rows as a table; what a row does not have is empty."""
    import polars as pl

    schema = {
        "measure": pl.String,
        "depth": pl.String,
        "depth_index": pl.Int32,
        "kind": pl.String,
        "unit": pl.String,
        "family": pl.String,
        "template": pl.String,
        "set": pl.String,
        "value": pl.Float64,
        "n": pl.Int32,
        "status": pl.String,
    }
    return pl.DataFrame(rows, schema=schema)


@dataclass(frozen=True)
class Cells:
    """One measure of the table; no depths and no units where it was not taken.

    Attributes
    ----------
    depths : tuple of str
        Distinct ones, in order: ``final`` repeats the last block. One empty name where the measure is of no depth.
    indices : tuple of int
        Their places.
    units : tuple of str
        Tasks, groups or draws, by name.
    family : tuple of str
        Of each unit.
    values, n : (n_depths, n_units) float64
        NaN where undefined; what a value is the mean of.
    resampling : Resampling
        Of the units: of tasks by template and the sets in it, of groups one by one.
    """

    depths: tuple[str, ...]
    indices: tuple[int, ...]
    units: tuple[str, ...]
    family: tuple[str, ...]
    values: Floats
    n: Floats
    clusters: tuple[str, ...]
    sets: tuple[str, ...] | None
    seed: int
    resampling: Resampling

    def __bool__(self) -> bool:
        return bool(self.units)

    @property
    def blocks(self) -> NDArray[np.bool_]:
        """(n_depths,) which are block outputs."""
        return np.array([d.startswith("block.") for d in self.depths], np.bool_)

    def resampled(self, keep: NDArray[np.bool_]) -> Resampling:
        """Resamples of some units; drawn anew only where some are left out."""
        if keep.all():
            return self.resampling
        at = np.flatnonzero(keep).tolist()
        sets = None if self.sets is None else [self.sets[i] for i in at]
        return _resampling([self.clusters[i] for i in at], sets, self.seed)

    def mean(self, values: Floats, title: str, reason: str, within: Range | None = None) -> Estimate:
        """Mean of (n_units,) values over the units that have one."""
        keep = np.isfinite(values)
        if not keep.any():
            return undefined(title, reason)
        return mean_estimate(values[keep], self.resampled(keep), title=title, within=within)


def _resampling(clusters: Sequence[str], sets: Sequence[str] | None, seed: int) -> Resampling:
    return Resampling(clusters, generator(seed, "geometry", "interval"), sets=sets)


def cells(table: pl.DataFrame, measure: str, seed: int) -> Cells:
    """The cells of a measure, depths in order and units by name.

    Parameters
    ----------
    seed : int
        Of the intervals.
    """
    import polars as pl

    rows = (
        table.filter(pl.col("measure") == measure, pl.col("kind") != BATTERY)
        .filter(pl.col("depth").fill_null("") != "final")
        .sort("depth_index", "unit", nulls_last=False)
    )
    # What a probe's depth was chosen to be differs by task, and is no axis.
    if measure.endswith("_nested"):
        rows = rows.with_columns(depth=pl.lit(None, pl.String), depth_index=pl.lit(None, pl.Int32)).sort("unit")
    depths = rows.select(pl.col("depth").fill_null(""), pl.col("depth_index").fill_null(-1)).unique(maintain_order=True)
    units = rows.unique("unit").sort("unit")
    shape = depths.height, units.height
    values, n = (rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(shape) for name in ("value", "n"))
    # A group or a draw is its own cluster.
    clusters = tuple(units.select(pl.coalesce("template", "unit")).to_series())
    sets = None
    if units["set"].null_count() < units.height:
        sets = tuple(units.select(pl.coalesce("set", "unit")).to_series())
    return Cells(
        depths=tuple(depths["depth"]),
        indices=tuple(depths["depth_index"]),
        units=tuple(units["unit"]),
        family=tuple(units["family"].fill_null("")),
        values=values,
        n=n,
        clusters=clusters,
        sets=sets,
        seed=seed,
        resampling=_resampling(clusters, sets, seed),
    )


def reason(table: pl.DataFrame, measure: str, otherwise: str) -> str:
    """Why a measure is undefined: what most of its rows say."""
    import polars as pl

    found = table.filter(pl.col("measure") == measure, pl.col("status").is_not_null())["status"]
    return str(found.mode().sort()[0]) if len(found) else otherwise


def over_blocks(*measures: Cells) -> tuple[NDArray[np.bool_], list[Floats]]:
    """Means over the block outputs at which all the measures are defined: no depth is chosen.

    Returns
    -------
    (n_units,) which units have one, and for each measure (n_kept,) their means.
    """
    blocks = [m.values[m.blocks] for m in measures]
    both = np.asarray(np.isfinite(np.stack(blocks)).all(0))
    keep = np.asarray(both.any(0), np.bool_)
    count = both.sum(0)[keep]
    return keep, [np.where(both, values, 0.0).sum(0)[keep] / count for values in blocks]
