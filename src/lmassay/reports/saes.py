"""A trained autoencoder in a terminal: what it explains, and how many features it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmassay.reports.style import clean, console, interval, number, table

if TYPE_CHECKING:
    from lmassay.models.saes.train import TrainedSae


def print_trained(name: str, block: int, result: TrainedSae) -> None:
    """Figures on held-out text, and where the autoencoder is."""
    out = console()
    rows = [
        (e.title, f"{number(e.value)} {interval(e.to_dict())}".rstrip(), f"{e.n:,}", e.status)
        for e in result.held_out.values()
    ]
    title = f"{name}, after block {block}: {result.n_tokens:,} held-out tokens"
    out.print(table(title, ("figure", "value", "n", "status"), rows))
    out.print()
    out.print(clean(f"sparse autoencoder {result.sha256[:12]}: {result.path}"))
