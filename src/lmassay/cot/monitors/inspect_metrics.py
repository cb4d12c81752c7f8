"""Figures for Inspect's own tables: a first look; the run folder has them with intervals and controls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from inspect_ai.scorer import Metric, SampleScore, Score, ScoreReducer, Value, metric, score_reducer

from lmassay.cot.figures import MOST_UNPARSED
from lmassay.cot.predictions import LABEL_THRESHOLD, VALIDATION
from lmassay.measures import classification

#: The value of a reply that says nothing. Inspect drops what is no number, and then nobody sees how many there were.
UNTOLD = -1.0


def averaged(values: Sequence[float]) -> float:
    """The mean of the replies to one item that say something; `UNTOLD` unless they are more than half.

    Parameters
    ----------
    values : sequence of float
        NaN or `UNTOLD` where a reply says nothing.
    """
    told = [v for v in values if not math.isnan(v) and v != UNTOLD]
    return sum(told) / len(told) if 2 * len(told) > len(values) else UNTOLD


@score_reducer(name="replies_told")
def replies_told() -> ScoreReducer:
    """Several replies to one item as one score."""

    def reduce(scores: list[Score]) -> Score:
        value = averaged([s.as_float() for s in scores])
        first = scores[0]
        return Score(value=value, answer=first.answer, explanation=first.explanation, metadata=first.metadata)

    return reduce


def _metric(called: str, figure: Callable[[dict[str, _Rows], str], float]) -> Metric:
    # Inspect looks at the annotation: without it, scores come without the metadata of their samples.
    def by_split(scores: list[SampleScore]) -> Value:
        rows: dict[str, _Rows] = {}
        for one in scores:
            about = one.sample_metadata or {}
            rows.setdefault(str(about.get("split")), _Rows()).add(about.get("y"), one.score)
        return {f"{name}.{called}": figure(rows, name) for name in rows if name != VALIDATION}

    return by_split


class _Rows:
    """Labels and scores of one split."""

    def __init__(self) -> None:
        self.y: list[float] = []
        self.score: list[float] = []
        self.labels = False

    def add(self, y: float | None, score: Score) -> None:
        self.y.append(math.nan if y is None else y)
        value = score.as_float()
        self.score.append(math.nan if value == UNTOLD else value)
        self.labels |= bool((score.metadata or {}).get("labels"))

    @property
    def binary(self) -> bool:
        return all(y in (0, 1) for y in self.y)

    @property
    def unparsed(self) -> float:
        return float(np.isnan(self.score).mean())


@metric
def g_mean2() -> Metric:
    """TPR x TNR by split at the threshold that is best on validation; unparsed replies count as wrong."""

    def figure(rows: dict[str, _Rows], name: str) -> float:
        of, validation = rows[name], rows.get(VALIDATION)
        if not of.binary:
            return math.nan
        threshold: float | None = LABEL_THRESHOLD
        if not of.labels:
            threshold = (
                classification.choose_threshold(validation.y, validation.score).value
                if validation is not None
                else None
            )
        y, score = np.array(of.y), np.array(of.score)
        wrong = np.where(y == 1, -np.inf, np.inf)
        value = classification.rates(y, np.where(np.isnan(score), wrong, score), threshold)["g_mean2"].value
        return math.nan if value is None else value

    return _metric("g_mean2", figure)


@metric
def auroc() -> Metric:
    """Of parsed confidences, by split; none for labels, or where more than a tenth are unparsed."""

    def figure(rows: dict[str, _Rows], name: str) -> float:
        of = rows[name]
        if not of.binary or of.labels or of.unparsed > MOST_UNPARSED:
            return math.nan
        value = classification.auroc(of.y, of.score).value
        return math.nan if value is None else value

    return _metric("auroc", figure)


@metric
def unparsed() -> Metric:
    """Share of items whose replies say nothing, by split."""
    return _metric("unparsed", lambda rows, name: rows[name].unparsed)
