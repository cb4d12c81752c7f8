"""What an audit says: one finding for each thing that is wrong, worst first."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lmassay.markup import html_table, noted

Severity = Literal["leak", "warning", "hidden", "note"]

#: Worst first. ``leak``: what a method sees tells the label, with the corrected bound above --max-auroc.
#: ``warning``: scores on this data mean less than they seem to. ``hidden``: a field that must stay hidden.
#: ``note``: worth knowing.
SEVERITIES: tuple[Severity, ...] = ("leak", "warning", "hidden", "note")


@dataclass(frozen=True, slots=True)
class Figure:
    """A feature as a classifier on the rows of a split.

    Attributes
    ----------
    feature, seen, family : str
    split : str
        ``evaluation`` is all but the training rows, each split's pairs by themselves.
    scope : str
        ``all`` pairs of rows, those ``within`` one question, or ``train against split``.
    auroc : float or None
        Above .5 where higher values are positive.
    low, high : float or None
        95 % by bootstrap over questions.
    strength_low : float or None
        Holm-corrected lower bound of max(AUROC, 1 - AUROC).
    p_holm : float or None
        Corrected p of the strength being at most .55.
    g_mean2, g_mean2_low, g_mean2_high : float or None
        TPR·TNR at the threshold and in the direction that the training rows choose.
    n, n_questions : int
    status : str
    """

    feature: str
    seen: str
    family: str
    split: str
    scope: str
    auroc: float | None
    low: float | None
    high: float | None
    strength_low: float | None
    p_holm: float | None
    g_mean2: float | None
    g_mean2_low: float | None
    g_mean2_high: float | None
    n: int
    n_questions: int
    status: str

    @property
    def strength(self) -> float:
        """max(AUROC, 1 - AUROC); 0 where undefined."""
        return max(self.auroc, 1 - self.auroc) if self.auroc is not None else 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes
    ----------
    severity : str
        One of `SEVERITIES`.
    check : str
        ``feature``, ``order in a question``, ``format``, ``class balance``, ``words near the end``, or a check of
        `lmassay.cot.audit.duplicates`.
    subject : str
        The feature, or the splits.
    what : str
        In words.
    size : float
        By which findings of one severity are ordered.
    also : tuple of str
        Other names of the same thing.
    figures : tuple of Figure
    """

    severity: Severity
    check: str
    subject: str
    what: str
    size: float = 0.0
    also: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SplitCount:
    """How a split is made up.

    Attributes
    ----------
    split : str
    n, positive, negative, unlabelled : int
    questions, one_label : int
        Questions, and those all of whose rows have one label.
    share, low, high : float or None
        Share of positives with its 95 % interval by question.
    """

    split: str
    n: int
    positive: int
    negative: int
    unlabelled: int
    questions: int
    one_label: int
    share: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All an audit found.

    Attributes
    ----------
    name, target, fingerprint : str
    max_auroc : float
    seed, draws : int
    n_tests : int
        Tests that Holm's correction covers.
    splits : tuple of SplitCount
    findings : tuple of Finding
        Worst first.
    figures : tuple of Figure
        Of every feature and split, strongest first.
    notes : tuple of str
        What could not be looked at, and what else a reader must know.
    """

    name: str
    target: str
    fingerprint: str
    max_auroc: float
    seed: int
    draws: int
    n_tests: int
    splits: tuple[SplitCount, ...]
    findings: tuple[Finding, ...]
    figures: tuple[Figure, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<AuditReport {self.name}: {len(self.findings)} findings, {len(self.leaks)} of them leaks>"

    def _repr_html_(self) -> str:
        """Findings, worst first, for a notebook."""
        rows = [(f.severity, f.check, f.subject, f.what) for f in self.findings]
        table = html_table(f"Audit of {self.name}", ("what it is", "check", "in", "found"), rows, left=3)
        return table + noted(self.notes)

    @property
    def leaks(self) -> tuple[Finding, ...]:
        """The findings for which the command exits with 4."""
        return tuple(f for f in self.findings if f.severity == "leak")

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, for a program."""
        return {**asdict(self), "leaks": [f.subject for f in self.leaks]}


def ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """Worst first."""
    return tuple(sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -f.size, f.check, f.subject)))
