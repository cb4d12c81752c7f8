"""What the figures of a cot run are drawn from: tables computed from its predictions and its scores alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmassay.cot.predictions import CHOOSING, UNPARSED, VALIDATION, Rows, read_predictions, rows_by_method
from lmassay.cot.scores import SIGNALS
from lmassay.cot.task import OK
from lmassay.measures.bootstrap import bincounts, cluster_draws, interval_of, ratio_draws
from lmassay.measures.classification import ranked, rates_at
from lmassay.seeds import generator
from lmassay.storage.runs import check_tables, finished_record, read_scores

if TYPE_CHECKING:
    from lmassay.measures.classification import Ranked

Floats = NDArray[np.float64]

#: The kind of a task that chooses sentences: such a run has cells, and no predictions.
SELECTION = "selection"
#: Points that a curve is drawn with at most; the others lie between two of them.
CURVE_POINTS = 200
BINS = 10
#: A scatter of more rows than this is drawn as counts of cells.
MOST_DOTS = 500
CELLS = 30
CURVE, CHOSEN, BEST = "curve", "validation threshold", "best on these rows"


class Documented(Protocol):
    """Whatever has the figures of a run."""

    @property
    def document(self) -> Mapping[str, Any]:
        """What ``scores.json`` holds."""
        ...


class CotResult(Documented, Protocol):
    """An `Evaluation`, or a `CotRun` read from its folder."""

    @property
    def predictions(self) -> pl.DataFrame:
        """What ``predictions.parquet`` holds."""
        ...


@dataclass(frozen=True)
class CotFigures:
    """The figures of a finished run, such as one that holds no predictions.

    Attributes
    ----------
    record, document : mapping
        ``run.json`` and ``scores.json``.
    """

    record: Mapping[str, Any]
    document: Mapping[str, Any]


@dataclass(frozen=True)
class CotRun(CotFigures):
    """A finished run as it was written; nothing is computed again, so it opens at once."""

    predictions: pl.DataFrame


def read_cot_run(folder: Path) -> CotRun:
    """A finished run of the cot suite.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` where it is unfinished, altered or unreadable.
    """
    record = finished_record(folder)
    check_tables(folder, record)
    return CotRun(record, read_scores(folder), read_predictions(folder))


def method_of(run: Documented) -> str:
    """The method the run is of."""
    return str(run.document["identity"]["method"]["id"])


def splits_of(run: Documented) -> list[str]:
    """Test splits, in the run's order."""
    return list(run.document["identity"]["task"]["splits"])


def is_ood(run: Documented, split: str) -> bool:
    """Whether a split, or the median over several, is out of distribution."""
    return split == "ood" or split in run.document["identity"]["task"]["ood_splits"]


def every_method(run: Documented) -> dict[str, Mapping[str, Any]]:
    """The scores of the method, then of each control."""
    return {method_of(run): run.document["scores"], **run.document["controls"]}


def headline(run: Documented) -> str:
    """The figure that decides whether a run survives."""
    kind = run.document["identity"]["task"]["kind"]
    return "answer_kl" if kind == SELECTION else SIGNALS[kind][0]


def strongest_control(run: Documented, figure: str) -> str | None:
    """The control with the highest figure on the first test split that has it; None where none has one."""
    for split in splits_of(run):
        known = {
            name: scores[f"{split}.{figure}"]["value"]
            for name, scores in run.document["controls"].items()
            if scores.get(f"{split}.{figure}", {}).get("value") is not None
        }
        if known:
            return str(max(known, key=lambda name: known[name]))
    return None


def distribution_rows(run: Documented, figures: Sequence[str]) -> pl.DataFrame:
    """Columns ``figure``, ``method``, ``role``, ``split``, ``part`` (ID or OOD), ``value``, ``low``, ``high``, ``n``,
    ``n_questions``, ``status``: every method on every test split.
    """
    rows = []
    for name, scores in every_method(run).items():
        for key, e in scores.items():
            split, _, figure = key.partition(".")
            if figure in figures:
                rows.append({
                    "figure": figure, "method": name, "role": "method" if name == method_of(run) else "control",
                    "split": split, "part": "OOD" if is_ood(run, split) else "ID", "value": e["value"],
                    "low": e["low"], "high": e["high"], "n": e["n"], "n_questions": e["n_clusters"],
                    "status": e["status"],
                })  # fmt: skip
    kinds = {"figure": pl.String, "method": pl.String, "role": pl.String, "split": pl.String, "part": pl.String,
             "value": pl.Float64, "low": pl.Float64, "high": pl.Float64, "n": pl.Int64, "n_questions": pl.Int64,
             "status": pl.String}  # fmt: skip
    found = pl.DataFrame(rows, schema=kinds)
    order = pl.col("figure").replace_strict({f: i for i, f in enumerate(figures)}, return_dtype=pl.Int64)
    return found.sort(order, maintain_order=True)


def rows_of(run: CotResult, method: str) -> dict[str, Rows]:
    """A method's usable rows by split, validation included."""
    return rows_by_method(run.predictions.filter(method_id=method)).get(method, {})


def _in_order(run: Documented) -> pl.Expr:
    """Sorts by split, in the run's order."""
    places = {split: i for i, split in enumerate([*splits_of(run), "ood"])}
    return pl.col("split").replace_strict(places, default=len(places), return_dtype=pl.Int64)


def threshold_of(run: Documented, method: str) -> float | None:
    """The threshold validation chose."""
    found: float | None = run.document.get("thresholds", {}).get(method, {}).get("value")
    return found


ROC = {"method": pl.String, "split": pl.String, "at": pl.String, "fpr": pl.Float64, "tpr": pl.Float64,
       "threshold": pl.Float64, "n": pl.Int64, "n_positive": pl.Int64, "n_points": pl.Int64}  # fmt: skip


def roc_rows(run: CotResult, methods: Sequence[str]) -> pl.DataFrame:
    """ROC curves, columns `ROC`: points of the curve from (0, 0) to (1, 1), and two marked ones.

    ``validation threshold`` is where the threshold that validation chose stands on the test rows, ``best on these
    rows`` the point of highest TPR·TNR. A row is positive if and only if its score is above ``threshold``. A split of
    one class, or without scores, has no curve.
    """
    rows: list[dict[str, Any]] = []
    for method in methods:
        for split, of in rows_of(run, method).items():
            if split in (VALIDATION, CHOOSING):
                continue
            r = ranked(of.y[of.scored], of.score[of.scored])
            if not (r.n_positive and r.n_negative):
                continue
            rows += _roc(r, threshold_of(run, method), {"method": method, "split": split})
    return pl.DataFrame(rows, schema=ROC)


def _roc(r: Ranked, threshold: float | None, about: Mapping[str, str]) -> list[dict[str, Any]]:
    p, n = int(r.n_positive), int(r.n_negative)
    # From the highest score down: nothing is positive first, everything last.
    at = np.append(r.values[::-1], -np.inf)
    tpr = np.append(p - r.positives[::-1], p) / p
    fpr = np.append(n - r.negatives[::-1], n) / n
    about = {**about, "n": p + n, "n_positive": p, "n_points": len(at)}  # type: ignore[dict-item]
    kept = thinned(fpr, tpr, CURVE_POINTS)
    rows = [
        {**about, "at": CURVE, "fpr": float(fpr[i]), "tpr": float(tpr[i]), "threshold": _finite(at[i])} for i in kept
    ]
    if threshold is not None:
        chosen = [float(rate) for rate in rates_at(r, threshold)]
        rows.append({**about, "at": CHOSEN, "fpr": 1 - chosen[1], "tpr": chosen[0], "threshold": threshold})
    best = int((tpr * (1 - fpr)).argmax())
    rows.append({**about, "at": BEST, "fpr": float(fpr[best]), "tpr": float(tpr[best]), "threshold": _finite(at[best])})
    return rows


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def thinned(x: Floats, y: Floats, most: int) -> list[int]:
    """Places of at most `most` points of a staircase, its ends included, evenly along it."""
    if len(x) <= most:
        return list(range(len(x)))
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
    wanted = np.searchsorted(along, np.linspace(0, along[-1], most))
    return sorted({0, len(x) - 1, *np.minimum(wanted, len(x) - 1).tolist()})


def transfer_rows(run: Documented) -> pl.DataFrame:
    """By split and method: g-mean² at the threshold of validation, at the best one of the test rows, what is lost."""
    chosen = distribution_rows(run, ["g_mean2"]).drop("figure", "status")
    best = distribution_rows(run, ["oracle_g_mean2"]).select(
        "method", "split", best="value", best_low="low", best_high="high"
    )
    return (
        chosen.join(best, on=["method", "split"], how="inner", maintain_order="left")
        .with_columns(lost=pl.col("best") - pl.col("value"))
        .sort(_in_order(run), maintain_order=True)
    )


def question_rows(run: CotResult, method: str) -> pl.DataFrame:
    """By split and question: ``n``, ``n_positive``, ``right`` (share of right decisions; an unparsed reply is wrong).

    In regression ``target`` and ``predicted`` (means) and ``error`` (mean size of the error).
    """
    regression = run.document["identity"]["task"]["kind"] == "regression"
    used = run.predictions.filter(
        pl.col("method_id") == method,
        ~pl.col("split").is_in([VALIDATION, CHOOSING]),
        pl.col("status").is_in([OK, UNPARSED]),
    )
    if regression:
        used = used.filter(pl.col("score").is_not_null())
        figures = {
            "target": pl.col("y_true").mean(),
            "predicted": pl.col("score").mean(),
            "error": (pl.col("score") - pl.col("y_true")).abs().mean(),
        }
    elif threshold_of(run, method) is None:
        used, figures = used.clear(), {"n_positive": pl.lit(0, pl.Int64), "right": pl.lit(None, pl.Float64)}
    else:
        figures = {
            "n_positive": pl.col("y_true").sum().cast(pl.Int64),
            "right": (pl.col("decision").cast(pl.Float64) == pl.col("y_true")).fill_null(False).mean(),
        }
    return (
        used.group_by("split", "group", maintain_order=True)
        .agg(n=pl.len().cast(pl.Int64), **figures)
        .rename({"group": "question"})
    )


def gives_probabilities(run: CotResult, method: str) -> bool:
    """Whether a method's scores can be read as probabilities: none lies outside [0, 1], and they are not labels."""
    if run.document["identity"]["task"]["kind"] == "regression":
        return False
    score = run.predictions.filter(method_id=method)["score"].drop_nulls().drop_nans()
    return score.n_unique() > 2 and bool(((score >= 0) & (score <= 1)).all())


def reliability_rows(run: CotResult, method: str) -> pl.DataFrame:
    """By split and tenth of the score: its mean, the share of positives with a 95 % interval by question, and n."""
    task, seed = run.document["identity"]["task"], run.document["identity"]["settings"]["seed"]
    rows: list[dict[str, Any]] = []
    for split, of in rows_of(run, method).items():
        if split in (VALIDATION, CHOOSING) or not of.scored.any():
            continue
        y, score, groups = of.y[of.scored], of.score[of.scored], of.groups[of.scored]
        drawn = cluster_draws(groups, generator(seed, f"{task['id']}/{task['layout']}/{split}", "reliability"))
        of_bin = np.minimum((score * BINS).astype(np.int64), BINS - 1)
        for b in range(BINS):
            mine = of_bin == b
            if not mine.any():
                continue
            part, whole = (bincounts(v.astype(np.float64), drawn) for v in (mine & (y == 1), mine))
            k = len(np.unique(groups[mine]))
            low, high, status = interval_of(ratio_draws(part, whole, drawn), k)
            rows.append({
                "method": method, "split": split, "from": b / BINS, "to": (b + 1) / BINS,
                "score": float(score[mine].mean()), "share": float(y[mine].mean()), "low": low, "high": high,
                "n": int(mine.sum()), "n_questions": k, "status": status,
            })  # fmt: skip
    kinds = {"method": pl.String, "split": pl.String, "from": pl.Float64, "to": pl.Float64, "score": pl.Float64,
             "share": pl.Float64, "low": pl.Float64, "high": pl.Float64, "n": pl.Int64, "n_questions": pl.Int64,
             "status": pl.String}  # fmt: skip
    return pl.DataFrame(rows, schema=kinds)


def calibration_error(rows: pl.DataFrame) -> float:
    """Mean distance between score and share of positives over a split's bins, weighted by their rows."""
    score, share, n = (rows[name].to_numpy() for name in ("score", "share", "n"))
    return float(np.average(np.abs(score - share), weights=n))


def prediction_rows(run: CotResult, method: str) -> pl.DataFrame:
    """Regression: ``split``, ``target``, ``predicted``, ``n``: every row, or with many the counts of a grid's cells."""
    parts = []
    for split, of in rows_of(run, method).items():
        if split in (VALIDATION, CHOOSING):
            continue
        frame = pl.DataFrame(
            {"split": [split] * int(of.scored.sum()), "target": of.y[of.scored], "predicted": of.score[of.scored]},
            schema={"split": pl.String, "target": pl.Float64, "predicted": pl.Float64},
        )
        if frame.height <= MOST_DOTS:
            parts.append(frame.with_columns(n=pl.lit(1, pl.Int64)))
            continue
        cells = [
            ((pl.col(c) - frame[c].min()) / max(_spread(frame[c]), 1e-12) * CELLS).floor().clip(0, CELLS - 1)
            for c in ("target", "predicted")
        ]
        binned = frame.group_by("split", cells[0].alias("a"), cells[1].alias("b"), maintain_order=True).agg(
            pl.col("target").mean(), pl.col("predicted").mean(), n=pl.len().cast(pl.Int64)
        )
        parts.append(binned.select("split", "target", "predicted", "n"))
    empty = {"split": pl.String, "target": pl.Float64, "predicted": pl.Float64, "n": pl.Int64}
    return pl.concat(parts) if parts else pl.DataFrame(schema=empty)


def _spread(column: pl.Series) -> float:
    low, high = column.min(), column.max()
    return float(high) - float(low)  # type: ignore[arg-type]


def wrong_rows(run: CotResult, method: str, most: int) -> pl.DataFrame:
    """Each test split's rows farthest on the wrong side of the threshold (regression: of largest error), in order."""
    used = run.predictions.filter(
        pl.col("method_id") == method, ~pl.col("split").is_in([VALIDATION, CHOOSING]), pl.col("status") == OK
    )
    if run.document["identity"]["task"]["kind"] == "regression":
        used = used.with_columns(by=(pl.col("score") - pl.col("y_true")).abs())
    else:
        used = used.filter(pl.col("decision").cast(pl.Float64) != pl.col("y_true"))
        used = used.with_columns(by=(pl.col("score") - pl.col("threshold")).abs())
        used = used.with_columns(pl.col("y_true").cast(pl.Int64))
    return (
        used.filter(pl.col("by").is_finite())
        .sort("by", "example_id", descending=[True, False])
        .group_by("split", maintain_order=True)
        .head(most)
        .select("split", "example_id", "y_true", "score", "threshold", "by")
        .sort(_in_order(run), maintain_order=True)
        .rename({"y_true": "truth"})
    )
