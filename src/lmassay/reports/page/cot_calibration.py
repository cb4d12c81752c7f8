"""The page's section on calibration: reliability of probabilities; in regression predicted against true values."""

from __future__ import annotations

import polars as pl

from lmassay.reports.cot_figures import (
    MOST_DOTS,
    CotResult,
    calibration_error,
    gives_probabilities,
    method_of,
    prediction_rows,
    reliability_rows,
)
from lmassay.reports.cot_method_charts import prediction_panels, reliability_panels
from lmassay.reports.page.cot_words import place, with_n
from lmassay.reports.page.parts import Chart, Section
from lmassay.reports.page.words import counted, number
from lmassay.storage.runs import PREDICTIONS

TITLE = "Calibration"


def calibration_section(run: CotResult) -> Section:
    """What a score says about how often it is right."""
    own = method_of(run)
    if run.document["identity"]["task"]["kind"] == "regression":
        return _predicted(run, own)
    scores = run.predictions.filter(method_id=own)["score"].drop_nulls()
    if not gives_probabilities(run, own):
        if scores.len():
            ends = f"they run from {number(scores.min())} to {number(scores.max())}"
            why = f"The scores of {own} are no probabilities ({ends}), so how well they are calibrated is not asked."
        else:
            why = f"{own} has no scores."
        return Section("calibration", TITLE, why)
    rows = reliability_rows(run, own)
    if not rows.height:
        return Section("calibration", TITLE, f"{own} has no scores on a test split.")
    said = []
    for split in rows["split"].unique(maintain_order=True):
        mine = rows.filter(split=split)
        off = mine.filter(pl.col("low").is_not_null()).filter(
            (pl.col("score") < pl.col("low")) | (pl.col("score") > pl.col("high"))
        )
        said.append(
            f"{place(run, split)} score and share of positives differ by {number(calibration_error(mine))} on average "
            f"over {mine['n'].sum():,} rows; in {off.height} of {counted(mine.height, 'bin')} the score lies "
            "outside the interval"
        )
    note = "Bars: 95 % intervals of the share over questions. The dashed line: as often as said."
    chart = Chart("reliability", "Reliability", f"{own}: {'; '.join(said)}.", reliability_panels(rows), rows, note)
    return Section("calibration", TITLE, "", [chart])


def _predicted(run: CotResult, own: str) -> Section:
    rows = prediction_rows(run, own)
    if not rows.height:
        return Section("calibration", TITLE, f"{own} has no scores on a test split.")
    said = []
    for split in rows["split"].unique(maintain_order=True):
        e = run.document["scores"].get(f"{split}.r2")
        text = f"{place(run, split)} R² {with_n(e)}" if e is not None else place(run, split)
        mine = rows.filter(split=split)
        weight = mine["n"] / mine["n"].sum()
        bias = float(((mine["predicted"] - mine["target"]) * weight).sum())
        said.append(f"{text}, predictions {number(abs(bias))} too {'high' if bias > 0 else 'low'} on average")
    note = "The dashed line: predicted as it is."
    if (rows["n"] > 1).any():
        note += f" Splits of more than {MOST_DOTS:,} rows are drawn as cells of many rows; all of them: {PREDICTIONS}."
    chart = Chart(
        "predicted", "Predicted against true", f"{own}: {'; '.join(said)}.", prediction_panels(rows), rows, note
    )
    return Section("calibration", TITLE, "", [chart])
