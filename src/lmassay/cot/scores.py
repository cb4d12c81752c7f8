"""From the table of predictions to every score and every row of evidence; no method is needed for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmassay.cot.compared import evidence_rows, measure
from lmassay.cot.figures import median_figures
from lmassay.cot.predictions import CHOOSING, VALIDATION, rows_by_method
from lmassay.evidence import Evidence, judged, survives_its_controls
from lmassay.measures.intervals import Estimate
from lmassay.seeds import generator

if TYPE_CHECKING:
    import polars as pl

#: Figures that evidence is taken from; the first decides whether a run survives its controls.
SIGNALS = {"binary": ("g_mean2", "auroc"), "interventional": ("g_mean2", "auroc"), "regression": ("r2",)}
#: Figures of several out-of-distribution test sets that are summed up by their median.
MEDIANS = {
    "binary": ("g_mean2", "g_mean2_retuned", "auroc"),
    "interventional": ("g_mean2", "g_mean2_retuned", "auroc", "g_mean2_mc"),
    "regression": ("r2", "within_r2", "within_spearman"),
}
OOD = "ood"


@dataclass(frozen=True, slots=True)
class CotScores:
    """Everything ``scores.json`` of a cot run holds.

    Attributes
    ----------
    scores : mapping of str to Estimate
        ``<split>.<figure>`` of the method.
    controls : mapping of str to mapping of str to Estimate
        The same of each control.
    thresholds : mapping of str to dict
        ``value`` and ``status`` by method.
    flags : mapping of str to tuple of str
        By score of the method.
    counts : mapping of str to dict
        By split.
    """

    method: str
    scores: Mapping[str, Estimate]
    controls: Mapping[str, Mapping[str, Estimate]]
    thresholds: Mapping[str, Mapping[str, Any]]
    flags: Mapping[str, tuple[str, ...]]
    counts: Mapping[str, Mapping[str, Any]]
    evidence: tuple[Evidence, ...]
    survives: bool | None
    redrawn: Mapping[str, int]
    notices: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, in a fixed order."""
        return {
            "survives_its_controls": self.survives,
            "evidence": [row.to_dict() for row in self.evidence],
            "scores": {name: e.to_dict() for name, e in self.scores.items()},
            "controls": {c: {name: e.to_dict() for name, e in own.items()} for c, own in self.controls.items()},
            "thresholds": {name: dict(t) for name, t in self.thresholds.items()},
            "flags": {name: list(f) for name, f in self.flags.items()},
            "counts": {name: dict(c) for name, c in self.counts.items()},
            "redrawn": dict(self.redrawn),
            "notices": list(self.notices),
        }


def compute_scores(
    frame: pl.DataFrame, *, kind: str, ood_splits: Sequence[str], seed: int, answers: str | None = None
) -> CotScores:
    """All scores of the first method of the table, held against the others.

    Parameters
    ----------
    frame : polars.DataFrame
        As `predictions_frame` makes it.
    kind : {"binary", "interventional", "regression"}
    ood_splits : sequence of str
        Which test splits are out of distribution.
    answers : str or None
        What the first method, where it is a language model that was asked, replies with.
    """
    table = rows_by_method(frame)
    method, *controls = table
    splits = [name for name in table[method] if name not in (VALIDATION, CHOOSING)]
    # Draws are named by the data: every method, of this run or another, is drawn alike.
    named = "/".join(str(frame[c][0]) for c in ("task", "layout", "regime"))
    measured = {
        name: measure(
            rows,
            splits,
            kind,
            lambda split: generator(seed, f"{named}/{split}", "cot bootstrap"),
            answers if name == method else None,
        )
        for name, rows in table.items()
    }
    ood = [name for name in splits if name in ood_splits]
    if len(ood) > 1:
        for one in measured.values():
            one.figures[OOD] = median_figures([one.figures[name] for name in ood], MEDIANS[kind])
    parts = [name for name in splits if name not in ood] + ([OOD] if len(ood) > 1 else ood)
    rows, notices = evidence_rows(measured, method, controls, parts, SIGNALS[kind])
    evidence = judged(rows)
    own = measured[method]
    headline = [row for row in evidence if row.metric == SIGNALS[kind][0]]
    return CotScores(
        method=method,
        scores=own.flat(),
        controls={name: measured[name].flat() for name in controls},
        thresholds={name: m.threshold for name, m in measured.items() if m.at is not None},
        flags={f"{s}.{name}": f for s, figures in own.figures.items() for name, f in figures.flags.items()},
        counts={name: table[method][name].counts for name in table[method]},
        evidence=evidence,
        survives=survives_its_controls(headline),
        redrawn={name: drawn.n_redrawn for name, drawn in own.drawn.items()},
        notices=tuple(notices),
    )
