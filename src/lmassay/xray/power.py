"""How large a battery a question needs, from the variance a pilot run shows between and within templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmassay.errors import LmassayError
from lmassay.measures.intervals import FEW
from lmassay.measures.power import ALPHA, POWER, clusters_needed, variance_components
from lmassay.storage.runs import check_tables, finished_record
from lmassay.xray.measured import Measured, measure
from lmassay.xray.scored import PROMPT_SWAP, SEMANTICS_BREAK
from lmassay.xray.scores import without_last_block
from lmassay.xray.tables import read_tables

EFFECTS = (0.05, 0.1, 0.2)
EACH = (1, 2, 4, 8, 16)
NOT_APART = "undefined: no template of the pilot has two tasks, so its variances cannot be told apart"
TOO_FEW = "undefined: the pilot has under two templates with this figure"
FOUND, TOO_MANY = "ok", "more than 100,000 templates"


def differences(tasks: Sequence[Measured]) -> dict[str, list[tuple[str, float]]]:
    """What each Evidence row averages: (template, signal minus control) of every task it holds."""
    return {
        "real_win - random_label": [(m.task.template, m.won - m.expected_random) for m in tasks],
        "real_win - matched_token": [(m.task.template, m.won - m.expected_matched) for m in tasks],
        **{
            f"real_win - {control}": [
                (m.task.template, float(m.won) - c.won) for m in tasks if (c := m.under(control)) is not None
            ]
            for control in (SEMANTICS_BREAK, PROMPT_SWAP)
        },
        "psi_excess": [(m.task.template, m.psi_excess) for m in tasks],
    }


def _at_least(templates: int | None) -> int | None:
    """No verdict is given under ten templates, however sure."""
    return None if templates is None else max(templates, FEW)


def power_table(
    run: Path, *, effects: Sequence[float] = EFFECTS, each: Sequence[int] = EACH, power: float = POWER
) -> dict[str, Any]:
    """Templates needed to find a true difference, for every Evidence row, effect and number of tasks per template.

    Raises
    ------
    LmassayError
        ``bad-request`` for an effect or a power that is none; ``bad-run-folder``.
    """
    if not effects or not all(0 < effect <= 1 for effect in effects) or not 0.5 <= power < 1:
        raise LmassayError(
            "bad-request", "an effect lies between 0 and 1, a power from .5 to below 1", "choose others, such as 0.1"
        )
    if not each or min(each) < 1:
        raise LmassayError("bad-request", "a template has one task or more", "choose numbers from 1")
    record = finished_record(run)
    check_tables(run, record)
    settings = record["identity"]["settings"]
    scored, labels = read_tables(run, settings["protocol"], record.get("skipped", {}))
    if settings["depths"] == "distinct":
        scored = without_last_block(scored)
    decided = measure(
        scored,
        seed=settings["seed"],
        span=settings["span"],
        repeats_final=settings["depths"] == "paper",
        labels=labels,
    )
    rows = []
    for name, pairs in differences(decided.tasks).items():
        found = variance_components([d for _, d in pairs], [t for t, _ in pairs]) if pairs else None
        n_templates = len({t for t, _ in pairs})
        about = {"difference": name, "n": len(pairs), "n_templates": n_templates}
        if found is None:
            status = TOO_FEW if n_templates < 2 else NOT_APART
            rows.append(about | {"between": None, "within": None, "status": status, "needed": []})
            continue
        needed = [
            {"effect": effect, "tasks_per_template": m, "templates": _at_least(k), "status": FOUND if k else TOO_MANY}
            for effect in effects
            for m in each
            for k in [clusters_needed(found, effect, m, power=power)]
        ]
        rows.append(about | {"between": found.between, "within": found.within, "status": FOUND, "needed": needed})
    return {"run": str(run), "alpha": ALPHA, "power": power, "rows": rows}
