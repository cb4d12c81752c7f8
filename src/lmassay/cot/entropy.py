"""Task 8 from its distributions alone: how uncertain answers are, where, and how much of it is the question's doing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.task import SplitData, TaskData
from lmassay.errors import LmassayError
from lmassay.markup import html_table, interval, noted, number
from lmassay.measures.bootstrap import ClusterDraws, bincounts, cluster_draws, interval_of, ratio_draws
from lmassay.measures.classification import Point
from lmassay.measures.intervals import Estimate, undefined
from lmassay.measures.regression import SMALL_VARIANCE, spearman_by_group
from lmassay.seeds import generator

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]

#: nats: an answer this sure counts as settled (its likeliest option has about .98).
SETTLED = 0.1
POSITION_BINS = 10
_CHUNK = 50

TITLES = {
    "mean": "mean entropy, nats",
    "mean_of_questions": "mean over questions of their mean, nats",
    "median": "median, nats",
    "variance": "population variance, nats²",
    "between_questions": "share of the variance that lies between questions",
    "normalised_mean": "mean of entropy divided by the log of the number of options",
    "settled": f"share of boundaries under {SETTLED} nats",
    "first": "mean at the first boundary of a rollout, nats",
    "last": "mean at the last boundary of a rollout, nats",
    "within_trend": "rank correlation with the place in the rollout, within questions",
}


@dataclass(frozen=True)
class EntropyReport:
    """What the entropies of a task's splits are like.

    Attributes
    ----------
    task, layout : str
    estimates : dict of str to dict of str to Estimate
        By split and figure; n counts boundaries (rollouts in ``first`` and ``last``), clusters are questions.
    by_position : polars.DataFrame
        ``split``, ``bin`` (tenths of the rollout's forced boundaries), ``mean`` and ``se`` (questions first), ``n``,
        ``n_questions``.
    notices : tuple of str
    """

    task: str
    layout: str
    estimates: dict[str, dict[str, Estimate]]
    by_position: pl.DataFrame
    notices: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<EntropyReport {self.task}, layout {self.layout}: {len(self.estimates)} splits>"

    def _repr_html_(self) -> str:
        """A row for each split and figure, for a notebook."""
        rows = [
            (split, name, number(e.value), interval(e.low, e.high), e.n, e.n_clusters, e.title)
            for split, figures in self.estimates.items()
            for name, e in figures.items()
        ]
        columns = ("split", "figure", "value", "95 % interval", "n", "questions", "what")
        return html_table(f"{self.task}, layout {self.layout}", columns, rows, left=2) + noted(self.notices)

    @property
    def table(self) -> pl.DataFrame:
        """A row for each split and figure."""
        import polars as pl

        rows = [
            {"split": split, "figure": name, **e.to_dict()}
            for split, figures in self.estimates.items()
            for name, e in figures.items()
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "task": self.task,
            "layout": self.layout,
            "splits": {s: {n: e.to_dict() for n, e in f.items()} for s, f in self.estimates.items()},
            "by_position": self.by_position.to_dicts(),
            "notices": list(self.notices),
        }


def entropy_report(data: TaskData, *, seed: int = 0) -> EntropyReport:
    """Statistics of a regression task's targets on every split, with intervals by question.

    Raises
    ------
    LmassayError
        ``bad-request`` for a task of another kind.
    """
    if data.task.kind != "regression":
        raise LmassayError(
            "bad-request", f"{data.task.id} is no task of entropies but {data.task.kind}", "name a regression task"
        )
    estimates, places, notices = {}, [], list(data.notes)
    for name, split in data.splits.items():
        rng = generator(seed, f"{data.task.id}/{data.layout}/{name}", "cot entropy")
        estimates[name] = _figures(split, rng)
        places.append(_by_position(split))
        variance = estimates[name]["variance"].value
        if variance is not None and variance < SMALL_VARIANCE:
            notices.append(f"{name}: variance under {SMALL_VARIANCE} nats²; an R² says little there")
    import polars as pl

    return EntropyReport(data.task.id, data.layout, estimates, pl.concat(places), tuple(notices))


def _figures(split: SplitData, rng: np.random.Generator) -> dict[str, Estimate]:
    used = split.usable
    y, groups = split.y[used], split.groups[used]
    if not len(y):
        return {name: undefined(title, "no data") for name, title in TITLES.items()}
    drawn = cluster_draws(groups, rng)
    n, first, second = (bincounts(v, drawn) for v in (np.ones(len(y)), y, y**2))
    means = first / n
    found = _moments(drawn, n, first, second)
    found["mean_of_questions"] = float(means.mean()), ratio_draws(means, np.ones(len(n)), drawn)
    found["median"] = float(np.median(y)), _medians(y, drawn)
    found["settled"] = _share((y < SETTLED).astype(np.float64), drawn, n)
    options = _column(split, "n_options")
    if options is not None and (options[used] > 1).all():
        found["normalised_mean"] = _share(y / np.log(options[used]), drawn, n)
    counts = dict.fromkeys(TITLES, len(y))
    place, ends = _places(split)
    if place is not None:
        ranks = spearman_by_group(place, y, drawn.codes)
        known = ~np.isnan(ranks)
        if known.any():
            draws = ratio_draws(np.where(known, ranks, 0.0), known.astype(np.float64), drawn)
            found["within_trend"] = float(ranks[known].mean()), draws
        for name, rows in zip(("first", "last"), ends, strict=True):
            counts[name] = int(rows.sum())
            found[name] = _share(np.where(rows, y, 0.0), drawn, bincounts(rows.astype(np.float64), drawn))
    return {
        name: _estimate(title, *found[name], counts[name], drawn)
        if name in found
        else undefined(title, "the data does not say", counts[name])
        for name, title in TITLES.items()
    }


def _moments(drawn: ClusterDraws, n: Floats, first: Floats, second: Floats) -> dict[str, tuple[float | Point, Floats]]:
    """Mean, variance and its share between questions, of the rows and of every draw."""

    def of(weight: Floats) -> tuple[Floats, Floats, Floats]:
        total = weight @ n
        mean = (weight @ first) / total
        variance = (weight @ second) / total - mean**2
        between = (weight @ (first**2 / n)) / total - mean**2
        # What rounding leaves of a constant is no variance.
        some = variance > 1e-13 * (1 + mean**2)
        return mean, variance, np.where(some, between / np.where(some, variance, 1.0), np.nan)

    names = ("mean", "variance", "between_questions")
    values, draws = of(np.ones((1, len(n)))), of(drawn.times.astype(np.float64))
    found: dict[str, tuple[float | Point, Floats]] = {}
    for name, value, of_draws in zip(names, values, draws, strict=True):
        one = float(value[0])
        found[name] = (Point(None, "undefined: constant target") if np.isnan(one) else one), of_draws
    return found


def _share(values: Floats, drawn: ClusterDraws, n: Floats) -> tuple[float, Floats]:
    sums = bincounts(values, drawn)
    return float(sums.sum() / n.sum()), ratio_draws(sums, n, drawn)


def _medians(y: Floats, drawn: ClusterDraws) -> Floats:
    """(n_draws,) the median of each draw's rows."""
    order = np.argsort(y, kind="stable")
    ordered, codes = y[order], drawn.codes[order]
    found = np.empty(len(drawn.times))
    for start in range(0, len(found), _CHUNK):
        counts = np.cumsum(drawn.times[start : start + _CHUNK][:, codes], axis=1, dtype=np.int32)
        for i, cumulated in enumerate(counts):
            total = cumulated[-1]
            middle = [int(np.searchsorted(cumulated, k)) for k in ((total + 1) // 2, total // 2 + 1)]
            found[start + i] = ordered[middle].mean()
    return found


def _estimate(title: str, value: float | Point, draws: Floats, n: int, drawn: ClusterDraws) -> Estimate:
    if isinstance(value, Point):
        return undefined(title, value.status.removeprefix("undefined: "), n)
    low, high, status = interval_of(draws, drawn.n_clusters)
    return Estimate(value, low, high, n, title, drawn.n_clusters, status)


def _column(split: SplitData, name: str) -> Floats | None:
    if name not in split.hidden.columns or split.hidden[name].null_count():
        return None
    return np.asarray(split.hidden[name].to_numpy(), np.float64)


def _rollouts(split: SplitData) -> Iterator[NDArray[np.int64]]:
    """Rows of each rollout, in the order of its boundaries."""
    used = np.flatnonzero(split.usable)
    index = split.hidden["sentence_idx"].to_numpy()[used]
    rollout = split.hidden["source_rollout_idx"].to_numpy()[used]
    _, code = np.unique(np.stack([split.groups[used], rollout]), axis=1, return_inverse=True)
    order = np.lexsort((index, code.ravel()))
    yield from np.split(order, np.flatnonzero(np.diff(code.ravel()[order])) + 1)


def _places(split: SplitData) -> tuple[Floats | None, tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """(n_used,) place of each boundary in its rollout from 0 to 1, and which are first and last."""
    n = int(split.usable.sum())
    ends = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    if any(_column(split, name) is None for name in ("sentence_idx", "source_rollout_idx")):
        return None, ends
    place = np.zeros(n)
    for rows in _rollouts(split):
        place[rows] = np.arange(len(rows)) / max(len(rows) - 1, 1)
        ends[0][rows[0]] = ends[1][rows[-1]] = True
    return place, ends


def _by_position(split: SplitData) -> pl.DataFrame:
    """Mean entropy in each tenth of the rollouts: questions first, then over them with a standard error."""
    import polars as pl

    schema = {
        "split": pl.String, "bin": pl.Int64, "mean": pl.Float64, "se": pl.Float64, "n": pl.Int64,
        "n_questions": pl.Int64,
    }  # fmt: skip
    place, _ = _places(split)
    if place is None:
        return pl.DataFrame(schema=schema)
    used = split.usable
    rows = pl.DataFrame(
        {
            "bin": np.minimum((place * POSITION_BINS).astype(np.int64), POSITION_BINS - 1),
            "question": split.groups[used],
            "y": split.y[used],
        }
    )
    return (
        rows.group_by("bin", "question")
        .agg(pl.col("y").mean(), n=pl.len())
        .group_by("bin")
        .agg(
            mean=pl.col("y").mean(),
            se=pl.col("y").std() / pl.len().sqrt(),
            n=pl.col("n").sum().cast(pl.Int64),
            n_questions=pl.len().cast(pl.Int64),
        )
        .sort("bin")
        .select(pl.lit(split.name).alias("split"), *[c for c in schema if c != "split"])
    )
