"""Patterns over runs in a terminal: ranking, trees, conjectures, confounds."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from lmassay.reports.style import clean, console, interval, number, table

WHICH = {"training": "training rows", "held_out": "held-out rows"}
TREE_TITLES = {
    "all": "Tree on all features (its first splits are parts of PSI: it describes, it explains nothing)",
    "without_wins": "Tree without anything computed from wins",
}


def print_patterns(patterns: dict[str, Any]) -> None:
    """Everything `xray compare` finds besides the runs side by side."""
    out = console()
    for which, about in patterns["rows"].items():
        if about["n"]:
            undecided = f", {about['n_undecided']} tasks undecided" if about["n_undecided"] else ""
            out.print(
                clean(
                    f"{WHICH[which]}: {about['battery']}, {len(about['models'])} models, {about['n']} tasks,"
                    f" {about['n_positive']} of them with PSI > 0{undecided}"
                )
            )
    for which, ranking in patterns["mutual_information"].items():
        if patterns["rows"][which]["n"]:
            out.print()
            out.print(_ranking(ranking, which))
    for name, tree in patterns["trees"].items():
        out.print()
        _print_tree(out, name, tree)
    out.print()
    out.print(_conjectures(patterns["conjectures"]))
    for conjecture in patterns["conjectures"]:
        if conjecture["detail"]:
            out.print(clean(f"{conjecture['name']}: {conjecture['detail']}"))
    out.print()
    out.print(_confounds(patterns["confounds"]))
    for notice in patterns["notices"]:
        out.print(clean(f"note: {notice}"))


def _status(status: str) -> str:
    return "" if status == "ok" else status


def _ranking(ranking: list[dict[str, Any]], which: str) -> Table:
    rows = [
        (
            row["feature"] + (" *" if row["from_wins"] else ""), _nats(row["plug_in"]), _nats(row["corrected"]),
            interval(row), _nats(row["null_mean"]), _nats(row["null_95"]),
            "–" if row["p"] is None else f"{row['p']:.4f}", number(row["n_bins"]), row["n"], _status(row["status"]),
        )
        for row in ranking
    ]  # fmt: skip
    columns = ("feature", "plug-in", "corrected", "95 % interval", "null", "null 95 %", "p", "bins", "n", "status")
    return table(f"Mutual information with PSI > 0, nats, {WHICH[which]} (* computed from wins)", columns, rows)


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _print_tree(out: Console, name: str, tree: dict[str, Any]) -> None:
    if tree["status"] != "ok":
        out.print(clean(f"{TREE_TITLES[name]}: {tree['status']}"))
        return
    out.print(clean(TREE_TITLES[name]), style="bold")
    for line in tree["text"].splitlines():
        out.print(clean(line))
    rows = [
        (
            WHICH[which], number(figures["accuracy"]["value"]), interval(figures["accuracy"]),
            number(figures["majority"]["value"]), number(figures["above_majority"]["value"]),
            interval(figures["above_majority"]), figures["accuracy"]["n"], _status(figures["accuracy"]["status"]),
        )
        for which, figures in ((which, tree[which]) for which in WHICH)
    ]  # fmt: skip
    columns = ("", "accuracy", "95 % interval", "majority", "above it", "95 % interval", "n", "status")
    out.print(table("", columns, rows))


def _conjectures(conjectures: list[dict[str, Any]]) -> Table:
    rows = [
        (
            c["name"], c["verdict"], number(c["value"]), interval(c), c["n"],
            "–" if c["chance"] is None else f"{c['chance']:.3f}", c["chance_of"], c["claim"],
        )
        for c in conjectures
    ]  # fmt: skip
    columns = ("conjecture", "verdict", "value", "95 % interval", "n", "by luck", "luck of", "claim")
    made = table("Conjectures on the held-out rows", columns, rows)
    made.columns[-1].justify = made.columns[-2].justify = made.columns[1].justify = "left"
    return made


def _confounds(confounds: list[dict[str, Any]]) -> Table:
    rows = [
        (
            c["model"], c["battery"], ", ".join(c["controls"]) or "–", number(c["difference"]), interval(c), c["n"],
            "; ".join([*filter(None, [_status(c["status"])]), *(f"{name} not measured" for name in c["not_measured"])]),
        )
        for c in confounds
    ]  # fmt: skip
    columns = ("model", "battery", "control", "real_win above it", "95 % interval", "n", "status")
    return table("Dominant confound: the control most above the real label", columns, rows)
