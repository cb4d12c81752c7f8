"""Predictions as one table: every score of every method and control, once; all figures follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmassay.cot.task import OK, TaskData
from lmassay.errors import LmassayError
from lmassay.storage.atomic import parquet_bytes, write_bytes
from lmassay.storage.runs import PREDICTIONS

if TYPE_CHECKING:
    from lmassay.measures.classification import Point

Floats = NDArray[np.float64]

TRAIN, VALIDATION, CHOOSING = "train", "validation", "choosing"
#: Of a row: the method said nothing; a language model's reply says nothing; the score is infinite. Or ``ok``, or why
#: the row itself is unusable.
ABSTAINED, UNPARSED, NOT_FINITE = "abstained", "unparsed", "not_finite"
#: What a language model that was asked replies with; other methods have None.
LABEL, PROBABILITY, DISTRIBUTION = "label", "probability", "distribution"
#: Between the two labels 0 and 1.
LABEL_THRESHOLD = 0.5

SCHEMA = {
    "task": pl.String, "layout": pl.String, "regime": pl.String, "split": pl.String, "example_id": pl.String,
    "group": pl.Int64, "method_id": pl.String, "method_hash": pl.String, "seed": pl.Int64, "y_true": pl.Float64,
    "p0": pl.Float64, "p1": pl.Float64, "n_options": pl.Int64, "score": pl.Float64, "threshold": pl.Float64,
    "decision": pl.Int8, "status": pl.String,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MethodScores:
    """What one method gave.

    Attributes
    ----------
    scores : mapping of str to (n,) float64
        By split, for every row of the split; NaN = abstained.
    choosing : (n_validation,) bool
        Validation rows on which the method chose something, and from which no threshold is taken.
    choices : mapping
        What it chose, for the record.
    answers : str or None
        ``label``, ``probability`` or ``distribution`` of a language model that was asked: its rows without a score are
        unparsed, not abstained, and labels have a threshold of their own.
    """

    method_id: str
    method_hash: str
    scores: Mapping[str, Floats]
    choosing: NDArray[np.bool_]
    choices: Mapping[str, Any]
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The usable rows of one split under one method.

    Attributes
    ----------
    y, score, p0, p1 : (n,) float64
        NaN: abstained (score), unknown (p0, p1).
    groups, n_options : (n,) int64
        The question; options of the question, 0 where unknown.
    n_total, n_error : int
        Rows of the split; of these, scores that are infinite.
    statuses : mapping of str to int
        Rows by status, unusable ones included.
    unparsed : (n,) bool
        Rows without a score because a reply said nothing. They count as wrong.
    """

    y: Floats
    score: Floats
    groups: NDArray[np.int64]
    p0: Floats
    p1: Floats
    n_options: NDArray[np.int64]
    n_total: int
    n_error: int
    statuses: Mapping[str, int]
    unparsed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        if len(self.unparsed) != len(self.score):
            object.__setattr__(self, "unparsed", np.zeros(len(self.score), np.bool_))

    @property
    def scored(self) -> NDArray[np.bool_]:
        """(n,) rows with a score."""
        return ~np.isnan(self.score)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """(n,) rows that headline figures are taken over: scored, or unparsed and therefore wrong."""
        return self.scored | self.unparsed

    @property
    def as_wrong(self) -> Floats:
        """(n,) scores, binary; an unparsed positive is below and an unparsed negative above every threshold."""
        return np.where(self.unparsed, np.where(self.y == 1, -np.inf, np.inf), self.score)

    @property
    def counts(self) -> dict[str, Any]:
        """``n_total = n_scored + n_undecided + n_error``; unusable rows and abstentions are undecided."""
        n_scored = int(self.scored.sum())
        return {
            "n_total": self.n_total,
            "n_scored": n_scored,
            "n_undecided": self.n_total - n_scored - self.n_error,
            "n_error": self.n_error,
            "n_groups": len(np.unique(self.groups[self.scored])),
            "statuses": dict(self.statuses),
        }


