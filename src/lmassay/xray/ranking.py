"""Which features go with PSI > 0, by mutual information."""

from __future__ import annotations

from typing import Any

import numpy as np

from lmassay.measures.intervals import FEW, FEWEST, NO_INTERVAL
from lmassay.measures.mutual_information import (
    codes,
    contingency,
    interval,
    miller_madow,
    permutation_null,
    permutation_p,
    plug_in,
    quartile_bins,
)
from lmassay.seeds import generator
from lmassay.xray.features import FEATURES, NAMES, Rows

NO_VALUE = "no row has a value"
ONE_VALUE = "it has one value"


def ranked(rows: Rows, seed: int, purpose: str) -> list[dict[str, Any]]:
    """A row per feature, the highest plug-in first and the undefined ones last.

    Each has ``plug_in`` (as published), ``corrected`` (Miller and Madow) with ``low`` and ``high``, the null's mean and
    95 % quantile, ``p``, ``n_bins``, ``n`` and ``status``; nats throughout.
    """
    found = [_one(name, rows, seed, purpose) for name in FEATURES]
    order = list(FEATURES)
    return sorted(found, key=lambda r: (r["plug_in"] is None, -(r["plug_in"] or 0), order.index(r["feature"])))


def _one(name: str, rows: Rows, seed: int, purpose: str) -> dict[str, Any]:
    known = rows.known(name)
    target = rows.target[known].astype(np.int64)
    values = [value for value, k in zip(rows.columns[name], known, strict=True) if k]
    row: dict[str, Any] = {
        "feature": name, "from_wins": FEATURES[name], "plug_in": None, "corrected": None, "low": None, "high": None,
        "null_mean": None, "null_95": None, "p": None, "n_bins": None, "n": len(values),
    }  # fmt: skip
    reason = rows.one_class
    if reason is None and not values:
        reason = NO_VALUE
    elif reason is None and len(np.unique(target)) < 2:
        reason = "PSI is on one side of zero wherever it has a value"
    bins = np.zeros(0, np.int64) if reason else codes(values) if name == NAMES else quartile_bins(values)
    if reason is None and not bins.any():
        reason = ONE_VALUE if len(set(values)) == 1 else "its quartiles are all the same"
    if reason is not None:
        return row | {"status": f"undefined: {reason}"}
    table = contingency(bins, target)
    null = permutation_null(table, generator(seed, f"{purpose}/{name}", "permutation null"))
    value, corrected = float(plug_in(table)), miller_madow(table)
    resampling = rows.resampling(seed, purpose, known)
    bounds = interval(bins, target, corrected, resampling) if resampling.n_clusters >= FEWEST else (None, None)
    few = "ok" if resampling.n_clusters >= FEW else "few_clusters"
    return row | {
        "plug_in": value, "corrected": corrected, "low": bounds[0], "high": bounds[1],
        "null_mean": float(null.mean()), "null_95": float(np.quantile(null, 0.95)), "p": permutation_p(value, null),
        "n_bins": len(table), "status": few if bounds[0] is not None else NO_INTERVAL,
    }  # fmt: skip
