"""Sections on scores: PSI by family, who wins where, what becomes of a win, and stability over wordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from lmassay.reports.page.figures import curves, intervals, stacked
from lmassay.reports.page.parts import Chart, Grid, Hover, Section, Table
from lmassay.reports.page.words import counted, number, span
from lmassay.reports.page.xray_wins import CONDITIONS, WinMap, by_depth
from lmassay.storage.runs import OPTIONS
from lmassay.xray.relabel import MATCHED_TOKEN, RANDOM_LABEL
from lmassay.xray.scored import REAL
from lmassay.xray.trajectories import WIN_LEAD

if TYPE_CHECKING:
    from lmassay.xray.scored import Floats

#: Letters of an option or prompt that the map keeps, by how many tasks it shows.
LETTERS = ((1000, 2000), (5000, 400), (10_000, 240))
CLASSES = {
    "known_and_kept": "known and kept",
    "known_then_lost": "known, then lost",
    "only_final": "only at the end",
    "never_known": "never known",
}
#: Sort keys of the map -> column of the per-task table.
SORTS = {"PSI": "psi", "PSI excess": "psi_excess", "depths won": "n_real_win_layers", "near ties": "near_ties"}


def family_section(document: Mapping[str, Any]) -> Section:
    """PSI by family with intervals, beside what a model without skill would get."""
    tasks = pl.DataFrame([{k: t[k] for k in ("family", "psi", "psi_bar", "psi_excess")} for t in document["tasks"]])
    rows = []
    for family, estimate in document["families"].items():
        mine = tasks.filter(family=family) if tasks.height else tasks
        null = None
        if mine.height and estimate["value"] is not None:
            null = float(np.mean(np.asarray(mine["psi_bar"]) - np.asarray(mine["psi_excess"])))
        kept = ("value", "low", "high", "n", "n_clusters", "status")
        rows.append({"family": family, **{k: estimate[k] for k in kept}, "without_skill": null})
    for name in ("psi_logic", "psi_compute", "psi"):
        estimate = document["scores"].get(name)
        if estimate is not None:
            said = {"psi_logic": "logic families", "psi_compute": "compute families", "psi": "all tasks"}[name]
            kept = ("value", "low", "high", "n", "n_clusters", "status")
            rows.append({"family": said, **{k: estimate[k] for k in kept}, "without_skill": None})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    chart = intervals(frame, label="family", title="PSI", null="without_skill", null_title="expected without skill")
    note = "Ticks: PSI expected of a model without skill, by its own null. Bars: 95 % intervals over templates."
    reading = _psi_reading(document, frame)
    return Section(
        "psi", "PSI by family",
        "PSI is the share of depths the right answer wins, less that of the better of two relabelled controls. Held "
        "against the larger of two, it is below zero without skill.",
        (Chart("psi-family", "PSI by family", reading, chart, frame, note),),
    )  # fmt: skip


def _psi_reading(document: Mapping[str, Any], frame: pl.DataFrame) -> str:
    clear = [r["family"] for r in frame.iter_rows(named=True) if r["low"] is not None and r["low"] > 0]
    psi = document["scores"]["psi"]
    if psi["value"] is None:
        return f"PSI over all tasks is {psi['status']}."
    said = f"PSI over all {counted(psi['n'], 'task')} is {number(psi['value'])} {span(psi['low'], psi['high'])}".strip()
    n_families = len(document["families"])
    if not clear:
        return f"{said}; the interval lies above zero in none of {counted(n_families, 'family', 'families')}."
    return f"{said}; the interval lies above zero for {', '.join(clear)}."


def win_section(
    wins: WinMap, document: Mapping[str, Any] | None, prompts: Mapping[str, str], *, limit: int, why_no_prompts: str
) -> Section:
    """The map of tasks × depths, the right answer beside its controls.

    Parameters
    ----------
    prompts : mapping of str to str
        By task id, as far as the battery could be had.
    limit : int
        Most tasks drawn.
    """
    n = wins.tasks.height
    if not wins.leads:
        return Section("wins", "Who wins where", "No task of this run could be decided.")
    chosen = np.arange(n) if n <= limit else np.unique(np.linspace(0, n - 1, limit).astype(np.int64))
    tasks = wins.tasks[chosen]
    layers = {CONDITIONS[c]: wins.won(c)[chosen] for c in wins.leads}
    notes = []
    if len(chosen) < n:
        notes.append(f"Shown: {len(chosen):,} of {n:,} tasks, evenly spaced; all stand in {OPTIONS}.")
    if wins.n_left_out:
        notes.append(f"{counted(wins.n_left_out, 'task')} that cannot be decided or scored are left out.")
    if not prompts and why_no_prompts:
        notes.append(why_no_prompts)
    grid = Grid(
        "win-map", "Wins by task and depth", _win_reading(wins),
        row_labels=tasks["task_id"].to_list(), column_labels=list(wins.depths), layers=layers, scale="win",
        row_name="task", column_name="depth", value_name="won",
        sort_by=_sorts(tasks, wins, chosen, document),
        hover=_hover(wins, chosen, tasks, prompts),
        note=" ".join(notes),
    )  # fmt: skip
    return Section(
        "wins", "Who wins where",
        f"A task is won at a depth when the option in the answer's role leads all others by over {WIN_LEAD:g} nats.",
        (grid,),
    )  # fmt: skip


def _win_reading(wins: WinMap) -> str:
    def share(condition: str) -> float | None:
        lead = wins.leads.get(condition)
        known = lead if lead is None else lead[~np.isnan(lead).any(1)]
        return None if known is None or not len(known) else float((known > WIN_LEAD).mean())

    real = share(REAL)
    if real is None:
        return "No task could be decided."
    others = [
        f"{number(s)} for the {CONDITIONS[c]}" for c in (RANDOM_LABEL, MATCHED_TOKEN) if (s := share(c)) is not None
    ]
    others += [f"{number(s)} under {'a' if c == 'semantics_break' else ''} {CONDITIONS[c]}".replace("  ", " ")
               for c in ("semantics_break", "prompt_swap") if (s := share(c)) is not None]  # fmt: skip
    held = f", against {', '.join(others)}" if others else ""
    n, k = wins.tasks.height, len(wins.depths)
    return f"The right answer wins {number(real)} of the cells of {counted(n, 'task')} × {k} depths{held}."


def _sorts(
    tasks: pl.DataFrame, wins: WinMap, chosen: np.ndarray[Any, Any], document: Mapping[str, Any] | None
) -> dict[str, Sequence[Any]]:
    found: dict[str, Sequence[Any]] = {"family": tasks["family"].to_list(), "template": tasks["template"].to_list()}
    found["first depth won"] = (
        [_first(row) for row in wins.leads[REAL][chosen] > WIN_LEAD] if REAL in wins.leads else []
    )
    if document is not None:
        by_id = {t["task_id"]: t for t in document["tasks"]}
        ids = tasks["task_id"].to_list()
        found |= {name: [by_id.get(i, {}).get(column) for i in ids] for name, column in SORTS.items()}
        found["outcome"] = [CLASSES.get(by_id.get(i, {}).get("class", ""), "") for i in ids]
    return {name: values for name, values in found.items() if len(values)}


def _first(won: np.ndarray[Any, Any]) -> int | None:
    at = np.flatnonzero(won)
    return int(at[0]) if len(at) else None


def _hover(wins: WinMap, chosen: np.ndarray[Any, Any], tasks: pl.DataFrame, prompts: Mapping[str, str]) -> Hover:
    """Prompt, tokens and options of each task shown, with the options' scores at every depth."""
    letters = next((most for n, most in LETTERS if len(chosen) <= n), 120)
    place = np.full(wins.tasks.height, -1)
    place[chosen] = np.arange(len(chosen))
    at = place[wins.options["at"].to_numpy()]
    kept = at >= 0
    options = wins.options.filter(pl.Series(kept))
    lines: list[list[str]] = [[] for _ in chosen]
    marks = {REAL: "answer", RANDOM_LABEL: "random label", MATCHED_TOKEN: "matched label"}
    played = {name: labels[chosen] for name, labels in wins.labels.items()}
    for task, option, text, n_tokens in zip(
        at[kept].tolist(), options["option"].to_list(), options["option_text"].to_list(),
        options["n_tokens"].to_list(), strict=True,
    ):  # fmt: skip
        roles = [said for name, said in marks.items() if played[name][task] == option]
        extra = f", {', '.join(roles)}" if roles else ""
        lines[task].append(f"{_cut(text, letters)}  ({counted(n_tokens, 'token')}{extra})")
    texts = []
    for task_id, n_tokens in zip(tasks["task_id"].to_list(), tasks["n_prompt_tokens"].to_list(), strict=True):
        prompt = _cut(prompts[task_id], letters) if task_id in prompts else ""
        length = "" if n_tokens is None else f"[{counted(n_tokens, 'token')}] "
        texts.append(f"{length}{prompt}" if prompt else length.strip())
    return Hover(texts, lines, wins.scores[kept], "nats per token above the neutral prompt")


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[:letters]} … ({len(text) - letters:,} more)"


