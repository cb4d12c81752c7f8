"""A cot run in the terminal: evidence first, then the method beside its controls."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from lmassay.cot.terms import TERMS
from lmassay.markup import gathered
from lmassay.reports.evidence_table import fitting_evidence, narrow, verdict_line, wide_evidence
from lmassay.reports.page.words import counted
from lmassay.reports.style import clean, console, interval, number, table

#: Columns of the comparison with the controls, as far as a run has them.
_SHOWN = ("auroc", "g_mean2", "g_mean2_mc", "tpr", "tnr", "oracle_g_mean2", "within_auroc", "r2", "within_r2",
          "within_spearman", "unparsed", "g_mean2_parsed", "positive_rate", "base_rate", "r2_parsed",
          "answer_kl", "token_kl", "answer_kl_parsed", "token_kl_parsed")  # fmt: skip
#: Shorter than those of an xray run: names of controls are longer here.
_EVIDENCE = ("signal", "control", "signal", "control", "difference", "95 % interval", "p (Holm)", "n", "verdict")


def print_cot_run(record: dict[str, Any], document: dict[str, Any], *, folder: Path | None = None) -> None:
    """Evidence, scores, the method beside its controls, counts and notices.

    Parameters
    ----------
    folder : Path, optional
        The run's; where it is given, a map of method and split stands after the evidence.
    """
    out = console()
    identity = record["identity"]
    task, method = identity["task"], identity["method"]["id"]
    out.print(Text.assemble(("lmassay cot  ", "bold"), clean(f"{method} on {task['id']}")))
    about = [f"layout {task['layout']}", task["regime"] and f"regime {task['regime']}",
             f"validation {task['validation']}", f"seed {identity['settings']['seed']}"]  # fmt: skip
    out.print(clean("; ".join(a for a in about if a)))
    out.print(verdict_line(document["survives_its_controls"]))
    out.print()
    out.print(fitting_evidence(document["evidence"], evidence_table))
    if folder is not None:
        from lmassay.reports.terminal_maps import print_cot_maps

        print_cot_maps(document)
    out.print()
    out.print(_scores(document))
    for table_ in _side_by_side(method, document) if narrow() else (_beside_controls(method, document),):
        out.print()
        out.print(table_)
    out.print()
    for split, counts in document["counts"].items():
        statuses = ", ".join(f"{name} {n}" for name, n in counts["statuses"].items())
        out.print(clean(f"{split}: {counts['n_scored']} of {counts['n_total']} scored,"
                        f" {counted(counts['n_groups'], 'question')} ({statuses})"))  # fmt: skip
    for name, chosen in record.get("choices", {}).items():
        # What it weighs most is a table of its own: `cot features` prints it.
        plain = {k: v for k, v in chosen.items() if not isinstance(v, dict) and k != TERMS}
        if plain:
            out.print(clean(f"{name} chose " + ", ".join(f"{k} = {v}" for k, v in plain.items())))
    for notice in gathered(document["notices"]):
        out.print(clean(f"note: {notice}"))


def evidence_table(rows: Iterable[dict[str, Any]]) -> Table:
    """Rows of evidence as dictionaries, in a table."""
    made = wide_evidence(rows, _EVIDENCE)
    made.columns[1].justify = "left"
    made.columns[-1].justify = "left"
    return made


def _scores(document: dict[str, Any]) -> Table:
    rows = []
    for name, score in document["scores"].items():
        notes = [] if score["status"] == "ok" else [score["status"]]
        notes += document["flags"].get(name, [])
        what = score["title"] + (f" ({'; '.join(notes)})" if notes else "")
        rows.append((name, number(score["value"]), interval(score), score["n"], score["n_clusters"], what))
    made = table("Scores", ("score", "value", "95 % interval", "n", "questions", "what"), rows)
    made.columns[-1].justify = "left"
    for column in made.columns[:5]:
        column.no_wrap = True
    return made


def _side_by_side(method: str, document: dict[str, Any]) -> list[Table]:
    """A table for each test split, turned round: a row for each figure, a column for each method."""
    every = {method: document["scores"], **document["controls"]}
    splits = list(dict.fromkeys(name.partition(".")[0] for name in document["scores"]))
    found = []
    for split in splits:
        rows = [
            (f, *(number(s[f"{split}.{f}"]["value"]) if f"{split}.{f}" in s else "" for s in every.values()))
            for f in _SHOWN
            if f"{split}.{f}" in document["scores"]
        ]
        found.append(table(f"Beside its controls: {split}", ("figure", *every), rows))
    return found


def _beside_controls(method: str, document: dict[str, Any]) -> Table:
    """A row for each method and test split."""
    every = {method: document["scores"], **document["controls"]}
    splits = list(dict.fromkeys(name.partition(".")[0] for name in document["scores"]))
    figures = [f for f in _SHOWN if any(f"{s}.{f}" in document["scores"] for s in splits)]
    rows = [
        (split, name, *(number(scores[f"{split}.{f}"]["value"]) if f"{split}.{f}" in scores else "" for f in figures))
        for split in splits
        for name, scores in every.items()
    ]
    made = table("Beside its controls", ("split", "method", *figures), rows)
    made.columns[1].justify = "left"
    return made
