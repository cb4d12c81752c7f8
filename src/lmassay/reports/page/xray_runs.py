"""Several xray runs side by side, and the patterns over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from lmassay.errors import LmassayError
from lmassay.markup import survival
from lmassay.reports.charts import TREE_TITLES, psi_chart, psi_points, tree_chart
from lmassay.reports.page.figures import intervals
from lmassay.reports.page.opened import OpenedRun
from lmassay.reports.page.parts import Chart, Section, Table
from lmassay.reports.page.words import counted, figure, number, span
from lmassay.xray.compare import SCORES, compare_runs

_ID = "xray-runs"


def xray_overview(runs: Sequence[OpenedRun], names: Sequence[str]) -> Section:
    """Two or more finished runs beside each other.

    Parameters
    ----------
    names : sequence of str
        What the page calls each run.
    """
    documents = [(name, run.document) for run, name in zip(runs, names, strict=True) if run.document]
    parts: list[Chart | Table] = [_psi_excess(documents), _scores(documents)]
    intro = (
        "A rate of any win grows with the number of blocks: compare models by PSI above its expectation without skill."
    )
    try:
        comparison = compare_runs([run.path for run in runs])
    except LmassayError as error:
        # Figures of two conventions may stand on one page, as the runs they are; nothing is computed across them.
        return Section(_ID, "Models side by side", f"{intro} No patterns over these runs: {error.what}.", parts)
    parts += _families(comparison, list(names))
    parts += _patterns(comparison["patterns"])
    return Section(_ID, "Models side by side", intro, parts)


def _psi_excess(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> Chart:
    kept = ("value", "low", "high", "n", "n_clusters", "status")
    frame = pl.DataFrame(
        [{"run": name, **{k: d["scores"]["psi_excess"][k] for k in kept}} for name, d in documents],
        infer_schema_length=None,
    )
    above = [r["run"] for r in frame.iter_rows(named=True) if r["low"] is not None and r["low"] > 0]
    which = f"for {', '.join(above)}" if above else "for none"
    reading = f"Of {counted(len(documents), 'run')} the interval lies above zero {which}."
    chart = intervals(frame, label="run", title="PSI above its expectation without skill")
    return Chart(
        f"{_ID}-excess", "PSI above its expectation without skill", reading, chart, frame, "Bars: 95 % intervals."
    )


def _scores(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    rows: list[dict[str, Any]] = [
        {"score": "survives its controls"}
        | {name: survival(d["survives_its_controls"]) for name, d in documents}
        | {"what": "every row of the evidence survives"}
    ]
    for score in SCORES:
        there = [d["scores"].get(score) for _, d in documents]
        if any(there):
            figures = {name: figure(e) if e else "–" for (name, _), e in zip(documents, there, strict=True)}
            rows.append({"score": score, **figures, "what": next(e["title"] for e in there if e)})
    survive = sum(bool(d["survives_its_controls"]) for _, d in documents)
    reading = f"{survive} of {counted(len(documents), 'run')} survive all their controls."
    return Table(f"{_ID}-scores", "Scores", reading, pl.DataFrame(rows, infer_schema_length=None))


def _families(comparison: Mapping[str, Any], names: Sequence[str]) -> list[Chart | Table]:
    rows = [
        {"family": family, **{name: "–" if e is None else figure(e) for name, e in zip(names, estimates, strict=True)}}
        for family, estimates in comparison["families"].items()
    ]
    parts: list[Chart | Table] = []
    points = psi_points(dict(comparison))
    if points is not None:
        frame = pl.DataFrame(points, infer_schema_length=None)
        sizes = frame["parameters"].n_unique()
        reading = f"{counted(frame.height, 'point')}, models of {counted(sizes, 'size')}."
        parts.append(Chart(f"{_ID}-size", "PSI by family and size", reading, psi_chart(points), frame))
    if rows:
        reading = f"PSI with its 95 % interval, for {counted(len(rows), 'family', 'families')}."
        parts.append(Table(f"{_ID}-families", "PSI by family", reading, pl.DataFrame(rows, infer_schema_length=None)))
    return parts


def _patterns(patterns: Mapping[str, Any]) -> list[Chart | Table]:
    conjectures = pl.DataFrame(patterns["conjectures"], infer_schema_length=None).select(
        "name", "verdict", "claim", "value", "low", "high", "n", "chance", "chance_of", "detail"
    )
    observed = int((conjectures["verdict"].str.to_lowercase() == "observed").sum())
    undefined = int(conjectures["verdict"].str.starts_with("undefined").sum())
    parts: list[Chart | Table] = [
        Table(f"{_ID}-conjectures", "Conjectures on the held-out rows",
              f"{observed} of {conjectures.height} are observed, {undefined} are undefined for these runs.",
              conjectures.rename({"chance": "by luck", "chance_of": "luck of"})),
    ]  # fmt: skip
    for name, title in TREE_TITLES.items():
        tree = patterns["trees"][name]
        if tree["nodes"]:
            accuracy = tree["training"]["accuracy"]
            reading = f"Right on {figure(accuracy)} of the {accuracy['n']:,} rows it was grown on."
            rows = pl.DataFrame(tree["nodes"], infer_schema_length=None)
            parts.append(Chart(f"{_ID}-tree-{name}", title, reading, tree_chart(tree["nodes"], ""), rows))
    for which, rows in patterns["mutual_information"].items():
        known = [r for r in rows if r["plug_in"] is not None]
        if known:
            first = known[0]
            reading = (
                f"{first['feature']} goes with PSI > 0 most: {number(first['plug_in'], 3)} nats "
                f"{span(first['low'], first['high'], 3)} (n = {first['n']:,})."
            )
            frame = pl.DataFrame(rows, infer_schema_length=None)
            title = f"What goes with PSI > 0, {which.replace('_', '-')} rows"
            parts.append(Table(f"{_ID}-mi-{which}", title, reading, frame))
    confounds = pl.DataFrame(
        [
            {**c, "controls": ", ".join(c["controls"]), "not_measured": ", ".join(c["not_measured"])}
            for c in patterns["confounds"]
        ],
        infer_schema_length=None,
    )
    named = sum(bool(c["controls"]) for c in patterns["confounds"])
    parts.append(Table(f"{_ID}-confounds", "Dominant confound",
                       f"In {named} of {counted(confounds.height, 'run')} a control wins more often than the answer.",
                       confounds))  # fmt: skip
    return parts
