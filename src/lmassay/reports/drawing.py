"""Altair as every chart of ours takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


def altair() -> Any:
    """Altair, whose encodings are too richly typed to be put together piece by piece."""
    import altair

    return altair


def data(frame: pl.DataFrame) -> Any:
    """The rows of a table as a chart's own data."""
    return altair().Data(values=frame.to_dicts())
