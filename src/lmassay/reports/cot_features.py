"""The features a head uses, in a terminal. Everything from data is untrusted text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from lmassay.reports.style import clean, console, table

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.feature_view import FeatureView


def print_terms(terms: pl.DataFrame, n: int) -> None:
    """A row for each of the `n` heaviest words and pairs."""
    if not terms.height:
        console().print("no word or pair has a weight")
        return
    shown = terms.head(n)
    said = [(f"{row['weight']:+.3f}", clean(row["term"]), row["read_in"]) for row in shown.iter_rows(named=True)]
    title = f"The heaviest words and pairs, {shown.height} of {terms.height} that are kept"
    made = table(title, ("weight", "word or pair", "read in"), said)
    made.columns[1].justify = "left"
    console().print(made)


def print_features(choices: dict[str, Any], views: list[FeatureView]) -> None:
    """One row an occurrence; weight and difference stand beside the first of a feature."""
    rows = []
    for view in views:
        first = (view.index, f"{view.weight:+.3f}", f"{view.difference:+.3f}")
        if not view.occurrences:
            rows.append((*first, "–", "–"))
        for at, found in enumerate(view.occurrences):
            # Quoted, for a token is often white space.
            token = Text("«", "bold").append(clean(found.text)).append("»")
            text = clean(found.before).append(token).append(clean(found.after))
            rows.append((*(first if at == 0 else ("", "", "")), f"{found.value:.2f}", text))
    title = (
        f"{choices.get('sae', 'autoencoder')}, block {choices.get('block')}: {len(views)} of "
        f"{choices.get('features')} features by weight of their {choices.get('pooling')} over tokens"
    )
    made = table(title, ("feature", "weight", "class difference", "value", "largest in training examples at"), rows)
    made.columns[4].justify = "left"
    console().print(made)
