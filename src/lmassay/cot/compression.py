"""Task 9: a table of which sentences were kept and what that cost, one row a cell; made here of the published data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from lmassay.errors import LmassayError
from lmassay.measures.divergence import FLOOR, floored_mass, kls

if TYPE_CHECKING:
    from lmassay.cot.task import TaskData

#: Sentences at the end of a prefix that are always kept, and are not chosen among.
KEPT = 5
#: What the KL of a cell is taken against, and what keeps nothing but the last sentences.
WHOLE, DELETION = "baseline", "deletion"
#: The sentences just before the kept ones: its selections follow from its name, and are not published.
LAST_M = "last_m"

#: A cell is a (question, prefix_length, m, selector). `n_region` sentences were chosen among.
SCHEMA: dict[str, Any] = {
    "question": pl.String, "prefix_length": pl.Int64, "n_region": pl.Int64, "m": pl.Int64, "selector": pl.String,
    "indices": pl.List(pl.Int64), "answer_kl": pl.Float64, "token_kl": pl.Float64, "floored_mass": pl.Float64,
}  # fmt: skip
#: What cells that were built have beside: which rollout the prefix is of, whether the KLs are exact, and, in the cell
#: of the whole prefix, the answer KL when each sentence is the only one kept.
OWN: dict[str, Any] = {
    "rollout": pl.Int64, "token_kl_lower_bound": pl.Boolean, "answer_kl_exact": pl.Boolean,
    "single_kl": pl.List(pl.Float64),
}  # fmt: skip
#: Fields of the published records that are read.
_NEEDED = ("question_id", "method", "prefix_length", "keep_m", "token_kl", "selected_indices", "distribution")


def published_cells(data: TaskData) -> pl.DataFrame:
    """The cells of the published task 9, answer KLs computed from its distributions.

    Raises
    ------
    LmassayError
        ``bad-request`` for another task; ``cot-data-broken`` where cells do not fit together.
    """
    if data.task.kind != "selection":
        raise LmassayError(
            "bad-request", f"{data.task.id} is no task of selections but {data.task.kind}", "name compression"
        )
    return cells_of(data["all"].hidden)


def cells_of(records: pl.DataFrame, *, floor: float = FLOOR) -> pl.DataFrame:
    """Records as published -> cells in a fixed order.

    The answer KL is KL(whole prefix || kept sentences) over the answer letters. A letter one side lacks has probability
    0 there; q is floored, p never, and nothing is normalised.

    Raises
    ------
    LmassayError
        ``cot-data-broken`` for a cell that stands twice, has no whole prefix to be held against, or keeps more
        sentences than there are.
    """
    lacking = [name for name in _NEEDED if name not in records.columns]
    if lacking:
        raise _broken(f"the records have no field {lacking[0]}")
    rows = records.select(
        question="question_id",
        prefix_length="prefix_length",
        n_region=pl.col("prefix_length") - KEPT,
        m="keep_m",
        selector="method",
        indices="selected_indices",
        token_kl="token_kl",
        distribution="distribution",
    ).sort("selector", "question", "prefix_length", "m")
    cell = ["selector", "question", "prefix_length", "m"]
    twice = rows.filter(pl.struct(cell).is_duplicated())
    if twice.height:
        raise _broken(f"{_named(twice)} stands twice")
    wrong = rows.filter((pl.col("n_region") < 1) | (pl.col("m") < 0) | (pl.col("m") > pl.col("n_region")))
    if wrong.height:
        raise _broken(f"{_named(wrong)} keeps {wrong['m'][0]} of {wrong['n_region'][0]} sentences")
    place = rows.with_row_index("at").filter(pl.col("selector") == WHOLE)
    rows = rows.join(place.select("question", "prefix_length", "at"), on=["question", "prefix_length"], how="left")
    rows = rows.sort(cell)
    alone = rows.filter(pl.col("at").is_null())
    if alone.height:
        raise _broken(f"{_named(alone)} has no cell of the whole prefix ({alone.height} such)")
    q = _matrix(rows["distribution"])
    p = q[rows["at"].to_numpy()]
    return rows.with_columns(
        answer_kl=pl.Series(kls(p, q, floor=floor)),
        floored_mass=pl.Series(floored_mass(p, q, floor=floor)),
        indices=_selected(),
    ).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def _selected() -> pl.Expr:
    """The indices, and those that follow from the name; what keeps all or nothing has no selection to speak of."""
    known = pl.int_ranges(pl.col("n_region") - pl.col("m"), pl.col("n_region"))
    return pl.when(pl.col("selector") == LAST_M).then(known).otherwise(pl.col("indices"))


def _matrix(distributions: pl.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n,) lists of {key, value} -> (n, n_letters) float64, 0 where a letter is missing."""
    long = (
        pl.DataFrame({"d": distributions})
        .with_row_index("row")
        .filter(pl.col("d").list.len() > 0)
        .explode("d")
        .unnest("d")
    )
    letters = long["key"].unique().sort().to_list()
    column = long["key"].replace_strict(letters, list(range(len(letters))), return_dtype=pl.Int64).to_numpy()
    found = np.zeros((len(distributions), max(1, len(letters))))
    found[long["row"].to_numpy(), column] = long["value"].to_numpy()
    return found


def _named(rows: pl.DataFrame) -> str:
    first: Sequence[Any] = rows.select("selector", "question", "prefix_length", "m").row(0)
    return "the cell {} of {}, prefix {}, M = {},".format(*first)


def _broken(what: str) -> LmassayError:
    return LmassayError("cot-data-broken", what, "import the data again")
