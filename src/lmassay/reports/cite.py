"""A run as a LaTeX row, a BibTeX entry and a content hash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmassay.errors import LmassayError
from lmassay.storage.bundle import content_hash
from lmassay.storage.runs import read_record, read_scores

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def latex(text: str) -> str:
    """Text with every character LaTeX reads as a command escaped."""
    return "".join(_LATEX.get(c, c) for c in text if c.isprintable())


def citation(run: Path) -> str:
    """The three forms of one finished run.

    Raises
    ------
    LmassayError
        ``bad-request`` for a run of another suite, whose scores have other names.
    """
    record, document = read_record(run), read_scores(run)
    if document.get("suite") != "xray":
        raise LmassayError(
            "bad-request",
            f"{run}: only runs of the xray suite can be cited yet",
            "name the sha256 that `lmassay bundle` prints",
        )
    digest = content_hash(run)
    scores = document["scores"]
    model, battery = latex(record["identity"]["model"]["name"]), latex(record["identity"]["battery"]["name"])
    cells = [model, battery, *(_cell(scores[name]) for name in ("xray_score", "real_win", "psi", "psi_excess"))]
    cells.append(_p(scores["psi_excess_p"]))
    version = record["packages"]["lmassay"]
    return "\n".join(
        [
            "% columns: model & battery & XRay & real win & PSI & PSI excess & p",
            " & ".join(cells) + r" \\",
            "",
            f"@misc{{lmassay-{digest[:12]},",
            f"  title = {{lmassay xray run of {model} on {battery}}},",
            f"  howpublished = {{lmassay {version}, content sha256 {digest}}},",
            f"  year = {{{record['started'][:4]}}},",
            "}",
            "",
            f"content sha256: {digest}",
        ]
    )


def _cell(score: dict[str, Any]) -> str:
    value, low, high = score["value"], score["low"], score["high"]
    if value is None:
        return "--"
    if isinstance(value, int):
        return f"${value}$"
    return f"${value:.3f}$" if low is None else f"${value:.3f}$ $[{low:.3f}, {high:.3f}]$"


def _p(score: dict[str, Any]) -> str:
    return "--" if score["value"] is None else f"${score['value']:.4f}$"
