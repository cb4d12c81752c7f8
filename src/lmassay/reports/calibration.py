"""A calibration in a terminal: the rates by kind of model, and whether the goal is met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lmassay.reports.style import clean, console, interval, number, table

_PARTS = {"positives": "Skilled models", "negatives": "Models without skill", "apart": "Reported apart"}


def print_calibration(document: dict[str, Any]) -> None:
    """The goal first, then a table per part: one row a kind, one column a figure."""
    out = console()
    rows = [(name, share(found), found["n"], found["verdict"]) for name, found in document["goal"].items()]
    out.print(table("Goal: 95 % detected, 5 % flagged", ("figure", "share", "models", "verdict"), rows))
    for part, title in _PARTS.items():
        out.print()
        out.print(table(title, ("kind", "models", *document["figures"], "accuracy"), _rows(document, part)))
    out.print()
    for name, title in document["figures"].items():
        out.print(clean(f"{name}: share of models with {title}"))
    if document["n_unskilled"]:
        out.print(clean(f"note: {document['n_unskilled']} models did not learn the skill and count nowhere"))


def share(rate: dict[str, Any]) -> str:
    """A share with its exact limits."""
    return f"{number(rate['value'])} {interval(rate)}".strip()


def _rows(document: dict[str, Any], part: str) -> Iterator[tuple[object, ...]]:
    for kind, rates in document["kinds"][part].items():
        accuracy = rates["mean_final_accuracy"]
        yield kind, rates["psi"]["n"], *_shares(document, rates), number(accuracy)
    pooled = document["pooled"].get(part)
    if pooled is not None:
        yield f"all {part}", pooled["psi"]["n"], *_shares(document, pooled), ""


def _shares(document: dict[str, Any], rates: dict[str, Any]) -> Iterable[str]:
    return [share(rates[figure]) for figure in document["figures"]]
