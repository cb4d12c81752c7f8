"""Tables as HTML for notebooks. Every text is untrusted: escaped, and what would show nothing made visible."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

#: Verdicts told by sign and word as well as by colour; colours readable on light and on dark ground.
SIGNS = {"survives": ("✓", "#0a7d55"), "fails": ("✗", "#c2500a")}
UNDECIDED = ("○", "inherit")
#: Rows of a table that are shown, and characters of a cell.
MOST_ROWS = 100
LONGEST = 300
#: Of a figure that cannot be compared with a control; a run without figures has one for each pair of them.
_NOT_HELD = re.compile(r"(?P<signal>.+) is not held against (?P<control>\S+): (?P<why>.+)", re.DOTALL)
_CELL = "padding:.15em .7em;text-align:{};vertical-align:top"
EVIDENCE = (
    "signal",
    "control",
    "signal value",
    "control value",
    "difference",
    "95 % interval",
    "p (Holm)",
    "n",
    "verdict",
)


def escaped(value: object) -> str:
    """A text as it is written, whatever is in it."""
    text = str(value)
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST:,} more characters)"
    shown = visible(text)
    return f"<bdi>{escape(shown)}</bdi>" if not shown.isascii() else escape(shown)


def visible(text: str) -> str:
    """What prints nothing of its own, such as a control character, as its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def number(value: Any) -> str:
    """Three decimals, an integer as it is, a dash for what is undefined."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{round(float(value), 3) + 0.0:.3f}"


def interval(low: Any, high: Any) -> str:
    """Bounds, or nothing where there are none."""
    return "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def estimate(row: Mapping[str, Any]) -> str:
    """A figure with its interval, or why it is undefined."""
    if row["value"] is None:
        return str(row.get("status", "undefined"))
    return f"{number(row['value'])} {interval(row.get('low'), row.get('high'))}".strip()


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> str:
    """A table; the first `left` columns and the last are aligned left. Of many rows the first are shown and it says so.

    A cell made by `verdict` is put in as it is; every other one is escaped.
    """
    held = list(rows)
    ends = {*range(left), len(columns) - 1}

    def cell(tag: str, i: int, value: object) -> str:
        inner = value.html if isinstance(value, _Html) else escaped(value)
        return f'<{tag} style="{_CELL.format("left" if i in ends else "right")}">{inner}</{tag}>'

    head = "".join(cell("th", i, name) for i, name in enumerate(columns))
    body = "".join(f"<tr>{''.join(cell('td', i, v) for i, v in enumerate(row))}</tr>" for row in held[:MOST_ROWS])
    more = f"<div>… and {len(held) - MOST_ROWS:,} more rows</div>" if len(held) > MOST_ROWS else ""
    caption = f'<caption style="text-align:left;font-weight:bold;caption-side:top">{escaped(title)}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


class _Html:
    """HTML that was made here."""

    __slots__ = ("html",)

    def __init__(self, html: str) -> None:
        self.html = html


def verdict(text: str) -> _Html:
    """A verdict with its sign."""
    sign, colour = SIGNS.get(text, UNDECIDED)
    return _Html(f'<span style="color:{colour};white-space:nowrap">{sign} {escaped(text)}</span>')


def evidence_html(rows: Iterable[Mapping[str, Any]]) -> str:
    """The table every report opens with."""
    cells = [
        (
            r["signal"], r["control"], number(r["signal_value"]), number(r["control_value"]), number(r["difference"]),
            interval(r["low"], r["high"]), number(r["p_holm"]), r["n"], verdict(str(r["verdict"])),
        )
        for r in rows
    ]  # fmt: skip
    return html_table("Evidence", EVIDENCE, cells, left=2)


def run_html(
    name: str,
    survives: bool | None,
    evidence: Iterable[Mapping[str, Any]],
    scores: Mapping[str, Mapping[str, Any]],
    notices: Iterable[object] = (),
) -> str:
    """A run: whether it survives, evidence, and its scores and notices folded away."""
    said = f"<p>survives its controls: <b>{survival(survives)}</b></p>"
    rows = [(key, number(e["value"]), interval(e["low"], e["high"]), e["n"], _what(e)) for key, e in scores.items()]
    table = html_table("Scores", ("score", "value", "95 % interval", "n", "what"), rows)
    folded = f"<details><summary>{len(rows)} scores</summary>{table}</details>" if rows else ""
    return f"<div><p><b>{escaped(name)}</b></p>{said}{evidence_html(evidence)}{folded}{noted(notices)}</div>"


def noted(notices: Iterable[object]) -> str:
    """What a reader must know beside figures, as a list; nothing where there is nothing."""
    items = "".join(f"<li>{escaped(n)}</li>" for n in gathered(notices))
    return f"<ul>{items}</ul>" if items else ""


def _what(e: Mapping[str, Any]) -> str:
    return str(e["title"]) + ("" if e["status"] == "ok" else f" ({e['status']})")


def survival(survives: bool | None) -> str:
    """The headline of a run in a word, or that nothing was measured which could fail."""
    return {True: "yes", False: "no", None: "undecided (nothing could be measured)"}[survives]


def gathered(notices: Iterable[object]) -> list[str]:
    """Notices in their order, each once with its count; what is not held against several controls in one line."""
    held: dict[tuple[str, str], list[str]] = {}
    lines: list[str | tuple[str, str]] = []
    for notice in map(str, notices):
        match = _NOT_HELD.fullmatch(notice)
        if match is None:
            lines.append(notice)
            continue
        key = match["signal"], match["why"]
        if key not in held:
            lines.append(key)
        held.setdefault(key, []).append(match["control"])
    # Signals that miss the same controls for the same reason stand together, where the first of them stood.
    signals: dict[tuple[str, str], list[str]] = {}
    for (signal, why), missed in held.items():
        signals.setdefault((", ".join(dict.fromkeys(missed)), why), []).append(signal)
    said: list[str] = []
    for line in lines:
        if isinstance(line, str):
            said.append(line)
            continue
        controls = ", ".join(dict.fromkeys(held[line]))
        together = signals[controls, line[1]]
        if line[0] == together[0]:
            verb = "is" if len(together) == 1 else "are"
            said.append(f"{', '.join(together)} {verb} not held against {controls}: {line[1]}")
    return [line if n == 1 else f"{line} ({n} times)" for line, n in Counter(said).items()]


def verdicts(rows: Iterable[Any]) -> str:
    """``3 survive, 1 fails, 2 undecided`` of verdicts, for a line."""
    words = [str(v).split(" ", 1)[0] for v in rows]
    n = {w: words.count(w) for w in ("survives", "fails", "undecided")}
    return f"{n['survives']} survive, {n['fails']} fail, {n['undecided']} undecided"
