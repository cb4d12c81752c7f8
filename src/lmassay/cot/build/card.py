"""The card of a data set that was built: recipe, counts, what was dropped and why, what its audit found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmassay.cot.audit.findings import AuditReport
    from lmassay.cot.build.workshop import Row


def card(recipe: Mapping[str, Any], rows: Sequence[Row], dropped: Counter[str], audit: AuditReport | str) -> str:
    """Markdown.

    Parameters
    ----------
    audit : AuditReport or str
        Or why there is none.
    """
    lines = [
        f"# {recipe['task']} of {recipe['subject']['name']}",
        "",
        "Made by `lmassay cot generate`; read it with `--source` in `lmassay cot run`.",
        "",
        "## Recipe",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in _recipe(recipe)),
        "",
        "## Counts",
        "",
        *_counts(rows),
        "",
        "| drawn, forced, qualified | n |",
        "|---|---:|",
        *(f"| {what} | {n:,} |" for what, n in recipe["counts"].items()),
        "",
        "## Not in the data",
        "",
        *_dropped(dropped),
        "",
        "## Audit",
        "",
        *(_findings(audit) if not isinstance(audit, str) else [audit]),
    ]
    return "\n".join(lines) + "\n"


def _recipe(recipe: Mapping[str, Any]) -> list[tuple[str, Any]]:
    subject, questions = recipe["subject"], recipe["questions"]
    return [
        ("subject", subject["name"]),
        ("fingerprint", subject["fingerprint"]),
        ("thinking", ", ".join(f"{k} {v!r}" for k, v in subject["thinking"].items() if v)),
        ("questions", f"{questions['name']} ({questions['n']}, sha256 {questions['sha256']})"),
        ("seed", recipe["seed"]),
        ("lmassay", recipe["version"]),
        *([("monitor", recipe["monitor"]["name"])] if "monitor" in recipe else []),
        *recipe["settings"].items(),
    ]  # fmt: skip


def _cell(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace("|", r"\|").replace("\n", " ")


def _counts(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["No example qualified."]
    if "selector" in rows[0]:
        by = Counter(r["selector"] for r in rows)
        return ["| selector | cells |", "|---|---:|", *(f"| {s} | {n:,} |" for s, n in sorted(by.items()))]
    numbers = isinstance(rows[0]["label"], float)
    by = Counter((r["split"], "" if numbers else r["label"]) for r in rows)
    questions = {key: len({r["question_id"] for r in rows if r["split"] == key[0]}) for key in by}
    return [
        "| split | label | examples | questions of the split |",
        "|---|---|---:|---:|",
        *(f"| {split} | {label} | {n:,} | {questions[split, label]:,} |" for (split, label), n in sorted(by.items())),
    ]


def _dropped(dropped: Counter[str]) -> list[str]:
    if not dropped:
        return ["Nothing was dropped."]
    return ["| candidates | why |", "|---:|---|", *(f"| {n:,} | {why} |" for why, n in dropped.most_common())]


def _findings(audit: AuditReport) -> list[str]:
    if not audit.findings:
        return ["Nothing was found that gives the label away."]
    return [
        "| severity | check | subject | what |",
        "|---|---|---|---|",
        *(f"| {f.severity} | {f.check} | {_cell(f.subject)} | {_cell(f.what)} |" for f in audit.findings),
    ]
