"""What a probe used of one example, in a terminal. Everything from data is untrusted text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from lmassay.reports.style import clean, console, number, table

if TYPE_CHECKING:
    from lmassay.cot.probe_view import ProbeView


def print_probe_view(task: str, view: ProbeView, n: int) -> None:
    """Score and threshold, then the `n` tokens with the largest contribution, each among its neighbours."""
    out = console()
    found = view.contributions
    out.print(Text.assemble((f"{task}  ", "bold"), clean(f"{view.split}, example {view.key}")))
    out.print(clean(f"{view.method} on the states of {view.reader}: score {number(found.score)}, threshold "
                    f"{number(view.threshold)}, {len(view.texts)} tokens"))  # fmt: skip
    if found.rest is not None:
        out.print(f"of the score {number(found.rest)} belongs to no token")
    rows = []
    for place in found.largest(n):
        before, after = view.around(place)
        # Quoted, for a token is often white space.
        token = Text("«", "bold").append(clean(view.texts[place])).append("»")
        rows.append(
            (
                place,
                view.kinds[place] or "–",
                f"{found.values[place]:+.4f}",
                clean(before).append(token).append(clean(after)),
            )
        )
    made = table(f"Tokens by size of contribution ({found.what})", ("token", "segment", "contribution", "text"), rows)
    made.columns[1].justify = made.columns[3].justify = "left"
    out.print()
    out.print(made)
    for note in found.notes:
        out.print(clean(note))
