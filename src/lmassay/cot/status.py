"""Which rows of a split cannot be used, and why: they stay, are counted, and are neither fitted nor scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.task import OK

if TYPE_CHECKING:
    import polars as pl

    from lmassay.examples import Column

#: A chain of thought of more bytes is not looked at for being empty or a single word.
SHORT = 256


def row_status(
    y: NDArray[np.float64],
    columns: dict[str, Column],
    visible_sizes: dict[str, NDArray[np.int64]],
    same_text: pl.Series,
    *,
    no_prompt: NDArray[np.bool_],
    duplicate: NDArray[np.bool_],
) -> NDArray[np.str_]:
    """(n,) the status of each row; the first that applies, in the order of `STATUSES`.

    Parameters
    ----------
    y : (n,) float64
        As labelled.
    columns : dict of kind to Column
        Of the visible segments.
    visible_sizes : dict of kind to (n,) int64
        Bytes of each text where they are known.
    same_text : polars.Series
        (n,) equal for rows whose visible text can be equal, and for few others; the text itself decides.
    no_prompt, duplicate : (n,) bool
    """
    status = np.full(len(y), OK, dtype="<U32")
    status[_contradictory(y, columns, same_text)] = "contradictory_duplicate"
    status[duplicate] = "duplicate_id"
    status[no_prompt] = "no_prompt"
    sizes = visible_sizes.get("cot")
    if sizes is not None:
        short = np.flatnonzero(sizes <= SHORT)
        words = [len((text or "").split()) for text in columns["cot"].cells(short)]
        for row, n in zip(short.tolist(), words, strict=True):
            if n <= 1:
                status[row] = "broken_rollout" if n else "empty_cot"
    return status


def _contradictory(y: NDArray[np.float64], columns: dict[str, Column], same_text: pl.Series) -> NDArray[np.int64]:
    """Rows whose whole visible text stands in the split under more than one label as well."""
    import polars as pl

    rows = pl.DataFrame({"row": np.arange(len(y)), "y": y, "same": same_text})
    # Few rows are like another at all, and only those are looked at by label.
    rows = rows.filter(pl.col("same").is_duplicated())
    candidates = (
        rows.filter(pl.col("y").is_not_nan() & (pl.col("y").min().over("same") < pl.col("y").max().over("same")))
    )["row"].to_numpy()
    seen: dict[str, set[float]] = {}
    shown = [column.cells(candidates) for column in columns.values()]
    texts = [repr(cells) for cells in zip(*shown, strict=True)]
    for text, value in zip(texts, y[candidates].tolist(), strict=True):
        seen.setdefault(text, set()).add(value)
    rows_at_odds: NDArray[np.int64] = candidates[np.array([len(seen[text]) > 1 for text in texts], dtype=bool)]
    return rows_at_odds
