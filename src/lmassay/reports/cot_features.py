"""The features a head uses, in a terminal. Everything from data is untrusted text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from lmassay.reports.style import clean, console, table

if TYPE_CHECKING:
    from lmassay.cot.feature_view import FeatureView


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
