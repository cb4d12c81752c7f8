"""The words and pairs that weigh most in a finished run's text method, from its record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.errors import LmassayError
from lmassay.storage.runs import blaming, finished_record

if TYPE_CHECKING:
    import polars as pl

#: Among what a method chose.
TERMS = "terms"


def terms_of(record: Mapping[str, Any]) -> pl.DataFrame | None:
    """Columns ``read_in``, ``term``, ``weight``, heaviest first; None where the run's method keeps none.

    Parameters
    ----------
    record : mapping
        ``run.json``.

    Raises
    ------
    TypeError, ValueError, AttributeError
        Where it is not what a run writes; `blaming` makes a line of it.
    """
    import polars as pl

    kept = record.get("choices", {}).get(record["identity"]["method"]["id"], {}).get(TERMS)
    if kept is None:
        return None
    rows = [(str(where), str(term), float(weight)) for where, term, weight in kept]
    if not all(math.isfinite(weight) for *_, weight in rows):
        raise ValueError("a word's weight is no finite number")
    schema = {"read_in": pl.String(), "term": pl.String(), "weight": pl.Float64()}
    return pl.DataFrame(rows, schema, orient="row").sort(pl.col("weight").abs(), descending=True, maintain_order=True)


def terms_of_run(run: Path) -> pl.DataFrame | None:
    """The same of a run folder; None where it has none.

    Raises
    ------
    LmassayError
        ``bad-run-folder``; ``bad-request`` for a run of the other suite.
    """
    record = finished_record(run)
    if record["identity"].get("suite") != "cot":
        raise LmassayError("bad-request", f"{run} is no run of a method", "name a run of sae or tfidf")
    with blaming(run):
        return terms_of(record)
