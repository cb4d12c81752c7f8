"""Altair charts of the cot suite: a method beside its controls, the leaderboard, tasks 8 and 9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmassay.cot.compression_scores import MEASURES
from lmassay.errors import LmassayError
from lmassay.reports.drawing import altair, data

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.compression_scores import CompressionReport
    from lmassay.cot.entropy import EntropyReport
    from lmassay.cot.evaluate import Evaluation
    from lmassay.cot.leaderboard import Leaderboard

#: Colours told apart by people who do not see red and green as two (Okabe and Ito 2008), the last two greys.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#333333")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right")


def evaluation_chart(evaluation: Evaluation, figure: str | None = None) -> Any:
    """One figure of a method and of every control, a panel for each test split, with 95 % intervals.

    Parameters
    ----------
    figure : str, optional
        Such as ``auroc``; without one the first that evidence is taken from.
    """
    import polars as pl

    name = figure or evaluation.scored.evidence[0].metric
    rows = evaluation.scores.filter(pl.col("figure") == name, pl.col("value").is_not_null())
    order = [evaluation.scored.method, *evaluation.scored.controls]
    rows = rows.with_columns(
        role=pl.when(pl.col("method") == evaluation.scored.method).then(pl.lit("method")).otherwise(pl.lit("control"))
    )
    panels = [
        _intervals(rows.filter(split=split), x="value", y="method", order=order, colour="role", title=name).properties(
            title=split, width=220, height=24 * len(order)
        )
        for split in rows["split"].unique(maintain_order=True)
    ]
    return altair().hconcat(*panels).resolve_scale(x="shared", color="shared")


def _intervals(
    rows: pl.DataFrame, *, x: str, y: str, order: list[str], colour: str, title: str, apart: bool = False
) -> Any:
    """Points with the bounds of their intervals, one a line; `apart`, those of each colour on a line of their own."""
    alt = altair()
    at = {
        **({"yOffset": alt.YOffset(f"{colour}:N")} if apart else {}),
        "y": alt.Y(f"{y}:N", sort=order, title=None, axis=alt.Axis(labelLimit=240)),
        "color": alt.Color(f"{colour}:N", title=None, scale=alt.Scale(range=list(COLOURS))),
        "tooltip": [alt.Tooltip(f"{name}:N") for name in (y, colour, x, "low", "high", "n")],
    }
    base = alt.Chart(data(rows))
    bounds = base.transform_filter("isValid(datum.low)").mark_rule(opacity=0.7)
    return alt.layer(
        bounds.encode(x=alt.X("low:Q", title=title, scale=alt.Scale(zero=False)), x2="high:Q", **at),
        base.mark_point(filled=True, size=45, opacity=1).encode(x=alt.X(f"{x}:Q", title=title), **at),
    )


def leaderboard_chart(board: Leaderboard) -> Any:
    """Every cell of a leaderboard: a panel for each task, rows in their order, in and out of distribution."""
    import polars as pl

    order = [row.label for row in board.rows]
    cells = board.cells.filter(pl.col("value").is_not_null(), pl.col("headline"))
    panels = []
    for task in cells["task"].unique(maintain_order=True):
        mine = cells.filter(task=task)
        panels.append(
            _intervals(
                mine, x="value", y="row", order=order, colour="part", title=str(mine["figure"][0]), apart=True
            ).properties(title=task, width=170, height=26 * len(order))
        )
    alt = altair()
    return alt.concat(*panels, columns=4).resolve_scale(x="independent", color="shared")


def entropy_chart(report: EntropyReport) -> Any:
    """Mean entropy along the rollouts, by split: questions first, bands of one standard error.

    Raises
    ------
    LmassayError
        ``bad-request`` for data that does not say where in a rollout a row stands.
    """
    import polars as pl

    if not report.by_position.height:
        raise LmassayError(
            "bad-request", f"{report.task} does not say where in a rollout its rows stand", "leave the figure out"
        )
    alt = altair()
    rows = report.by_position.with_columns(
        at=(pl.col("bin") + 0.5) / 10,
        low=pl.col("mean") - pl.col("se").fill_null(0.0),
        high=pl.col("mean") + pl.col("se").fill_null(0.0),
    )
    splits = rows["split"].unique(maintain_order=True).to_list()
    at = {
        "x": alt.X("at:Q", title="place among the rollout's forced boundaries", scale=alt.Scale(domain=[0, 1])),
        "color": alt.Color("split:N", sort=splits, title=None, scale=alt.Scale(range=list(COLOURS))),
    }
    base = alt.Chart(data(rows))
    return alt.layer(
        base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="entropy of the answer, nats"), y2="high:Q", **at),
        base.mark_line().encode(y="mean:Q", **at),
        base.mark_point(filled=True, size=30).encode(y="mean:Q", **at),
    ).properties(title="Answer entropy along the chain of thought (± one standard error)", width=480, height=280)


def compression_chart(report: CompressionReport) -> Any:
    """KL against compression ratio and against M, a line for each selector, bars of one standard error."""
    import polars as pl

    alt = altair()
    panels = []
    for measure in ("answer_kl", "token_kl"):
        for by, title in (("ratio", "share of the region kept"), ("m", "M, sentences kept")):
            rows = report.summary.filter(
                pl.col("by") == by, pl.col("measure") == measure, pl.col("selector") != "baseline"
            )
            # Keeping none is where every line begins; it has no line of its own.
            rows = rows.with_columns(
                low=(pl.col("mean") - pl.col("se").fill_null(0.0)).clip(0),
                high=pl.col("mean") + pl.col("se").fill_null(0.0),
            )
            panels.append(_lines(rows, rows["at"].unique(maintain_order=True).to_list(), title, MEASURES[measure]))
    return alt.concat(*panels, columns=2).resolve_scale(y="independent", color="shared", shape="shared")


def _lines(rows: pl.DataFrame, order: list[str], x: str, y: str) -> Any:
    alt = altair()
    at = {
        "x": alt.X("at:N", sort=order, title=x, axis=alt.Axis(labelAngle=0)),
        "color": alt.Color("selector:N", title=None, scale=alt.Scale(range=list(COLOURS))),
    }
    base = alt.Chart(data(rows))
    return alt.layer(
        base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", title=y), y2="high:Q", **at),
        base.mark_line(opacity=0.6).encode(y="mean:Q", **at),
        base.mark_point(filled=True, size=45).encode(
            y="mean:Q", shape=alt.Shape("selector:N", legend=None, scale=alt.Scale(range=list(SHAPES))), **at
        ),
    ).properties(width=380, height=240)


def compression_figure(report: CompressionReport) -> Any:
    """The charts of task 9, one above the other."""
    alt = altair()
    charts = [compression_chart(report), places_chart(report)]
    if report.singles.height:
        charts.append(singles_chart(report))
    return alt.vconcat(*charts).resolve_scale(color="independent")


def places_chart(report: CompressionReport) -> Any:
    """Where in the region each selector's sentences stand; the rule is no preference."""
    import polars as pl

    alt = altair()
    rows = report.places.with_columns(tenth=pl.col("bin") + 1)
    at = alt.Chart(data(rows))
    panels = []
    for selector in rows["selector"].unique(maintain_order=True):
        bars = at.transform_filter(alt.datum.selector == selector).mark_bar(color=COLOURS[0])
        rule = alt.Chart(alt.Data(values=[{"even": 0.1}])).mark_rule(color=COLOURS[1]).encode(y="even:Q")
        x = alt.X("tenth:O", title="tenth of the region", axis=alt.Axis(labelAngle=0))
        y = alt.Y("share:Q", title="share of kept sentences")
        panels.append(alt.layer(bars.encode(x=x, y=y), rule).properties(title=selector, width=190, height=165))
    return alt.concat(*panels, columns=3).resolve_scale(y="shared")


def singles_chart(report: CompressionReport) -> Any:
    """What one sentence does by itself, along the region, with standard errors over questions; the rule is nothing."""
    import polars as pl

    alt = altair()
    se = pl.col("se").fill_null(0.0)
    rows = report.singles.filter(pl.col("bin") >= 0).with_columns(
        tenth=pl.col("bin") + 1, low=pl.col("mean") - se, high=pl.col("mean") + se
    )
    base = alt.Chart(data(rows)).encode(x=alt.X("tenth:O", title="tenth of the region", axis=alt.Axis(labelAngle=0)))
    rule = alt.Chart(alt.Data(values=[{"none": 0.0}])).mark_rule(color=COLOURS[1]).encode(y="none:Q")
    return alt.layer(
        rule,
        base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", title="KL taken off, nats"), y2="high:Q"),
        base.mark_point(filled=True, size=45, color=COLOURS[0]).encode(y="mean:Q"),
    ).properties(title="A sentence alone (± one standard error)", width=380, height=240)
