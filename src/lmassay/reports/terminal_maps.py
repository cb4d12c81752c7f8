"""The heat maps of `lmassay show`: where an xray run wins, what patches and ablations change; what a cot run scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from lmassay.cot.scores import SIGNALS
from lmassay.reports.heat import HeatMap, diverging_style, print_maps, share_style
from lmassay.reports.page.xray_wins import WinMap, read_wins
from lmassay.reports.style import clean, console, number, table
from lmassay.storage.runs import LABELS, OPTIONS
from lmassay.xray.ablation_scores import ALL
from lmassay.xray.relabel import MATCHED_TOKEN, RANDOM_LABEL
from lmassay.xray.scored import PROMPT_SWAP, REAL, SEMANTICS_BREAK
from lmassay.xray.trajectories import WIN_LEAD

if TYPE_CHECKING:
    from rich.table import Table

#: Labels whose patches and ablations stand beside each other.
BESIDE = (REAL, RANDOM_LABEL)
#: The conditions in few letters.
WORDS = {REAL: "real", RANDOM_LABEL: "random option", MATCHED_TOKEN: "option of equal length",
         SEMANTICS_BREAK: "broken prompt", PROMPT_SWAP: "another's prompt"}  # fmt: skip


def print_xray_maps(folder: Path, document: dict[str, Any]) -> None:
    """Wins by family and depth, the patching grid, and changes by block and component, as far as the run has them."""
    out = console()
    if (folder / OPTIONS).is_file() and (folder / LABELS).is_file() and document.get("tasks"):
        out.print()
        print_maps(out, [win_map(read_wins(folder))])
    phases = document.get("phases", {})
    for maps in (patching_maps(phases.get("patching", {})), ablation_maps(phases.get("ablation", {}))):
        if maps:
            out.print()
            print_maps(out, maps)


def win_map(wins: WinMap) -> HeatMap:
    """All tasks under every condition; then each family under the real label and the control that wins most overall."""
    won = {name: (lead > WIN_LEAD).astype(np.float64) for name, lead in wins.leads.items()}
    for name, lead in wins.leads.items():
        won[name][np.isnan(lead)] = np.nan
    controls = [name for name in won if name != REAL]
    strongest = max(controls, key=lambda name: float(np.nanmean(won[name])), default=None)
    family = wins.tasks["family"].to_numpy()
    groups = {"all tasks": np.ones(len(family), np.bool_)}
    groups |= {str(name): family == name for name in wins.tasks["family"].unique(maintain_order=True)}
    labels: list[str] = []
    values: list[Any] = []
    for group, members in groups.items():
        for condition in won if group == "all tasks" else (REAL, strongest):
            if condition is None:
                continue
            known = members & ~np.isnan(won[condition]).any(1)
            labels.append(f"{group} ({known.sum()})" if condition == REAL else f"  {WORDS[condition]}")
            values.append(won[condition][known].mean(0) if known.any() else np.full(len(wins.depths), np.nan))
    title = "Share of tasks won by depth; under each family the control that wins most"
    return HeatMap(title, labels, [_short(d) for d in wins.depths], np.array(values).reshape(len(labels), -1))


def _short(depth: str) -> str:
    """``block.7`` is 7: above a map there is little room."""
    return {"embed": "e", "final": "f"}.get(depth, depth.removeprefix("block."))


def patching_maps(details: Mapping[str, Any]) -> list[HeatMap]:
    """Share of tasks a patch makes win, by source depth and block, for the real label and a random one."""
    found = []
    cells: Sequence[Mapping[str, Any]] = details.get("cells", ())
    sources = sorted({c["source_index"] for c in cells})
    targets = sorted({c["target_block"] for c in cells})
    for condition in BESIDE:
        mine = [c for c in cells if c["condition"] == condition]
        if not mine:
            continue
        grid = np.full((len(sources), len(targets)), np.nan)
        for c in mine:
            grid[sources.index(c["source_index"]), targets.index(c["target_block"])] = c["flips"] / c["n"]
        n = sum(t["condition"] == condition for t in details.get("tasks", ()))
        title = f"Patching, {WORDS[condition]}: share that wins ({n} tasks)"
        found.append(HeatMap(title, [f"from depth {s}" for s in sources], [str(t) for t in targets], grid))
    return found


def ablation_maps(details: Mapping[str, Any]) -> list[HeatMap]:
    """Mean change of the margin at the end without each component, real label beside a random one."""
    found = []
    for condition in BESIDE:
        rows = [r for r in details.get("components", ()) if r["condition"] == condition and r["family"] == ALL]
        if not rows:
            continue
        blocks = sorted({r["block"] for r in rows})
        names = list(dict.fromkeys(_component(r) for r in rows))
        grid = np.full((len(names), len(blocks)), np.nan)
        for r in rows:
            grid[names.index(_component(r)), blocks.index(r["block"])] = r["margin"]
        title = f"Margin without a component, {WORDS[condition]} ({rows[0]['n']} tasks)"
        found.append(HeatMap(title, names, [str(b) for b in blocks], grid, "diverging", "nats"))
    return [replace(heat, largest=max(h.top for h in found)) for heat in found]


def _component(row: Mapping[str, Any]) -> str:
    return str(row["kind"]) if row["head"] is None else f"head {row['head']}"


def print_cot_maps(document: dict[str, Any]) -> None:
    """Headline figures of the method and its controls on each split, coloured by size."""
    made = score_map(document)
    if made is not None:
        out = console()
        out.print()
        out.print(made)


def score_map(document: Mapping[str, Any]) -> Table | None:
    """A row for each method, a column for each split and figure that evidence is taken from."""
    task, method = document["identity"]["task"], document["identity"]["method"]["id"]
    every = {method: document["scores"], **document["controls"]}
    figures = SIGNALS.get(task["kind"], ("answer_kl", "token_kl"))
    splits = list(dict.fromkeys(key.partition(".")[0] for key in document["scores"]))
    columns = [(s, f) for f in figures for s in splits if f"{s}.{f}" in document["scores"]]
    if not columns:
        return None
    rows = [(name, *(_cell(scores.get(f"{s}.{f}"), f) for s, f in columns)) for name, scores in every.items()]
    title = "Method and controls by split"
    return table(title, ("method", *(f"{s} {f}" for s, f in columns)), rows)


def _cell(score: Mapping[str, Any] | None, figure: str) -> Text:
    value = None if score is None else score["value"]
    text = clean(f" {number(value)} ")
    if value is not None:
        # An R² has no lower end; from -1 on nothing is darker.
        text.stylize(diverging_style(value, 1.0) if figure == "r2" else share_style(value))
    return text
