"""A fitted lens in a terminal: how far each depth is from the output, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmassay.reports.style import clean, console, interval, number, table

if TYPE_CHECKING:
    from lmassay.measures.intervals import Estimate
    from lmassay.models.fit_lens import FitResult


def print_fit(name: str, result: FitResult) -> None:
    """Divergence on held-out text per depth, and where the lens is."""
    out = console()
    rows = [(depth, *map(_cell, row.values()), row["after"].status) for depth, row in result.held_out.items()]
    n = next(iter(result.held_out.values()))["after"].n
    title = f"{name}: KL(final ‖ lens) in nats, mean over {result.n_tokens} held-out tokens of {n} sequences"
    out.print(table(title, ("depth", "logit lens", "tuned lens", "change", "status"), rows))
    out.print()
    out.print(clean(f"lens {result.sha256[:12]}: {result.path}"))


def _cell(figure: Estimate) -> str:
    return f"{number(figure.value)} {interval(figure.to_dict())}".rstrip()
