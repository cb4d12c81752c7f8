"""Altair charts of one method on one task: of an `Evaluation` in a notebook, and in a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmassay.reports.cot_charts import COLOURS, SHAPES
from lmassay.reports.cot_figures import (
    BEST,
    CHOSEN,
    CURVE,
    CotResult,
    Documented,
    distribution_rows,
    every_method,
    gives_probabilities,
    method_of,
    prediction_rows,
    question_rows,
    reliability_rows,
    roc_rows,
    strongest_control,
    transfer_rows,
)
from lmassay.reports.drawing import altair, data

if TYPE_CHECKING:
    import polars as pl

#: Lines that are no data: chance, equality.
GUIDE = "#999999"
TITLES = {"g_mean2": "g-mean²", "g_mean2_mc": "g-mean² (minimal criterion)", "auroc": "AUROC", "r2": "R²",
          "within_spearman": "rank correlation within questions"}  # fmt: skip


def distribution_chart(run: Documented, *figures: str) -> Any:
    """A method and its controls in (ID) and out of distribution (OOD), a panel for each figure, with intervals."""
    return distribution_panels(distribution_rows(run, figures), list(every_method(run)))


def distribution_panels(rows: pl.DataFrame, order: list[str]) -> Any:
    """The same of a table of `distribution_rows`."""
    import polars as pl

    alt = altair()
    known = rows.filter(pl.col("value").is_not_null())
    splits = known["split"].unique(maintain_order=True).to_list()
    colour = alt.Color("split:N", title=None, sort=splits, scale=alt.Scale(domain=splits, range=list(COLOURS)))
    shape = alt.Shape("split:N", title=None, sort=splits, scale=alt.Scale(domain=splits, range=list(SHAPES)))
    y = alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelLimit=240))
    # A line of its own for each split, so that intervals do not hide each other.
    offset = alt.YOffset("split:N", sort=splits)
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("method", "split", "value", "low", "high", "n")]
    panels = []
    for figure in known["figure"].unique(maintain_order=True):
        base = alt.Chart(data(known.filter(figure=figure)))
        bounds = base.transform_filter("isValid(datum.low)").mark_rule(opacity=0.7, strokeWidth=1.5)
        x = {"title": TITLES.get(figure, figure), "scale": alt.Scale(zero=False)}
        panels.append(
            alt.layer(
                bounds.encode(x=alt.X("low:Q", **x), x2="high:Q", y=y, yOffset=offset, color=colour),
                base.mark_point(filled=True, size=45, opacity=1).encode(
                    x=alt.X("value:Q", **x), y=y, yOffset=offset, color=colour, shape=shape, tooltip=tooltip
                ),
            ).properties(width=230, height=(10 + 12 * len(splits)) * len(order))
        )
    return alt.hconcat(*panels).resolve_scale(x="independent", color="shared", shape="shared")


def roc_chart(run: CotResult, *methods: str) -> Any:
    """ROC curves, a panel for each test split, the validation threshold and the best point of each curve marked.

    Parameters
    ----------
    *methods : str
        Without any: the run's method and its strongest control.
    """
    strongest = strongest_control(run, "auroc")
    drawn = methods or (method_of(run), *([strongest] if strongest else []))
    return roc_panels(roc_rows(run, drawn), list(drawn))


def roc_panels(rows: pl.DataFrame, order: list[str]) -> Any:
    """The same of a table of `roc_rows`."""
    import polars as pl

    alt = altair()
    axis = {"scale": alt.Scale(domain=[0, 1]), "axis": alt.Axis(tickCount=5)}
    x = alt.X("fpr:Q", title="false positive rate", **axis)
    y = alt.Y("tpr:Q", title="true positive rate", **axis)
    colour = alt.Color("method:N", title=None, sort=order, scale=alt.Scale(domain=order, range=list(COLOURS)))
    shape = alt.Shape("at:N", title=None, scale=alt.Scale(domain=[CHOSEN, BEST], range=["square", "triangle-up"]))
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("method", "at", "fpr", "tpr", "threshold", "n")]
    panels = []
    for split in rows["split"].unique(maintain_order=True):
        mine = rows.filter(split=split)
        chance = alt.Chart(alt.Data(values=[{"fpr": 0, "tpr": 0}, {"fpr": 1, "tpr": 1}]))
        curve, marks = alt.Chart(data(mine.filter(at=CURVE))), alt.Chart(data(mine.filter(pl.col("at") != CURVE)))
        panels.append(
            alt.layer(
                chance.mark_line(color=GUIDE, strokeDash=[4, 4]).encode(x=x, y=y),
                curve.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour, strokeDash=_dash(order)),
                marks.mark_point(filled=True, size=90, opacity=1).encode(
                    x=x, y=y, color=colour, shape=shape, tooltip=tooltip
                ),
            ).properties(title=split, width=250, height=250)
        )
    return alt.concat(*panels, columns=3).resolve_scale(color="shared", shape="shared", strokeDash="shared")


def _dash(order: list[str]) -> Any:
    """Lines told apart without colour."""
    alt = altair()
    return alt.StrokeDash(
        "method:N", sort=order, title=None,
        scale=alt.Scale(domain=order, range=[[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]] * (1 + len(order) // 4)),
    )  # fmt: skip


def transfer_chart(run: Documented) -> Any:
    """g-mean² at the threshold of validation and at the best one of the test rows, joined by what is lost."""
    return transfer_panels(transfer_rows(run), list(every_method(run)))


def transfer_panels(rows: pl.DataFrame, order: list[str]) -> Any:
    """The same of a table of `transfer_rows`."""
    import polars as pl

    alt = altair()
    known = rows.filter(pl.col("value").is_not_null(), pl.col("best").is_not_null())
    long = known.unpivot(
        ["value", "best"], index=["method", "split", "n"], variable_name="at", value_name="g_mean2"
    ).with_columns(pl.col("at").replace({"value": CHOSEN, "best": BEST}))
    y = alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelLimit=240))
    scale = alt.Scale(domain=[CHOSEN, BEST], range=list(COLOURS))
    panels = []
    for split in known["split"].unique(maintain_order=True):
        lines = alt.Chart(data(known.filter(split=split))).mark_rule(color=GUIDE)
        dots = alt.Chart(data(long.filter(split=split))).mark_point(filled=True, size=60, opacity=1)
        tooltip = [alt.Tooltip(f"{name}:N") for name in ("method", "at", "g_mean2", "n")]
        panels.append(
            alt.layer(
                lines.encode(x=alt.X("value:Q", title="g-mean²"), x2="best:Q", y=y),
                dots.encode(
                    x=alt.X("g_mean2:Q", title="g-mean²"), y=y, tooltip=tooltip,
                    color=alt.Color("at:N", title=None, scale=scale),
                    shape=alt.Shape("at:N", title=None, scale=alt.Scale(domain=[CHOSEN, BEST], range=list(SHAPES))),
                ),
            ).properties(title=split, width=230, height=24 * len(order))
        )  # fmt: skip
    return alt.concat(*panels, columns=3).resolve_scale(x="shared", color="shared", shape="shared")


def question_chart(run: CotResult, method: str | None = None) -> Any:
    """A strip for each test split: questions at their share of right decisions (regression: their mean error)."""
    return question_strip(question_rows(run, method or method_of(run)))


def question_strip(rows: pl.DataFrame) -> Any:
    """The same of a table of `question_rows`."""
    alt = altair()
    of_decisions = "right" in rows.columns
    name, title = ("right", "share of right decisions") if of_decisions else ("error", "mean size of the error, nats")
    scale = alt.Scale(domain=[0, 1]) if of_decisions else alt.Scale(zero=True)
    y = alt.Y("split:N", title=None, sort=rows["split"].unique(maintain_order=True).to_list())
    # The largest circle on the axis must not cover the split's name.
    y.axis = alt.Axis(labelPadding=14)
    alone = rows.group_by("split", name).len()["len"].max() == 1
    size = alt.value(60) if alone else alt.Size(
        "count():Q", title="questions", scale=alt.Scale(range=[14, 420]), legend=_counts()
    )  # fmt: skip
    dots = alt.Chart(data(rows)).mark_circle(opacity=0.65, color=COLOURS[0])
    return dots.encode(
        x=alt.X(f"{name}:Q", title=title, scale=scale), y=y, size=size,
        tooltip=[alt.Tooltip("split:N"), alt.Tooltip(f"{name}:Q"), alt.Tooltip("count():Q", title="questions")],
    ).properties(width=520, height=50 * max(1, rows["split"].n_unique()))  # fmt: skip


def reliability_chart(run: CotResult, method: str | None = None) -> Any:
    """How often what a method calls probable is so, by tenths of its score, with 95 % intervals by question.

    Raises
    ------
    ValueError
        Where the method's scores are no probabilities.
    """
    name = method or method_of(run)
    if not gives_probabilities(run, name):
        raise ValueError(f"the scores of {name} are no probabilities")
    return reliability_panels(reliability_rows(run, name))


def reliability_panels(rows: pl.DataFrame) -> Any:
    """The same of a table of `reliability_rows`."""
    alt = altair()
    axis = {"scale": alt.Scale(domain=[0, 1])}
    x = alt.X("score:Q", title="score", **axis)
    tooltip = [alt.Tooltip(f"{c}:N") for c in ("score", "share", "low", "high", "n")]
    size = _rows_size(rows, [20, 200])
    panels = []
    for split in rows["split"].unique(maintain_order=True):
        base = alt.Chart(data(rows.filter(split=split)))
        equal = alt.Chart(alt.Data(values=[{"score": 0, "share": 0}, {"score": 1, "share": 1}]))
        share = alt.Y("share:Q", title="share of positives", **axis)
        panels.append(
            alt.layer(
                equal.mark_line(color=GUIDE, strokeDash=[4, 4]).encode(x=x, y=share),
                base.transform_filter("isValid(datum.low)").mark_rule(color=COLOURS[0], opacity=0.6).encode(
                    x=x, y=alt.Y("low:Q", title="share of positives"), y2="high:Q"
                ),
                base.mark_point(filled=True, opacity=1, color=COLOURS[0]).encode(
                    x=x, y=share, size=size,
                    tooltip=tooltip,
                ),
            ).properties(title=split, width=230, height=230)
        )  # fmt: skip
    return alt.concat(*panels, columns=3).resolve_scale(size="shared")


def _counts() -> Any:
    """A legend of counts, which are whole."""
    return altair().Legend(format="d", tickMinStep=1, tickCount=4)


def _rows_size(rows: pl.DataFrame, sizes: list[int]) -> Any:
    """Marks as large as their rows are many; where all are one row, of one size and without a legend."""
    alt = altair()
    if rows["n"].n_unique() < 2:
        return alt.value(sum(sizes) / 4)
    return alt.Size("n:Q", title="rows", scale=alt.Scale(range=sizes), legend=_counts())


def prediction_chart(run: CotResult, method: str | None = None) -> Any:
    """Regression: predicted against true values, a panel for each test split; the line is equality."""
    return prediction_panels(prediction_rows(run, method or method_of(run)))


def prediction_panels(rows: pl.DataFrame) -> Any:
    """The same of a table of `prediction_rows`."""
    alt = altair()
    panels = []
    for split in rows["split"].unique(maintain_order=True):
        mine = rows.filter(split=split)
        ends = [float(f(mine["target"].to_list())) for f in (min, max)]
        equal = alt.Chart(alt.Data(values=[{"target": e, "predicted": e} for e in ends]))
        at = {"x": alt.X("target:Q", title="true, nats"), "y": alt.Y("predicted:Q", title="predicted, nats")}
        size = _rows_size(rows, [14, 160])
        tooltip = [alt.Tooltip(f"{c}:N") for c in ("target", "predicted", "n")]
        dots = alt.Chart(data(mine)).mark_point(filled=True, opacity=0.5, color=COLOURS[0])
        panels.append(
            alt.layer(
                equal.mark_line(color=GUIDE, strokeDash=[4, 4]).encode(**at),
                dots.encode(**at, size=size, tooltip=tooltip),
            ).properties(title=split, width=230, height=230)
        )
    return alt.concat(*panels, columns=3).resolve_scale(size="shared")
