"""Task 9 on data of one's own: the ``cells.parquet`` that `cot generate compression` writes, read and checked."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from lmassay.cot.compression import OWN, SCHEMA, WHOLE
from lmassay.errors import LmassayError

#: What tells cells apart.
CELL = ["selector", "question", "rollout", "prefix_length", "m"]
#: Columns that a cell need not have.
_OPTIONAL = ("token_kl", "floored_mass", "indices", *OWN)


def read_cells(path: Path) -> pl.DataFrame:
    """The cells of a file, in a fixed order; columns of `SCHEMA` and `OWN`, null where the file lacks one.

    Raises
    ------
    LmassayError
        ``bad-request`` for a file that is no Parquet file; ``cot-data-broken`` for one whose cells do not fit together.
    """
    if path.suffix != ".parquet":
        raise LmassayError("bad-request", f"{path} is no Parquet file", "name the cells.parquet of a generated task 9")
    if not path.is_file():
        raise LmassayError("bad-request", f"there is no file {path}", "name the cells.parquet of a generated task 9")
    columns = {**SCHEMA, **OWN}
    try:
        frame = pl.read_parquet(path)
        lacking = [name for name in columns if name not in frame.columns and name not in _OPTIONAL]
        if lacking:
            raise _broken(path, f"has no column {lacking[0]!r}")
        frame = frame.with_columns(pl.lit(None).alias(name) for name in columns if name not in frame.columns)
        frame = frame.select(pl.col(name).cast(kind) for name, kind in columns.items())
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _broken(path, f"cannot be read: {str(error).splitlines()[0]}") from error
    frame = frame.with_columns(pl.col("rollout").fill_null(0), pl.col("floored_mass").fill_null(0.0)).sort(CELL)
    _check(path, frame)
    return frame


def _check(path: Path, cells: pl.DataFrame) -> None:
    if not cells.height:
        raise _broken(path, "holds no cell")
    needed = ["question", "prefix_length", "n_region", "m", "selector", "answer_kl"]
    if cells.select(pl.col(needed).null_count()).sum_horizontal().item():
        raise _broken(path, "has an empty cell in a column that is needed")
    twice = cells.filter(pl.struct(CELL).is_duplicated())
    if twice.height:
        raise _broken(path, f"{_named(twice)} stands twice")
    wrong = cells.filter((pl.col("n_region") < 1) | (pl.col("m") < 0) | (pl.col("m") > pl.col("n_region")))
    if wrong.height:
        raise _broken(path, f"{_named(wrong)} keeps {wrong['m'][0]} of {wrong['n_region'][0]} sentences")
    strange = cells.filter(
        ~pl.col("answer_kl").is_finite()
        | ~pl.col("token_kl").is_finite().fill_null(True)
        # A KL of nearly equal distributions may be rounded below 0.
        | (pl.col("answer_kl") < -1e-9)
        | (pl.col("token_kl") < -1e-9).fill_null(False)
    )
    if strange.height:
        raise _broken(path, f"{_named(strange)} has a KL that is none")
    outside = cells.filter(
        (pl.col("indices").list.min() < 0).fill_null(False)
        | (pl.col("indices").list.max() >= pl.col("n_region")).fill_null(False)
        | (pl.col("single_kl").list.len() != pl.col("n_region")).fill_null(False)
    )
    if outside.height:
        raise _broken(path, f"{_named(outside)} names sentences outside the {outside['n_region'][0]} there are")
    prefix = ["question", "rollout", "prefix_length"]
    alone = cells.join(cells.filter(selector=WHOLE), on=prefix, how="anti")
    if alone.height:
        raise _broken(path, f"{_named(alone)} has no cell of the whole prefix ({alone.height} such)")


def _named(rows: pl.DataFrame) -> str:
    first = rows.select("selector", "question", "rollout", "prefix_length", "m").row(0)
    return "the cell {} of {}, rollout {}, prefix {}, M = {},".format(*first)


def _broken(path: Path, what: str) -> LmassayError:
    return LmassayError("cot-data-broken", f"{path.name}: {what}", "build the cells again, with `lmassay cot generate`")
