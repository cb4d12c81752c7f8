"""Predictions made anywhere, scored with the same controls, threshold and evidence as a method of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.cot.evaluate import Evaluation, Progress, evaluate
from lmassay.cot.export import scored_splits
from lmassay.cot.task import TaskData
from lmassay.errors import LmassayError
from lmassay.examples import VisibleExamples
from lmassay.methods.method import Examples, Floats, Groups, Labels, Validation, check_training
from lmassay.methods.registry import known_methods

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("split", "key", "score")
#: Of a name, which stands in tables and file names.
LONGEST = 80


class External:
    """Scores that were given, by the opaque key of each example; a method by its names only.

    Parameters
    ----------
    name : str
    scores : mapping of int to float
        By key; NaN = abstained.
    kind : {"binary", "regression"}
    llm : bool
        Whether a language model was asked.
    """

    title = "predictions made elsewhere"
    abstains = "the table has no score"

    def __init__(self, name: str, scores: Mapping[int, float], kind: str, *, llm: bool = False) -> None:
        self.id, self.kind = name, kind
        self.choices: Mapping[str, Any] = {}
        self.provenance = {"origin": "external", "llm": llm}
        self._scores = dict(scores)

    def settings(self) -> dict[str, Any]:
        """Which predictions these are."""
        rows = "\n".join(f"{key} {score!r}" for key, score in sorted(self._scores.items()))
        return {"predictions_sha256": hashlib.sha256(rows.encode()).hexdigest(), **self.provenance}

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """Nothing is learnt here."""
        check_training(y, self.kind)

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        keys = X.keys.tolist() if isinstance(X, VisibleExamples) else [x.key for x in X]
        return np.array([self._scores[key] for key in keys], np.float64)


def score_predictions(
    data: TaskData,
    predictions: Path | pl.DataFrame,
    *,
    name: str,
    llm: bool = False,
    seed: int = 0,
    out: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Evaluation:
    """Score a table with ``split``, ``key`` and ``score`` for every usable validation and test row.

    The threshold comes from the validation scores, the controls are fitted as for any method, and so is the evidence.
    A null score is an abstention; it is counted as undecided.

    Parameters
    ----------
    predictions : path or polars.DataFrame
        Parquet, CSV or JSONL; the file that ``cot export`` wrote, filled in.
    name : str
        What the row is called; no name of a method of ours.
    llm : bool
        Whether the predictions are a language model's replies, for the leaderboard.

    Raises
    ------
    LmassayError
        ``bad-request`` naming the first fault of the table; the errors of `evaluate`.
    """
    check_name(name)
    if data.task.kind == "selection":
        raise LmassayError(
            "bad-request",
            f"{data.task.id} asks for sentences, not scores, so there is nothing to predict",
            "see cot tasks",
        )
    table = predictions if not isinstance(predictions, Path) else _read(predictions)
    scores = checked_scores(data, table, predictions.name if isinstance(predictions, Path) else "the table")
    kind = "regression" if data.task.kind == "regression" else "binary"
    method = External(name, scores, kind, llm=llm)
    return evaluate(data, method, seed=seed, out=out, command=command, progress=progress)


def check_name(name: str) -> None:
    """Refuse a name that is empty, long, unprintable, or a method's of ours.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    if not name.strip() or not name.isprintable() or len(name) > LONGEST:
        raise LmassayError("bad-request", f"{name[:LONGEST]!r} is no name", f"give 1 to {LONGEST} printable characters")
    if name in known_methods():
        raise LmassayError("bad-request", f"{name!r} is the name of a method of ours", "choose another --name")


def checked_scores(data: TaskData, table: pl.DataFrame, called: str) -> dict[int, float]:
    """Key -> score of a table that fits the data.

    Raises
    ------
    LmassayError
        ``bad-request``: a column, split or row is missing, a key is unknown or stands twice, a score is NaN, infinite
        or no number, or a split has no score at all.
    """
    import polars as pl

    for column in COLUMNS:
        if column not in table.columns:
            raise _bad(called, f"has no column {column}; it has {', '.join(table.columns[:6])}")
    if table["score"].dtype == pl.String or not (table["score"].dtype.is_numeric() or table["score"].dtype == pl.Null):
        raise _bad(called, f"has scores of type {table['score'].dtype}, not numbers")
    if not (table["key"].dtype == pl.String or table["key"].dtype.is_integer()):
        raise _bad(called, f"has keys of type {table['key'].dtype}: they were rounded; read them as text")
    table = table.select(
        pl.col("split").cast(pl.String), pl.col("key").cast(pl.String), pl.col("score").cast(pl.Float64)
    )
    wanted = scored_splits(data)
    strange = [s for s in table["split"].unique(maintain_order=True).to_list() if s not in wanted]
    if strange:
        raise _bad(called, f"has rows of the split {strange[0]!r}; scored are {', '.join(wanted)}")
    found: dict[int, float] = {}
    for name in wanted:
        found |= _of_split(data, name, table.filter(pl.col("split") == name), called)
    return found


def _of_split(data: TaskData, name: str, rows: pl.DataFrame, called: str) -> dict[int, float]:
    split = data[name]
    keys = [str(k) for k in split.examples.keys[split.usable].tolist()]
    if not rows.height and keys:
        raise _bad(called, f"has no rows of the split {name}, which has {len(keys)}")
    twice = rows.filter(rows["key"].is_duplicated())
    if twice.height:
        raise _bad(called, f"split {name}: key {twice['key'][0]} stands more than once")
    known = set(keys)
    unknown = [k for k in rows["key"].to_list() if k not in known]
    if unknown:
        raise _bad(called, f"split {name}: {unknown[0]!r} is no example of this data ({len(unknown)} of {rows.height})")
    if rows.height != len(keys):
        given = set(rows["key"].to_list())
        lacking = next(k for k in keys if k not in given)
        raise _bad(called, f"split {name}: {rows.height} rows for {len(keys)} examples; {lacking} is missing")
    odd = rows.filter(~rows["score"].is_finite().fill_null(value=True))
    if odd.height:
        raise _bad(
            called,
            f"split {name}: the score of {odd['key'][0]} is {odd['score'][0]} ({odd.height} such)",
            "leave the score of an example without an answer empty (null)",
        )
    if rows["score"].null_count() == rows.height and keys:
        raise _bad(called, f"split {name}: no example has a score")
    values = rows["score"].fill_null(float("nan")).to_list()
    return {int(k): float(v) for k, v in zip(rows["key"].to_list(), values, strict=True)}


def _bad(called: str, what: str, do: str = "fill in the table that `lmassay cot export` writes") -> LmassayError:
    return LmassayError("bad-request", f"{called} {what}", do)


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    readers = {".parquet": pl.read_parquet, ".csv": _read_csv, ".jsonl": pl.read_ndjson, ".ndjson": pl.read_ndjson}
    reader = readers.get(path.suffix.lower())
    if reader is None or not path.is_file():
        why = "is no file" if not path.is_file() else f"ends in none of {', '.join(readers)}"
        raise LmassayError("bad-request", f"{path} {why}", "give a table of predictions")
    try:
        frame: pl.DataFrame = reader(path)  # type: ignore[operator]
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _bad(path.name, f"cannot be read: {str(error).splitlines()[0][:160]}") from error
    return frame


def _read_csv(path: Path) -> pl.DataFrame:
    import polars as pl

    # Keys as text: a reader that guesses takes a column of long digits for numbers and rounds it.
    return pl.read_csv(path, schema_overrides={"key": pl.String, "split": pl.String, "score": pl.Float64})