def trajectory_section(wins: WinMap, document: Mapping[str, Any] | None, seed: int) -> Section:
    """Shares and leads by depth, and what becomes of the tasks."""
    if not wins.leads:
        return Section("trajectories", "Trajectories", "No task of this run could be decided.")
    frame = by_depth(wins, seed)
    banded = [CONDITIONS[REAL], CONDITIONS[RANDOM_LABEL]]
    parts: list[Chart | Table] = [
        Chart(
            "won-by-depth", "Share of tasks won, by depth", _depth_reading(frame, "won", "share won"),
            curves(frame, value="won", title="share of tasks won", low="won_low", high="won_high", banded=banded),
            frame, "Bands: 95 % intervals over templates; those of the other curves stand in the data.",
        ),
        Chart(
            "lead-by-depth", "Mean lead over the best other option, by depth",
            _depth_reading(frame, "lead", "mean lead"),
            curves(frame, value="lead", title="lead, nats per token", low="lead_low", high="lead_high", banded=banded),
            frame, "Bands: 95 % intervals over templates.",
        ),
    ]  # fmt: skip
    if document is not None and document["tasks"]:
        parts += _outcomes(document)
    return Section(
        "trajectories", "Trajectories",
        "How often the answer is ahead at each depth, and by how much; and whether a win inside is kept to the end.",
        parts,
    )  # fmt: skip


