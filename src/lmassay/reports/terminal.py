"""Runs, comparisons and checks as tables in a terminal, plain text off one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from lmassay.markup import gathered
from lmassay.reports.evidence_table import fitting_evidence, verdict_line
from lmassay.reports.style import PLAIN_WIDTH as PLAIN_WIDTH
from lmassay.reports.style import clean, number
from lmassay.reports.style import console as _console
from lmassay.reports.style import interval as _interval
from lmassay.reports.style import table as _table

if TYPE_CHECKING:
    from lmassay.models.numerics import NumericsRow
    from lmassay.storage.fetch import BundledModel

#: Signals whose rows of evidence are their score with the sign turned.
_TURNED = ("ablation_j",)


def print_run(record: dict[str, Any], document: dict[str, Any], *, folder: Path | None = None) -> None:
    """Evidence first, then scores, families, paraphrase groups, counts and notices.

    Parameters
    ----------
    folder : Path, optional
        Where the run's tables are: heat maps are drawn from them after the evidence.
    """
    console = _console()
    identity, model = record["identity"], record["model"]
    console.print(Text.assemble(("lmassay xray  ", "bold"), clean(f"{model['name']} on {identity['battery']['name']}")))
    settings = identity["settings"]
    about = [settings["protocol"], identity["convention"]["dtype"], f"seed {settings['seed']}", *model["notes"]]
    console.print(clean("; ".join(str(a) for a in about if a)))
    console.print(verdict_line(document["survives_its_controls"]))
    console.print()
    rows = document["evidence"]
    console.print(fitting_evidence(rows))
    for signal in dict.fromkeys(row["signal"] for row in rows if row["signal_value"] is not None):
        if signal in _TURNED:
            console.print(f"{signal}: the score below with its sign turned, so that larger is more of the signal")
    if folder is not None:
        from lmassay.reports.terminal_maps import print_xray_maps

        print_xray_maps(folder, document)
    console.print()
    scores = [
        (name, number(s["value"]), _interval(s), s["n"], s["title"] + _status(s["status"]))
        for name, s in document["scores"].items()
    ]
    table = _table("Scores", ("score", "value", "95 % interval", "n", "what"), scores)
    table.columns[-1].justify = "left"
    for column in table.columns[:4]:
        column.no_wrap = True
    console.print(table)
    console.print()
    families = [
        (name, number(s["value"]), _interval(s), s["n"], s["n_clusters"], s["status"])
        for name, s in document["families"].items()
    ]
    console.print(_table("PSI by family", ("family", "PSI", "95 % interval", "tasks", "templates", "status"), families))
    if document["paraphrase_groups"]:
        console.print()
        console.print(_groups(document["paraphrase_groups"]))
    console.print()
    counts = document["counts"]
    console.print(clean("counts: " + ", ".join(f"{name} {n}" for name, n in counts.items())))
    for notice in gathered(document["notices"]):
        console.print(clean(f"note: {notice}"))


def _status(status: str) -> str:
    return "" if status == "ok" else f" ({status})"


def _groups(groups: Iterable[dict[str, Any]]) -> Table:
    rows = [
        (g["group"], number(g["jaccard"]), number(g["win_rate"]), number(g["final_accuracy"]), g["n_wordings"],
         "never wins" if g["n_wordings"] and not g["any_win"] else "")
        for g in groups
    ]  # fmt: skip
    return _table("Paraphrase groups", ("group", "Jaccard", "win rate", "final accuracy", "wordings", ""), rows)


def print_comparison(comparison: dict[str, Any]) -> None:
    """Runs as columns, a table for each battery."""
    console = _console()
    # One battery may have two names (two files of the same content), so runs go together by its digest.
    digests = [comparison["convention"]["battery"][run["battery"]] for run in comparison["runs"]]
    for digest in dict.fromkeys(digests):
        console.print(_side_by_side(comparison, [i for i, other in enumerate(digests) if other == digest]))
        console.print()
    console.print("a rate of any win grows with the number of blocks: compare models by psi_excess and its p")


def _side_by_side(comparison: dict[str, Any], places: Sequence[int]) -> Table:
    runs = [comparison["runs"][i] for i in places]
    names = [
        clean(run["model"] if run["n_blocks"] is None else f"{run['model']} ({run['n_blocks']} blocks)") for run in runs
    ]
    survive = [run["survival"] for run in runs]
    rows: list[list[object]] = [["survives its controls", *survive]]
    rows += [[name, *(_cell(scores[i]) for i in places)] for name, scores in comparison["scores"].items()]
    for family, scores in comparison["families"].items():
        if any(scores[i] is not None for i in places):
            rows.append([f"PSI {family}", *(_cell(scores[i]) for i in places)])
    return _table(f"Runs on {runs[0]['battery']}", ("score", *names), rows)


def _cell(score: dict[str, Any] | None) -> str:
    if score is None or score["value"] is None:
        return "–"
    return f"{number(score['value'])} {_interval(score)}".rstrip()


def print_models(bundled: Sequence[BundledModel], families: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Bundled models and the families read by name."""
    console = _console()
    rows = [(m.name, m.title, m.licence, f"{m.megabytes} MB") for m in bundled]
    table = _table("Bundled models", ("name", "what", "licence", "download"), rows)
    table.columns[1].justify = table.columns[2].justify = "left"
    console.print(table)
    console.print()
    table = _table(
        "Families read by name (others by structure)",
        ("family", "model types"),
        [(n, ", ".join(t)) for n, t in families],
    )
    table.columns[1].justify = "left"
    console.print(table)


def print_check(name: str, family: str, packing: bool, figures: dict[str, float], rows: Sequence[NumericsRow]) -> None:
    """Self-check figures and the numerics table."""
    console = _console()
    console.print(clean(f"{name}: family {family}, {'packed rows' if packing else 'shared prompt cache'}"))
    console.print(_table("Self-check", ("figure", "nats"), [(k, f"{v:.2g}") for k, v in figures.items()]))
    console.print()
    cells = [
        (r.what, f"{r.largest_change:.2g}", f"{r.changed_decisions} of {r.n_decisions}", "exceeds" if r.exceeds else "")
        for r in rows
    ]
    console.print(_table("Change in option scores", ("what", "largest, nats", "decisions changed", ""), cells))
