"""Sections of a cot run's page: in and out of distribution, ROC, threshold transfer, questions, scores, counts."""

from __future__ import annotations

from typing import Any

import polars as pl

from lmassay.cot.scores import SIGNALS
from lmassay.reports.cot_figures import (
    BEST,
    CHOSEN,
    CURVE,
    CotResult,
    Documented,
    distribution_rows,
    every_method,
    headline,
    is_ood,
    method_of,
    question_rows,
    roc_rows,
    splits_of,
    strongest_control,
    threshold_of,
    transfer_rows,
)
from lmassay.reports.cot_method_charts import distribution_panels, question_strip, roc_panels, transfer_panels
from lmassay.reports.page.cot_words import figure_words, place, with_n
from lmassay.reports.page.parts import Chart, Section, Table
from lmassay.reports.page.words import counted, digits_for, number, span, status_words
from lmassay.storage.runs import PREDICTIONS, SCORES

#: Questions a strip draws; more are drawn evenly along their order.
MOST_QUESTIONS = 2000


def _task_kind(run: Documented) -> str:
    return str(run.document["identity"]["task"]["kind"])


def shown_figures(run: Documented) -> list[str]:
    """Figures that stand side by side: those that evidence is taken from, and the one published scores are of."""
    kind = _task_kind(run)
    extra = ["g_mean2_mc"] if kind == "interventional" else ["within_spearman"] if kind == "regression" else []
    return [*SIGNALS[kind], *extra]


def distribution_section(run: Documented) -> Section:
    """In against out of distribution, for the method and its controls."""
    name, own = headline(run), method_of(run)
    rows = distribution_rows(run, shown_figures(run))
    said = [
        f"{with_n(e)} {place(run, split)}"
        for split in (*splits_of(run), "ood")
        if (e := run.document["scores"].get(f"{split}.{name}")) is not None
    ]
    known = rows.filter(pl.col("figure") == name, pl.col("value").is_not_null())
    best = [
        f"{row['method']}, {number(row['value'])} {span(row['low'], row['high'])}, on {split}"
        for split in known["split"].unique(maintain_order=True)
        for row in known.filter(split=split, role="control").sort("value", descending=True).head(1).to_dicts()
    ]
    reading = (
        f"{own} has {figure_words(name)} {'; '.join(said)}"
        + (f"; the best control is {' and '.join(best)}" if best else "")
        + "."
    )
    undefined = rows.filter(pl.col("value").is_null())
    note = "Bars: 95 % intervals over questions."
    if undefined.height:
        note += f" {counted(undefined.height, 'figure')} are undefined and not drawn; the CSV says why."
    parts: list[Any] = []
    if rows.filter(pl.col("value").is_not_null()).height:
        chart = distribution_panels(rows, list(every_method(run)))
        parts.append(Chart("distribution", "The method beside its controls", reading, chart, rows, note))
    return Section("id-ood", "In and out of distribution", "" if parts else reading, parts)


def roc_section(run: CotResult) -> Section | None:
    """ROC curves of the method and its strongest control; None in regression."""
    if _task_kind(run) == "regression":
        return None
    own, control = method_of(run), strongest_control(run, "auroc")
    rows = roc_rows(run, [own, *([control] if control else [])])
    title = "ROC, with the threshold of validation"
    if run.document["identity"]["method"].get("answers") == "label":
        return Section("ranking", title, f"{own} answers with a label: it has one threshold and no curve.")
    if not rows.filter(method=own).height:
        why = next((e["status"] for key, e in run.document["scores"].items() if key.endswith(".auroc")), "no scores")
        return Section("ranking", title, f"{own} has no curve: {status_words(why)}.")
    said = []
    for split in rows.filter(method=own)["split"].unique(maintain_order=True):
        mine = rows.filter(method=own, split=split)
        e = run.document["scores"].get(f"{split}.auroc")
        text = f"{place(run, split)} AUROC {with_n(e)}" if e is not None else place(run, split)
        chosen = mine.filter(at=CHOSEN).to_dicts()
        best = mine.filter(at=BEST).row(0, named=True)
        if chosen:
            text += (
                f", the threshold of validation at TPR {number(chosen[0]['tpr'])} and FPR {number(chosen[0]['fpr'])}"
            )
        said.append(f"{text}, the best point at TPR {number(best['tpr'])} and FPR {number(best['fpr'])}")
    thinned = rows.filter(at=CURVE).group_by("method", "split").agg(pl.len(), pl.col("n_points").first())
    note = ""
    if thinned.filter(pl.col("len") < pl.col("n_points")).height:
        most, kept = (max(thinned[name].to_list()) for name in ("n_points", "len"))
        note = f"Curves are drawn at up to {kept} of up to {most:,} points; all scores: {PREDICTIONS}."
    order = rows["method"].unique(maintain_order=True).to_list()
    reading = f"{own}: {'; '.join(said)}."
    return Section(
        "ranking", title, "", [Chart("roc", "Curves by test split", reading, roc_panels(rows, order), rows, note)]
    )


