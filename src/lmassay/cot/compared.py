"""A method held against its controls: the same draws of the same questions, the difference draw by draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lmassay.cot.figures import Figures, Tuned, binary_figures, regression_figures, tuned
from lmassay.cot.predictions import VALIDATION, Rows
from lmassay.evidence import MARGINS, Evidence, bootstrap_p, no_evidence
from lmassay.measures.bootstrap import ClusterDraws, cluster_draws, interval_of

#: Whose draws the difference of a figure is taken from: a threshold is part of what is uncertain.
DRAWN_AS = {"g_mean2": "g_mean2_retuned"}

Rng = Callable[[str], np.random.Generator]


@dataclass(frozen=True, slots=True)
class Measured:
    """One method's figures.

    Attributes
    ----------
    figures : dict of str to Figures
        By test split, and under ``ood`` their median where there are several out of distribution.
    drawn : dict of str to ClusterDraws
        By split, validation included.
    at : Tuned or None
        The threshold; None in regression.
    answers : str or None
        What a language model that was asked replies with.
    """

    kind: str
    figures: dict[str, Figures]
    drawn: dict[str, ClusterDraws]
    at: Tuned | None
    answers: str | None = None

    def flat(self) -> dict[str, Any]:
        """``<split>.<figure>`` -> Estimate."""
        return {f"{split}.{name}": e for split, f in self.figures.items() for name, e in f.estimates.items()}

    @property
    def threshold(self) -> dict[str, Any]:
        """Value and status."""
        assert self.at is not None
        return {"value": self.at.threshold.value, "status": self.at.threshold.status}


def measure(
    rows: Mapping[str, Rows], splits: Sequence[str], kind: str, rng: Rng, answers: str | None = None
) -> Measured:
    """All figures of one method on its test splits.

    Parameters
    ----------
    rows : mapping of str to Rows
        By split.
    rng : callable
        The generator of a split's draws: the same for every method.
    answers : str or None
        What a language model that was asked replies with.
    """
    if kind == "regression":
        drawn = {name: cluster_draws(rows[name].groups, rng(name)) for name in splits}
        figures = {name: regression_figures(rows[name], drawn[name], answers) for name in splits}
        return Measured(kind, figures, drawn, None, answers)
    drawn = {name: cluster_draws(rows[name].groups, rng(name), y=rows[name].y) for name in (VALIDATION, *splits)}
    at = tuned(rows[VALIDATION], drawn[VALIDATION], answers)
    figures = {name: _binary(rows[name], drawn[name], at, kind, answers) for name in splits}
    return Measured(kind, figures, drawn, at, answers)


def _binary(rows: Rows, drawn: ClusterDraws, at: Tuned, kind: str, answers: str | None) -> Figures:
    if len(at.draws) != len(drawn.times):
        # One side has too few questions to be drawn, so there are no draws of both together.
        at = Tuned(at.threshold, np.full(len(drawn.times), np.nan))
    return binary_figures(rows, drawn, at, interventional=kind == "interventional", answers=answers)


def evidence_rows(
    measured: Mapping[str, Measured],
    method: str,
    controls: Sequence[str],
    parts: Sequence[str],
    signals: Sequence[str],
) -> tuple[list[Evidence], list[str]]:
    """A row for each part (in and out of distribution), figure and control; and what has no row, with the reason."""
    rows, notices = [], []
    for part in parts:
        for metric in signals:
            for control in controls:
                signal = f"{part}.{metric}"
                second = measured[control].figures[part].estimates[metric]
                first = measured[method].figures[part].estimates[metric]
                if second.value is None:
                    # A control that says the same of every example separates nothing: there is nothing to beat.
                    notices.append(f"{signal} is not held against {control}: {_reason(second.status)}")
                elif first.value is None:
                    rows.append(no_evidence(signal, control, metric, _reason(first.status)))
                else:
                    rows.append(_paired(part, metric, control, measured[method], measured[control]))
    return rows, notices


def _reason(status: str) -> str:
    return status.removeprefix("undefined: ")


def _paired(part: str, metric: str, control: str, one: Measured, other: Measured) -> Evidence:
    a, b = one.figures[part], other.figures[part]
    if part in one.drawn:
        # An order of scores is taken over those there are; elsewhere an unparsed reply counts, as wrong.
        ours, theirs = (f.rows.scored if metric == "auroc" else f.rows.counted for f in (a, b))
        if not (ours == theirs).all():
            a, b = _again(part, one, ours & theirs), _again(part, other, ours & theirs)
    signal, first, second = f"{part}.{metric}", a.estimates[metric], b.estimates[metric]
    if first.value is None or second.value is None:
        return no_evidence(signal, control, metric, "too few rows that both scored")
    drawn_as = DRAWN_AS.get(metric, metric)
    draws = a.draws[drawn_as] - b.draws[drawn_as]
    draws = draws[~np.isnan(draws)]
    low, high, _ = interval_of(draws, first.n_clusters)
    if low is None:
        return no_evidence(signal, control, metric, "too few questions to be drawn")
    return Evidence(
        signal=signal,
        control=control,
        metric=metric,
        signal_value=first.value,
        control_value=second.value,
        difference=first.value - second.value,
        low=low,
        high=high,
        p=bootstrap_p(draws),
        p_holm=None,
        n=first.n,
        n_clusters=first.n_clusters,
        margin=MARGINS[metric],
    )


def _again(part: str, one: Measured, common: np.ndarray[Any, np.dtype[np.bool_]]) -> Figures:
    """The figures of a split on some of its rows only; the threshold stays the method's own."""
    rows = one.figures[part].rows
    fewer = replace(rows, score=np.where(common, rows.score, np.nan), unparsed=rows.unparsed & common)
    if one.at is None:
        return regression_figures(fewer, one.drawn[part], one.answers)
    return _binary(fewer, one.drawn[part], one.at, one.kind, one.answers)
