"""Altair figures that several sections share: intervals one a line, and curves over depths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lmassay.reports.cot_charts import COLOURS, SHAPES
from lmassay.reports.drawing import altair

if TYPE_CHECKING:
    import polars as pl

#: Width of a figure in the page's own units; the page scales it down on narrow windows.
WIDTH = 720
#: Dashes beside colours, so that curves can be told apart without either.
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 4), (1, 3))


def intervals(
    rows: pl.DataFrame, *, label: str, title: str, null: str | None = None, null_title: str = "", zero: bool = True
) -> Any:
    """Values with their intervals, one a line in the order given, and where the null would put each.

    Parameters
    ----------
    rows : DataFrame
        Columns `label`, ``value``, ``low``, ``high``, ``n`` and, if named, `null`; rows without a value are left out.
    """
    import polars as pl

    alt = altair()
    known = rows.filter(pl.col("value").is_not_null())
    order = known[label].to_list()
    data = alt.Chart(alt.Data(values=known.to_dicts()))
    y = alt.Y(f"{label}:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, grid=False))
    about = [alt.Tooltip(f"{label}:N")]
    about += [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "low", "high")]
    about += [alt.Tooltip("n:Q", format="d")]

    def x_of(name: str) -> Any:
        return alt.X(f"{name}:Q", title=title, axis=alt.Axis(tickCount=7))

    layers = [
        alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(opacity=0.45).encode(x=x_of("zero")) if zero else None,
        data.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=2, color=COLOURS[0])
        .encode(x=x_of("low"), x2="high:Q", y=y),
        data.mark_point(filled=True, size=70, opacity=1, color=COLOURS[0]).encode(x=x_of("value"), y=y, tooltip=about),
    ]
    if null is not None:
        layers.append(
            data.transform_filter(f"isValid(datum['{null}'])")
            .mark_tick(thickness=2, size=16, color=COLOURS[1])
            .encode(x=x_of(null), y=y, tooltip=[alt.Tooltip(f"{null}:Q", title=null_title, format=".3f")])
        )
    return alt.layer(*(layer for layer in layers if layer is not None)).properties(
        width=WIDTH - 200, height=max(60, 26 * len(order))
    )


def curves(
    rows: pl.DataFrame,
    *,
    value: str,
    title: str,
    series: str = "condition",
    low: str | None = None,
    high: str | None = None,
    banded: Sequence[str] = (),
    height: int = 260,
) -> Any:
    """Curves over depths, told apart by colour, dash and mark; bands of intervals for the series named.

    Parameters
    ----------
    rows : DataFrame
        Columns ``depth``, ``depth_index``, `series`, `value`, and `low` and `high` of the band.
    """
    import polars as pl

    alt = altair()
    names = rows[series].unique(maintain_order=True).to_list()
    depths = rows.select("depth", "depth_index").unique().sort("depth_index")["depth"].to_list()
    shown = depths[:: max(1, len(depths) // 12)]
    x = alt.X("depth:O", sort=depths, title="depth",
              axis=alt.Axis(values=shown, labelAngle=-40 if len(shown) > 6 else 0))  # fmt: skip
    key = alt.Legend(orient="top", columns=3, columnPadding=28, symbolOpacity=1, symbolStrokeWidth=0)
    scale = alt.Scale(domain=names, range=list(COLOURS))
    colour = alt.Color(f"{series}:N", sort=names, title=None, scale=scale, legend=key)
    shape = alt.Shape(f"{series}:N", sort=names, title=None, scale=alt.Scale(domain=names, range=list(SHAPES)))
    dashes = [list(DASHES[i % len(DASHES)]) for i in range(len(names))]
    dash = alt.StrokeDash(f"{series}:N", sort=names, scale=alt.Scale(domain=names, range=dashes), legend=None)
    known = rows.filter(pl.col(value).is_not_null())
    data = alt.Chart(alt.Data(values=known.to_dicts()))
    about = [alt.Tooltip(f"{series}:N"), alt.Tooltip("depth:N"), alt.Tooltip(f"{value}:Q", format=".3f")]
    layers = []
    if low is not None and high is not None and banded:
        bands = alt.Chart(alt.Data(values=known.filter(pl.col(series).is_in(list(banded))).to_dicts()))
        layers.append(
            bands.mark_area(opacity=0.18).encode(x=x, y=alt.Y(f"{low}:Q", title=title), y2=f"{high}:Q", color=colour)
        )
        about += [alt.Tooltip(f"{low}:Q", format=".3f"), alt.Tooltip(f"{high}:Q", format=".3f")]
    y = alt.Y(f"{value}:Q", title=title)
    layers += [
        data.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour, strokeDash=dash),
        data.mark_point(filled=True, size=26, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=about),
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=height)


def stacked(rows: pl.DataFrame, *, label: str, part: str, order: Sequence[str], title: str) -> Any:
    """Shares of a whole, one bar a line."""
    alt = altair()
    labels = rows[label].unique(maintain_order=True).to_list()
    return (
        alt.Chart(alt.Data(values=rows.to_dicts()))
        .transform_calculate(place=f"indexof({list(order)!r}, datum['{part}'])")
        .mark_bar()
        .encode(
            y=alt.Y(f"{label}:N", sort=labels, title=None, axis=alt.Axis(labelLimit=260)),
            x=alt.X("n:Q", stack="normalize", title=title, axis=alt.Axis(format="%")),
            color=alt.Color(f"{part}:N", sort=list(order), title=None,
                            scale=alt.Scale(domain=list(order), range=["#0072b2", "#e69f00", "#56b4e9", "#999999"]),
                            legend=alt.Legend(orient="top", columnPadding=28)),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip(f"{label}:N"), alt.Tooltip(f"{part}:N"), alt.Tooltip("n:Q", title="tasks")],
        )
        .properties(width=WIDTH - 200, height=max(60, 26 * len(labels)))
    )  # fmt: skip
