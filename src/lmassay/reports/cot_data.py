"""Tasks, examples and imports of the cot suite in a terminal. Everything from data is untrusted text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from lmassay.reports.style import clean, console, table

if TYPE_CHECKING:
    from lmassay.cot.catalogue import TaskRow
    from lmassay.cot.published import ImportReport
    from lmassay.examples import VisibleExample

#: Characters of a segment that are shown unless all are asked for.
SHOWN = 2000
#: Files kept out that are named for each table; the store's table.json has them all.
NAMED = 10


def print_tasks(rows: Sequence[TaskRow]) -> None:
    """A line a task: subject, kind, classes, metric, records of each split, state."""
    lines = [
        (
            row.task.number or "–", row.task.id, row.task.subject, row.task.kind,
            row.task.positive if row.task.positive is not None else row.task.unit or "–", row.task.metric,
            ", ".join(f"{name} {n:,}" for name, n in row.sizes.items()) or "–", row.state,
        )
        for row in rows
    ]  # fmt: skip
    columns = ("n", "task", "subject", "kind", "positive", "metric", f"records ({rows[0].layout})", "store")
    made = table("Tasks", columns, lines)
    for column in made.columns:
        column.justify = "left"
    console().print(made)


def print_example(task: str, split: str, example: VisibleExample, *, full: bool) -> None:
    """An example's segments, as a method is given them."""
    out = console()
    out.print(Text.assemble((f"{task}  ", "bold"), clean(f"{split}, example {example.key}")))
    for segment in example.segments:
        out.print()
        label = f" {segment.label}" if segment.label is not None else ""
        out.print(Text(f"[{segment.kind}").append(clean(label)).append("]"), style="bold")
        text = segment.text if full else segment.text[:SHOWN]
        # Line breaks are kept; everything else that is not printed as itself is made visible.
        for line in text.split("\n"):
            out.print(clean(line), soft_wrap=True)
        if len(text) < len(segment.text):
            out.print(f"… {len(segment.text) - len(text):,} more characters; --full shows them", style="dim")


def example_json(task: str, split: str, example: VisibleExample) -> dict[str, Any]:
    """The same for a program."""
    segments = [{"kind": s.kind, "label": s.label, "text": s.text} for s in example.segments]
    return {"task": task, "split": split, "key": example.key, "segments": segments}


def print_import(report: ImportReport) -> None:
    """What was found beside what the release counts, and what was kept out."""
    out = console()
    rows = [
        (
            t.table, f"{t.found:,}", f"{t.expected:,}", len(t.kept_out),
            "as published" if t.as_published and t.status == "imported" else
            "as published, unchanged" if t.as_published else
            t.status if t.status != "imported" else "differs",
        )
        for t in report.tables
    ]  # fmt: skip
    out.print(table(f"Import ({report.kind})", ("table", "found", "published", "kept out", "what"), rows))
    for t in report.tables:
        if t.why:
            out.print(clean(f"{t.table}: {t.why}"))
        for name, why in t.kept_out[:NAMED]:
            out.print(clean(f"kept out of {t.table}: {name}: {why}"))
        if len(t.kept_out) > NAMED:
            out.print(f"… and {len(t.kept_out) - NAMED} more of {t.table}; the store's manifest names them all")
    for kind, names in (("not of any table", report.strays), ("refused", report.refused)):
        for name in names[:NAMED]:
            out.print(clean(f"{kind}: {name}"))
        if len(names) > NAMED:
            out.print(f"… and {len(names) - NAMED} more that are {kind}")
    found = sum(t.found for t in report.tables)
    expected = sum(t.expected for t in report.tables)
    out.print(
        f"{found:,} records and prompts, {expected:,} published" + ("; as published" if report.as_published else "")
    )
