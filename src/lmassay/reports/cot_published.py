"""Tasks 8 and 9, analysed from what was published, in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from lmassay.reports.cot_run import evidence_table
from lmassay.reports.style import clean, console, interval, number, table

if TYPE_CHECKING:
    from lmassay.cot.compression_scores import CompressionReport
    from lmassay.cot.entropy import EntropyReport


def print_entropy(report: EntropyReport) -> None:
    """A table for each split."""
    out = console()
    out.print(Text.assemble(("lmassay cot  ", "bold"), clean(f"{report.task}, layout {report.layout}")))
    for split, figures in report.estimates.items():
        out.print()
        rows = [
            (name, number(e.value), interval(e.to_dict()), e.n, e.n_clusters, e.title + _status(e.status))
            for name, e in figures.items()
        ]
        made = table(split, ("figure", "value", "95 % interval", "n", "questions", "what"), rows)
        made.columns[-1].justify = "left"
        out.print(made)
    for notice in report.notices:
        out.print(clean(f"note: {notice}"))


def print_compression(report: CompressionReport) -> None:
    """Evidence first, then KL over all cells, by M and by ratio, then places."""
    out = console()
    out.print(evidence_table([row.to_dict() for row in report.evidence]))
    columns = ("selector", "measure", "at", "mean", "se", "median", "95 % interval", "cells", "missing", "questions")
    for by, title in (("all", "KL, questions first"), ("m", "By M"), ("ratio", "By compression ratio M / region")):
        rows = [
            (
                r["selector"], r["measure"], r["at"], number(r["mean"]), number(r["se"]), number(r["median"]),
                interval(r), r["n"], r["n_missing"], f"{r['n_questions']}{_few(r['status'])}",
            )
            for r in report.summary.filter(by=by).sort("measure", "selector", maintain_order=True).to_dicts()
        ]  # fmt: skip
        out.print()
        made = table(title, columns, rows)
        made.columns[1].justify = "left"
        out.print(made)
    out.print()
    wide = report.places.pivot("bin", index="selector", values="share")
    rows = [(row[0], *(number(v) for v in row[1:])) for row in wide.rows()]
    names = ("selector", *(f"{i}–{i + 1}" for i in range(10)))
    out.print(table("Share of kept sentences by tenth of the region (.100: no preference)", names, rows))
    if report.singles.height:
        out.print()
        alone = [
            (
                "all" if r["bin"] < 0 else f"{r['bin']}–{r['bin'] + 1}", number(r["mean"]), number(r["se"]),
                number(r["median"]), number(r["helps"]), r["n"], r["n_questions"],
            )
            for r in report.singles.to_dicts()
        ]  # fmt: skip
        names = ("tenth of the region", "mean", "se", "median", "share that helps", "sentences", "questions")
        out.print(table("A sentence alone: KL of keeping none - KL of keeping it, nats, questions first", names, alone))
    for notice in report.notices:
        out.print(clean(f"note: {notice}"))


def _status(status: str) -> str:
    return "" if status == "ok" else f" ({status})"


def _few(status: str) -> str:
    return "" if status == "ok" else " (few)" if status == "few_clusters" else " (no interval)"