def _depth_reading(frame: pl.DataFrame, value: str, said: str) -> str:
    known = frame.filter(pl.col(value).is_not_null())
    real = known.filter(condition=CONDITIONS[REAL])
    if not real.height:
        return "No task could be decided."
    best = real.sort(value, descending=True).row(0, named=True)
    end = real.row(-1, named=True)
    text = f"The {said} of the right answer is highest at {best['depth']}"
    if best["depth"] == end["depth"]:
        text += f", the last depth ({number(best[value])} {span(best[value + '_low'], best[value + '_high'])})"
    elif number(best[value]) == number(end[value]):
        text += (
            f" ({number(best[value])} {span(best[value + '_low'], best[value + '_high'])}) and, to two digits, as high "
            f"at the end {span(end[value + '_low'], end[value + '_high'])}"
        )
    else:
        text += (
            f" ({number(best[value])} {span(best[value + '_low'], best[value + '_high'])}) and ends at "
            f"{number(end[value])} {span(end[value + '_low'], end[value + '_high'])}"
        )
    other = known.filter(condition=CONDITIONS[RANDOM_LABEL], depth=end["depth"])
    held = f", where a random wrong option has {number(other[value][0])}" if other.height else ""
    return f"{text}{held} (n = {end['n']:,}).".replace("  ", " ").replace(" )", ")")


def _outcomes(document: Mapping[str, Any]) -> list[Chart | Table]:
    tasks = pl.DataFrame(document["tasks"], infer_schema_length=None)
    named = tasks.with_columns(outcome=pl.col("class").replace_strict(CLASSES, default=pl.col("class")))
    counts = named.group_by("family", "outcome", maintain_order=True).agg(n=pl.len())
    total = {name: int((named["outcome"] == name).sum()) for name in CLASSES.values()}
    n = tasks.height
    lost, kept = total["known, then lost"], total["known and kept"]
    reading = (
        f"Of {counted(n, 'task')}, {kept:,} are known inside and kept to the end, {lost:,} are known and then lost, "
        f"{total['never known']:,} are never known."
    )
    chart = stacked(
        counts, label="family", part="outcome", order=list(CLASSES.values()), title="share of the family's tasks"
    )
    columns = ["task_id", "family", "outcome", "n_real_win_layers", "psi", "psi_excess", "final_correct",
               "answer_n_tokens", "near_ties"]  # fmt: skip
    table = named.select(columns).rename({"n_real_win_layers": "depths won", "final_correct": "right at the end",
                                          "answer_n_tokens": "answer tokens", "near_ties": "near ties",
                                          "psi_excess": "PSI excess", "psi": "PSI", "task_id": "task"})  # fmt: skip
    return [
        Chart("outcomes", "What becomes of the answer", reading, chart, counts),
        Table("tasks", "Every task", f"{counted(n, 'task')} with what each comes to.", table, whole="scores.json"),
    ]


def paraphrase_section(document: Mapping[str, Any]) -> Section | None:
    """Overlap of won depths between wordings, beside the wrong options'."""
    groups = document.get("paraphrase_groups") or []
    if not groups:
        return None
    frame = pl.DataFrame(
        [{"group": g["group"], "family": g["family"], "Jaccard": g["jaccard"], "wrong options": g["jaccard_wrong"],
          "win rate": g["win_rate"], "final accuracy": g["final_accuracy"], "wordings": g["n_wordings"],
          "note": "never wins" if g["n_wordings"] and not g["any_win"] else ""} for g in groups],
        infer_schema_length=None,
    )  # fmt: skip
    above = sum(
        g["jaccard"] is not None and g["jaccard_wrong"] is not None and g["jaccard"] > g["jaccard_wrong"]
        for g in groups
    )
    figure = document["scores"]["jaccard"]
    reading = (
        f"Wordings of one question share {number(figure['value'])} {span(figure['low'], figure['high'])} of the depths "
        f"they win (n = {figure['n']} groups); in {above} of {len(groups)} that is more than wrong options share."
    )
    return Section(
        "wordings", "Stability over wordings",
        "Whether a question is won at the same depths however it is put. Groups that never win count 1.",
        (Table("wordings-table", "Groups of wordings", reading, frame),),
    )  # fmt: skip


def seed_of(record: Mapping[str, Any]) -> int:
    """The run's seed, for intervals that the run itself has not computed."""
    return int(record["identity"]["settings"]["seed"])


def floats(rows: Sequence[Mapping[str, Any]], name: str) -> Floats:
    """(n,) values of a field, NaN where undefined."""
    return np.array([np.nan if r[name] is None else r[name] for r in rows], np.float64)
