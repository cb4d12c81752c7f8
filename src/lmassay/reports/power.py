"""The answer to a power question as tables."""

from __future__ import annotations

from typing import Any

from lmassay.reports.style import clean, console, number, table


def print_power(found: dict[str, Any]) -> None:
    """One table of variances, and for each difference the templates needed by effect and tasks per template."""
    out = console()
    rows = [
        (r["difference"], number(r["between"]), number(r["within"]), r["n"], r["n_templates"], r["status"])
        for r in found["rows"]
    ]
    columns = ("difference", "between templates", "within", "tasks", "templates", "status")
    out.print(table("Variance in the pilot", columns, rows))
    for row in found["rows"]:
        if not row["needed"]:
            continue
        each = list(dict.fromkeys(cell["tasks_per_template"] for cell in row["needed"]))
        effects = list(dict.fromkeys(cell["effect"] for cell in row["needed"]))
        needed = {(c["effect"], c["tasks_per_template"]): c["templates"] or c["status"] for c in row["needed"]}
        out.print()
        title = f"{row['difference']}: templates needed, power {found['power']}, alpha {found['alpha']}"
        cells = [(f"{effect:g}", *(needed[effect, m] for m in each)) for effect in effects]
        out.print(table(title, ("true difference", *(f"{m} tasks each" for m in each)), cells))
    out.print()
    out.print(clean("a t-test on template means stands in for the bootstrap of the Evidence rows"))