def transfer_section(run: Documented) -> Section | None:
    """What a threshold chosen elsewhere loses; None in regression."""
    if _task_kind(run) == "regression":
        return None
    rows = transfer_rows(run)
    title = "Threshold transfer"
    known = rows.filter(pl.col("value").is_not_null(), pl.col("best").is_not_null())
    own = method_of(run)
    mine = known.filter(method=own)
    if not mine.height:
        said = status_words(run.document.get("thresholds", {}).get(own, {}).get("status", "there is no threshold"))
        return Section("thresholds", title, f"Nothing to transfer for {own}: {said}.")
    said_rows = [
        f"{number(r['lost'])} of g-mean² {place(run, r['split'])}: {number(r['value'])} {span(r['low'], r['high'])} at "
        f"the threshold of validation, {number(r['best'])} {span(r['best_low'], r['best_high'])} at the best one "
        f"(n = {r['n']:,}, {counted(r['n_questions'], 'question')})"
        for r in mine.to_dicts()
    ]
    reading = f"{own} loses {'; '.join(said_rows)}."
    chart = transfer_panels(known, list(every_method(run)))
    intro = "The best threshold is chosen on the test rows themselves: no honest method can have it."
    named = "At the threshold of validation, and at the best one"
    return Section("thresholds", title, intro, [Chart("transfer", named, reading, chart, rows)])


def question_section(run: CotResult) -> Section:
    """One mark a question: a score may rest on a few of them."""
    own = method_of(run)
    rows = question_rows(run, own)
    title = "Question by question"
    if not rows.height:
        return Section("by-question", title, f"{own} decides nothing here: it has no threshold, or no scores.")
    name = "right" if "right" in rows.columns else "error"
    said = []
    for split in rows["split"].unique(maintain_order=True):
        mine = rows.filter(split=split)
        values = mine[name]
        # Of an even number none is in the middle: values that some question has make sentences that are true.
        ordered = sorted(values.to_list(), reverse=name == "right")
        half = ordered[(len(ordered) + 1) // 2 - 1]
        about = f"{split}: of {counted(mine.height, 'question')} ({mine['n'].sum():,} rows) at least half have "
        text = about + (
            f"{number(half)} or more of their rows right"
            if name == "right"
            else f"a mean error of {number(half)} or less"
        )
        text += f"; they run from {number(min(ordered))} to {number(max(ordered))}"
        if name == "right":
            text += f"; in {int((values == 1).sum())} all is right, in {int((values == 0).sum())} nothing"
        said.append(text)
    drawn, note = rows, "The larger a circle, the more questions are there."
    if rows.height > MOST_QUESTIONS:
        drawn = rows.sort("split", name).gather_every(-(-rows.height // MOST_QUESTIONS))
        note += (
            f" {drawn.height:,} of {rows.height:,} questions are drawn, evenly along their order; all: {PREDICTIONS}."
        )
    chart = question_strip(drawn)
    named = "Right decisions by question" if name == "right" else "Errors by question"
    return Section("by-question", title, "", [Chart("questions", named, f"{'. '.join(said)}.", chart, drawn, note)])


def score_section(run: Documented) -> Section:
    """Every figure of the method and its controls as a table."""
    rows: list[dict[str, Any]] = []
    flags = run.document.get("flags", {})
    for method, scores in every_method(run).items():
        for key, e in scores.items():
            split, _, name = key.partition(".")
            notes = [status_words(e["status"])] if e["status"] != "ok" else []
            notes += flags.get(key, []) if method == method_of(run) else []
            rows.append({
                "method": method, "split": split, "part": "OOD" if is_ood(run, split) else "ID", "figure": name,
                "value": e["value"], "low": e["low"], "high": e["high"], "n": e["n"], "questions": e["n_clusters"],
                "what": e["title"], "notes": "; ".join(notes),
            })  # fmt: skip
    kinds = {"value": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    frame = pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)
    undefined = frame["value"].null_count() if frame.height else 0
    reading = (
        f"{counted(frame.height, 'figure')} of {counted(len(every_method(run)), 'method')}; "
        f"{undefined:,} undefined, each with its reason."
    )
    return Section(
        "all-scores", "All scores", "", [Table("scores", "Every figure of every method", reading, frame, whole=SCORES)]
    )


def count_section(run: Documented) -> Section:
    """What became of every row, by split."""
    rows = [
        {
            "split": split, "rows": c["n_total"], "scored": c["n_scored"], "undecided": c["n_undecided"],
            "errors": c["n_error"], "questions": c["n_groups"],
            "statuses": ", ".join(f"{name} {n:,}" for name, n in c["statuses"].items()),
        }
        for split, c in run.document["counts"].items()
    ]  # fmt: skip
    frame = pl.DataFrame(rows, infer_schema_length=None)
    total, scored = (int(frame[name].sum()) for name in ("rows", "scored"))
    reading = f"{method_of(run)} scored {scored:,} of {counted(total, 'row')} that it was shown after training."
    threshold = threshold_of(run, method_of(run))
    if threshold is not None:
        reading += f" A row is positive if its score is above {number(threshold, max(3, digits_for(threshold) + 1))}."
    parts: list[Any] = [Table("counts", "Rows by split", reading, frame)]
    if (monitor := run.document.get("monitor")) is not None:
        parts.append(_replies(monitor))
    return Section("rows", "Rows", "", parts)


def _replies(monitor: dict[str, Any]) -> Table:
    """Of a language model that was asked: how far its replies agree, and how many say nothing."""
    rows = [
        {"split": split, "figure": name, "value": e["value"], "low": e["low"], "high": e["high"], "n": e["n"],
         "what": e["title"], "status": e["status"]}
        for split, found in monitor.items()
        for name, e in found.items()
        if name != "reasons"
    ]  # fmt: skip
    reasons = {why: 0 for found in monitor.values() for why in found["reasons"]}
    for found in monitor.values():
        for why, n in found["reasons"].items():
            reasons[why] += n
    said = ", ".join(f"{why} ({n:,})" for why, n in sorted(reasons.items(), key=lambda kv: -kv[1]))
    reading = f"Replies that say nothing: {said}." if said else "Every reply says something."
    kinds = {"value": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return Table("replies", "Replies", reading, pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None))
