"""A run as a LaTeX row, a BibTeX entry and a content hash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmassay.markup import survival
from lmassay.storage.bundle import content_hash
from lmassay.storage.runs import blaming, read_record, read_scores

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def latex(text: str) -> str:
    """Text with every character LaTeX reads as a command escaped."""
    return "".join(_LATEX.get(c, c) for c in text if c.isprintable())


#: Of a cot run: what each test split is cited by, as far as it has it.
_COT_FIGURES = ("g_mean2_mc", "g_mean2", "auroc", "r2")


def citation(run: Path) -> str:
    """The three forms of one finished run.

    Raises
    ------
    LmassayError
        ``bad-run-folder``.
    """
    with blaming(run):
        return _citation(run)


def _citation(run: Path) -> str:
    record, document = read_record(run), read_scores(run)
    digest = content_hash(run)
    suite = document["suite"]
    title, columns, cells = (_cot if suite == "cot" else _xray)(record["identity"], document)
    version = record["packages"]["lmassay"]
    return "\n".join(
        [
            f"% columns: {' & '.join(columns)}",
            " & ".join(cells) + r" \\",
            "",
            f"@misc{{lmassay-{digest[:12]},",
            f"  title = {{lmassay {suite} run of {title}}},",
            f"  howpublished = {{lmassay {version}, content sha256 {digest}}},",
            f"  year = {{{record['started'][:4]}}},",
            "}",
            "",
            f"content sha256: {digest}",
        ]
    )


def _xray(identity: dict[str, Any], document: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    scores = document["scores"]
    model, battery = latex(_named(identity["model"]["name"])), latex(_named(identity["battery"]["name"]))
    cells = [model, battery, *(_cell(scores[name]) for name in ("xray_score", "real_win", "psi", "psi_excess"))]
    columns = ["model", "battery", "XRay", "real win", "PSI", "PSI excess", "p"]
    return f"{model} on {battery}", columns, [*cells, _p(scores["psi_excess_p"])]


def _named(name: str) -> str:
    """A hub id or bundled name as it is; of a path on somebody's machine the last part."""
    return (
        name if name.count("/") <= 1 and not name.startswith((".", "~", "/")) else name.rstrip("/").rpartition("/")[2]
    )


def _cot(identity: dict[str, Any], document: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    scores, task, method = document["scores"], identity["task"], latex(identity["method"]["id"])
    # The layout and the regime belong to every figure: under others the data is another.
    data = latex(", ".join(part for part in (task["id"], task["layout"], task["regime"]) if part))
    names = [
        f"{split}.{figure}" for split in task["splits"] for figure in _COT_FIGURES if f"{split}.{figure}" in scores
    ]
    columns = ["method", "task", *(latex(name.replace(".", " ")) for name in names), "survives its controls"]
    survives = survival(document["survives_its_controls"])
    return f"{method} on {data}", columns, [method, data, *(_cell(scores[name]) for name in names), survives]


def _cell(score: dict[str, Any]) -> str:
    value, low, high = score["value"], score["low"], score["high"]
    if value is None:
        return "--"
    if isinstance(value, int):
        return f"${value}$"
    return f"${value:.3f}$" if low is None else f"${value:.3f}$ $[{low:.3f}, {high:.3f}]$"


def _p(score: dict[str, Any]) -> str:
    return "--" if score["value"] is None else f"${score['value']:.4f}$"
