"""One split made of the store's tables: what a method sees, what it is scored against, and what stays hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.status import row_status
from lmassay.cot.task import OK, SplitData
from lmassay.examples import Cells, Column, VisibleExamples

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.release import Release, ReleasedSplit, Shown
    from lmassay.cot.schema import Field
    from lmassay.cot.store import StoredTable
    from lmassay.cot.task import CotTask

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def make_split(task: CotTask, split: ReleasedSplit, records: StoredTable, prompts: StoredTable | None) -> SplitData:
    """A split of the store.

    Parameters
    ----------
    records, prompts : StoredTable
    """
    import polars as pl

    release = _release(task)
    stored = records.frame()
    asked = prompts.frame() if prompts is not None else None
    frame = stored.with_row_index("_row").with_columns(pl.col("_row").cast(pl.Int64))
    frame = _with_prompt(frame, asked, release)
    frame = frame.with_columns(_label(frame, release))
    if release.derive is not None:
        frame = release.derive(frame)
    if frame.height != stored.height:
        # One record became several examples, which need keys of their own.
        frame = frame.with_columns(_key=pl.Series(_keys(frame["_key"].to_numpy(), frame["_row"].to_numpy())))
    frame = frame.sort("_key")
    columns = {
        shown.kind: _column(shown, split.fields, release, (records, stored), (prompts, asked), frame)
        for shown in release.shown
        if shown.of == "records" or asked is not None
    }
    y = frame["y"].fill_null(np.nan).to_numpy().astype(np.float64)
    status = _status(task, split, frame, columns, y) if release.label else np.full(len(y), OK, dtype="<U32")
    return SplitData(
        split.name,
        VisibleExamples(frame["_key"].to_numpy(), columns.values()),
        np.where(status == OK, y, np.nan),
        frame["_group"].to_numpy(),
        status,
        _hidden(frame, split, records, release, status),
    )


def _release(task: CotTask) -> Release:
    assert task.release is not None
    return task.release


def _with_prompt(frame: pl.DataFrame, asked: pl.DataFrame | None, release: Release) -> pl.DataFrame:
    """Adds the row of each record's prompt (-1: none) and the prompt's short fields as ``prompts.<field>``."""
    import polars as pl

    if asked is None:
        return frame.with_columns(_prompt=pl.lit(-1, dtype=pl.Int64))
    keys = list(release.prompt_key)
    short = [c for c in asked.columns if not _is_internal(c) and not asked.schema[c].is_nested() and c not in keys]
    lookup = asked.with_row_index("_prompt").select(
        *keys, pl.col("_prompt").cast(pl.Int64), *(pl.col(c).alias(f"prompts.{c}") for c in short)
    )
    joined = frame.join(lookup.unique(keys, keep="first", maintain_order=True), on=keys, how="left")
    return joined.with_columns(pl.col("_prompt").fill_null(-1)).sort("_row")


def _is_internal(column: str) -> bool:
    return column.startswith("_") or "@" in column


def _label(frame: pl.DataFrame, release: Release) -> list[pl.Expr]:
    import polars as pl

    if not release.label:
        return [pl.lit(None, dtype=pl.Float64).alias("y")]
    words, numbers = list(release.words), list(release.words.values())
    return [pl.col(release.label).replace_strict(words, numbers, return_dtype=pl.Float64).alias("y")]


def _keys(key: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) keys of examples made of one record each several: its key mixed with the example's place in it."""
    first = np.r_[True, row[1:] != row[:-1]]
    place = np.arange(len(row)) - np.maximum.accumulate(np.where(first, np.arange(len(row)), 0))
    with np.errstate(over="ignore"):
        # The finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit of the place changes half of the key's.
        z = key.astype(np.uint64) + (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.int64] = ((z ^ (z >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
    return mixed


def _column(
    shown: Shown,
    fields: tuple[Field, ...],
    release: Release,
    records: tuple[StoredTable, pl.DataFrame],
    prompts: tuple[StoredTable | None, pl.DataFrame | None],
    frame: pl.DataFrame,
) -> Column:
    """The column of one kind of segment, in the order of the examples."""
    table, stored = records if shown.of == "records" else prompts
    assert table is not None
    assert stored is not None
    rows = frame["_row" if shown.of == "records" else "_prompt"].to_numpy()
    field = next(f for f in (fields if shown.of == "records" else release.prompt_fields) if f.name == shown.field)
    if field.is_text:
        return Column(shown.kind, table.texts(field.name, stored), rows)
    series = stored[field.name]
    if shown.words is not None:
        import polars as pl

        series = series.replace_strict(list(shown.words), list(shown.words.values()), return_dtype=pl.String)
    if field.kind == "strings":
        series = _lettered(series)
    return Column(shown.kind, Cells(series), rows)


def _lettered(series: pl.Series) -> pl.Series:
    """Lists of options under the letters in their order."""
    import polars as pl

    cells = [
        [{"label": LETTERS[i], "text": text} for i, text in enumerate(options[: len(LETTERS)])]
        for options in series.to_list()
    ]
    return pl.Series(series.name, cells, dtype=pl.List(pl.Struct({"label": pl.String, "text": pl.String})))


def _status(
    task: CotTask, split: ReleasedSplit, frame: pl.DataFrame, columns: dict[str, Column], y: NDArray[np.float64]
) -> NDArray[np.str_]:
    import polars as pl

    release = _release(task)
    sizes: dict[str, NDArray[np.int64]] = {}
    alike: list[pl.Expr] = []
    for shown in release.shown:
        if shown.of == "prompts":
            alike.append(pl.col(release.question))
            continue
        field = next(f for f in split.fields if f.name == shown.field)
        if field.is_text:
            sizes[shown.kind] = frame[f"{field.name}@bytes"].fill_null(0).to_numpy()
            alike.append(pl.col(f"{field.name}@bytes"))
        elif field.kind in ("messages", "options"):
            texts = pl.col(field.name).list.eval(pl.element().struct.field("text")).list.join("\x1f")
            alike.append(texts.hash())
        else:
            alike.append(pl.col(field.name).cast(pl.String))
    uses_prompt = any(s.of == "prompts" for s in release.shown)
    return row_status(
        y,
        columns,
        sizes,
        frame.select(pl.struct([e.alias(f"_{i}") for i, e in enumerate(alike)]).hash()).to_series(),
        no_prompt=(frame["_prompt"] < 0).to_numpy() if uses_prompt else np.zeros(len(y), dtype=bool),
        duplicate=frame.select(pl.struct(release.identity).is_duplicated()).to_series().to_numpy(),
    )


def _hidden(
    frame: pl.DataFrame, split: ReleasedSplit, records: StoredTable, release: Release, status: NDArray[np.str_]
) -> pl.DataFrame:
    import polars as pl

    layout = records.id.split("/")[0]
    prefix = f"{layout}/{records.id.split('/')[1]}/{split.folder}/"
    example = pl.lit(prefix) + pl.col("_file").str.strip_suffix(".json")
    if "sentence_idx" in frame.columns:
        example = example + "#" + pl.col("sentence_idx").cast(pl.String)
    shown = {s.field for s in release.shown if s.of == "records"}
    kept = [c for c in frame.columns if not _is_internal(c) and not (c in shown and frame.schema[c].is_nested())]
    return frame.select(
        example.alias("example_id"),
        pl.col(release.question).alias("question_id"),
        (pl.col(release.label).cast(pl.String) if release.label else pl.lit(None, dtype=pl.String)).alias("label"),
        pl.col("y"),
        pl.Series("status", status.tolist(), dtype=pl.String),
        *(pl.col(c) for c in ("p1", "p0") if c in kept),
        *(pl.col(c) for c in kept if c not in ("example_id", "question_id", "label", "y", "status", "p1", "p0")),
        pl.col("_file"),
    )
