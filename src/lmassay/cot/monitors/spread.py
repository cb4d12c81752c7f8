"""What several replies to one item agree on, and how many say nothing: from the table of replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.measures.bootstrap import bincounts, cluster_draws, interval_of, ratio_draws
from lmassay.measures.intervals import Estimate, undefined
from lmassay.seeds import generator

if TYPE_CHECKING:
    import polars as pl

SPREAD = "mean over items of the standard deviation of their replies"
UNTOLD = "share of replies that say nothing"
CUT = "share of items shown without their beginning"


def replies_section(table: pl.DataFrame, seed: int) -> dict[str, Any]:
    """By split: ``spread``, ``unparsed_replies``, ``truncated`` and ``reasons`` (replies by why they say nothing)."""
    import polars as pl

    found: dict[str, Any] = {}
    for (split,), rows in table.partition_by(["split"], as_dict=True, maintain_order=True).items():
        items = rows.group_by("example_id", maintain_order=True).agg(
            pl.col("group").first(),
            pl.col("value").std(ddof=1).alias("sd"),
            pl.len().alias("n"),
            pl.col("value").is_null().sum().alias("untold"),
            (pl.col("truncated").max() > 0).alias("cut"),
        )
        groups = items["group"].to_numpy()
        drawn = cluster_draws(groups, generator(seed, str(split), "monitor replies"))

        def share(title: str, part: Any, whole: Any, drawn: Any = drawn) -> Estimate:
            top, bottom = (bincounts(np.asarray(v, np.float64), drawn) for v in (part, whole))
            if not bottom.sum():
                return undefined(title, "no item with two replies that say something")
            low, high, status = interval_of(ratio_draws(top, bottom, drawn), drawn.n_clusters)
            return Estimate(
                float(top.sum() / bottom.sum()), low, high, int(bottom.sum()), title, drawn.n_clusters, status
            )

        sd = items["sd"].fill_null(float("nan")).to_numpy()
        found[str(split)] = {
            "spread": share(SPREAD, np.nan_to_num(sd), ~np.isnan(sd)).to_dict(),
            "unparsed_replies": share(UNTOLD, items["untold"].to_numpy(), items["n"].to_numpy()).to_dict(),
            "truncated": share(CUT, items["cut"].to_numpy(), np.ones(items.height)).to_dict(),
            "reasons": dict(sorted(rows.filter(pl.col("why") != "")["why"].value_counts().iter_rows())),
        }
    return found
