"""An audit in the terminal: how the splits are made up, then what is wrong, worst first. All names are untrusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from lmassay.reports.style import clean, console, number, table

if TYPE_CHECKING:
    from lmassay.cot.audit.findings import AuditReport, Figure, Finding

STYLE = {"leak": "bold red", "warning": "yellow", "hidden": "cyan", "note": "dim"}
#: Features in the table unless all are asked for.
SHOWN = 15
#: Characters of a name; a data set's can be of any length.
LONGEST = 60


def print_audit(report: AuditReport, *, full: bool = False) -> None:
    """Splits, findings, the strongest features."""
    out = console()
    out.print(Text.assemble(("lmassay cot audit  ", "bold"), clean(report.name)))
    out.print(clean(f"label: {report.target}; seed {report.seed}, {report.draws} draws of questions, "
                    f"{report.n_tests} tests corrected together"))  # fmt: skip
    out.print()
    out.print(_splits(report))
    out.print()
    if report.findings:
        out.print(_findings(report.findings, full=full))
    else:
        out.print("Nothing found.")
    if report.figures:
        shown = report.figures if full else _strongest(report.figures)
        out.print()
        out.print(_features(shown[: None if full else SHOWN]))
        if not full and len(shown) > SHOWN:
            out.print(f"… and {len(shown) - SHOWN} more features; --full shows them, in every split", style="dim")
    out.print()
    for note in report.notes:
        out.print(clean(f"note: {note}"))
    leaks = report.leaks
    bound = f"{report.max_auroc:.2f}"
    verdict = (
        f"{len(leaks)} visible feature{'s tell' if len(leaks) > 1 else ' tells'} the label with an AUROC above {bound}"
        if leaks
        else f"no visible feature's corrected lower bound passes {bound}"
    )
    out.print(Text(verdict, "bold red" if leaks else "bold green"))


def _strongest(figures: Sequence[Figure]) -> list[Figure]:
    """The figure of each feature with the highest bound, highest first."""
    best: dict[tuple[str, bool], Figure] = {}
    for f in sorted(figures, key=lambda f: (-(f.strength_low or 0.0), -f.strength, f.feature, f.split)):
        best.setdefault((f.feature, f.scope.startswith("train")), f)
    return list(best.values())


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _splits(report: AuditReport) -> Table:
    rows = [
        (s.split, f"{s.n:,}", f"{s.positive:,}", f"{s.negative:,}", s.unlabelled, number(s.share),
         "" if s.low is None else f"[{s.low:.3f}, {s.high:.3f}]", s.questions, s.one_label)
        for s in report.splits
    ]  # fmt: skip
    columns = ("split", "rows", "positive", "negative", "no label", "share", "95 % interval", "questions", "one label")
    return table("Splits", columns, rows)


def _findings(findings: Sequence[Finding], *, full: bool) -> Table:
    rows = []
    for f in findings:
        also = f.also if full else f.also[:3]
        more = f" (+{len(f.also) - len(also)})" if len(also) < len(f.also) else ""
        named = f"; also {', '.join(map(_cut, also))}{more}" if also else ""
        rows.append((Text(f.severity, STYLE[f.severity]), f.check, _cut(f.subject), f.what + named))
    made = table("Findings, worst first (* passes the correction)", ("what it is", "check", "in", "found"), rows)
    for column in made.columns:
        column.justify = "left"
    return made


def _features(figures: Sequence[Figure]) -> Table:
    rows = [
        (
            _cut(f.feature), f.seen, f.split, f.scope, number(f.auroc),
            "" if f.low is None else f"[{f.low:.3f}, {f.high:.3f}]", number(f.strength_low), number(f.g_mean2),
            "" if f.g_mean2_low is None else f"[{f.g_mean2_low:.3f}, {f.g_mean2_high:.3f}]", f.n, f.n_questions,
        )
        for f in figures
    ]  # fmt: skip
    columns = (
        "feature",
        "seen",
        "split",
        "pairs",
        "AUROC",
        "95 % interval",
        "bound",
        "g-mean²",
        "95 % interval",
        "n",
        "questions",
    )
    made = table("Features as classifiers, strongest first", columns, rows)
    for column in made.columns[1:4]:
        column.justify = "left"
    return made