def predictions_frame(
    data: TaskData, methods: Sequence[MethodScores], thresholds: Mapping[str, Point], seed: int
) -> pl.DataFrame:
    """All scores of a run, method by method, split by split, rows as the data has them."""
    frames = []
    for method in methods:
        threshold = thresholds[method.method_id].value if method.method_id in thresholds else None
        for name in (VALIDATION, *data.test_splits):
            split = data[name]
            score = np.where(split.usable, method.scores[name], np.nan)
            silent = ABSTAINED if method.answers is None else UNPARSED
            status = np.where(split.usable & np.isnan(score), silent, split.status).astype(object)
            status[np.isinf(score)] = NOT_FINITE
            known = split.usable & np.isfinite(score)
            decided = pl.Series(score > threshold if threshold is not None else np.zeros(len(score)), dtype=pl.Int8)
            shown = pl.Series(known & (threshold is not None))
            in_part = np.where(method.choosing, CHOOSING, VALIDATION) if name == VALIDATION else name
            frames.append(
                pl.DataFrame(
                    {
                        "split": np.broadcast_to(in_part, len(split)).astype(object).tolist(),
                        "example_id": split.hidden["example_id"].cast(pl.String),
                        "group": split.groups,
                        "y_true": pl.Series(split.y).fill_nan(None),
                        "p0": _hidden(split.hidden, "p0", pl.Float64()),
                        "p1": _hidden(split.hidden, "p1", pl.Float64()),
                        "n_options": _hidden(split.hidden, "n_options", pl.Int64()),
                        "score": pl.Series(score).fill_nan(None),
                        "status": pl.Series(status.tolist(), dtype=pl.String),
                    }
                ).with_columns(
                    task=pl.lit(data.task.id),
                    layout=pl.lit(data.layout),
                    regime=pl.lit(data.regime, dtype=pl.String),
                    method_id=pl.lit(method.method_id),
                    method_hash=pl.lit(method.method_hash),
                    seed=pl.lit(seed, dtype=pl.Int64),
                    threshold=pl.lit(threshold, dtype=pl.Float64),
                    decision=pl.when(shown).then(decided),
                )
            )
    return pl.concat(frames).select([pl.col(name).cast(kind) for name, kind in SCHEMA.items()])


def _hidden(hidden: pl.DataFrame, name: str, kind: pl.DataType) -> pl.Series:
    if name in hidden.columns:
        return hidden[name].cast(kind)
    return pl.Series(name, [None] * hidden.height, dtype=kind)


def write_predictions(folder: Path, frame: pl.DataFrame) -> None:
    """Write ``predictions.parquet``."""
    write_bytes(folder / PREDICTIONS, parquet_bytes(frame))


def read_predictions(folder: Path) -> pl.DataFrame:
    """The table of a run folder.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` when it is missing, cut, or not of the columns it should have.
    """
    try:
        frame = pl.read_parquet(folder / PREDICTIONS)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _bad(f"{folder}: {' '.join(str(error).split())[:160]}") from error
    if frame.schema != SCHEMA:
        raise _bad(f"{folder}: {PREDICTIONS} does not have the columns it should")
    if not frame.height:
        raise _bad(f"{folder}: {PREDICTIONS} is empty")
    return frame


def _bad(what: str) -> LmassayError:
    return LmassayError("bad-run-folder", what, "run its command again, in another folder")


def rows_by_method(frame: pl.DataFrame) -> dict[str, dict[str, Rows]]:
    """Method -> split -> usable rows, in the table's order; the first method is the run's own."""
    found: dict[str, dict[str, Rows]] = {}
    for (method, split), part in frame.partition_by(["method_id", "split"], as_dict=True, maintain_order=True).items():
        found.setdefault(str(method), {})[str(split)] = _rows(part)
    return found


def _rows(part: pl.DataFrame) -> Rows:
    counted = dict(sorted(part["status"].value_counts().iter_rows()))
    used = part.filter(pl.col("status").is_in([OK, ABSTAINED, UNPARSED, NOT_FINITE]))
    score = used["score"].fill_null(float("nan")).to_numpy().astype(np.float64)
    # An infinite score is an error, not a very high one; it takes part in nothing.
    score = np.where(np.isfinite(score), score, np.nan)
    return Rows(
        y=used["y_true"].fill_null(float("nan")).to_numpy().astype(np.float64),
        score=score,
        groups=used["group"].to_numpy().astype(np.int64),
        p0=used["p0"].fill_null(float("nan")).to_numpy().astype(np.float64),
        p1=used["p1"].fill_null(float("nan")).to_numpy().astype(np.float64),
        n_options=used["n_options"].fill_null(0).to_numpy().astype(np.int64),
        n_total=part.height,
        n_error=int(counted.get(NOT_FINITE, 0)),
        statuses=counted,
        unparsed=(used["status"] == UNPARSED).to_numpy().astype(np.bool_),
    )
