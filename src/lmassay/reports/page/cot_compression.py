"""The page's section on compression: what keeping some sentences costs, for each way of choosing them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from lmassay.cot.compression import SCHEMA, WHOLE
from lmassay.cot.compression_scores import CompressionReport, compression_report
from lmassay.errors import LmassayError
from lmassay.reports.cot_charts import compression_chart, places_chart, singles_chart
from lmassay.reports.page.cot_words import CONTROL_WORDS, figure_words
from lmassay.reports.page.parts import Chart, Section, Table
from lmassay.reports.page.words import counted, number, span, verdict_kind, verdict_reason
from lmassay.storage.runs import COMPRESSION

TITLE = "Compression"
#: Columns of evidence as the page's own table of it calls them.
COLUMNS = {"signal_value": "signal's value", "control_value": "control's value", "p_holm": "p (Holm)",
           "n_clusters": "questions"}  # fmt: skip


def compression_section(folder: Path, seed: int) -> Section:
    """Curves of KL by M and by ratio, and where the kept sentences stand.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` where the table has not the columns it should.
    """
    try:
        cells = pl.read_parquet(folder / COMPRESSION)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _bad(folder, " ".join(str(error).split())[:160]) from error
    if not set(SCHEMA) <= set(cells.columns) or any(cells.schema[c] != kind for c, kind in SCHEMA.items()):
        raise _bad(folder, f"{COMPRESSION} does not have the columns it should")
    if not cells.height:
        return Section("selections", TITLE, "There is no cell.")
    return report_section(compression_report(cells, seed=seed))


def report_section(report: CompressionReport) -> Section:
    """The same of a report."""
    whole = report.summary.filter(pl.col("by") == "all", pl.col("selector") != WHOLE)
    kl = whole.filter(measure="answer_kl").sort("mean")
    best = kl.filter(pl.col("selector") != "deletion").head(1).to_dicts()
    none = kl.filter(selector="deletion").to_dicts()
    said = []
    if best:
        b = best[0]
        said.append(
            f"{b['selector']} has the least answer KL, {number(b['mean'], 3)} {span(b['low'], b['high'], 3)} nats "
            f"(n = {b['n']:,} cells, {counted(b['n_questions'], 'question')})"
        )
    if none:
        said.append(f"keeping none costs {number(none[0]['mean'], 3)} {span(none[0]['low'], none[0]['high'], 3)}")
    reading = f"{'; '.join(said)}." if said else "No cell has an answer KL."
    drawn = report.summary.filter(pl.col("by") != "all")
    parts: list[Chart | Table] = [
        Chart("compression", "KL by what is kept", reading, compression_chart(report), drawn,
              "Bars: one standard error over questions. Cells differ between selectors; evidence takes common ones."),
    ]  # fmt: skip
    if report.places.height:
        most = report.places.sort("share", descending=True).row(0, named=True)
        where = (
            f"{most['selector']} keeps {number(most['share'])} of its sentences in tenth {most['bin'] + 1} of the "
            f"region ({counted(most['n_questions'], 'question')}); .10 would be no preference."
        )
        places = _tenths(report.places)
        parts.append(Chart("places", "Where the kept sentences stand", where, places_chart(report), places))
    if report.singles.filter(pl.col("bin") >= 0).height:
        alone = report.singles.filter(pl.col("bin") < 0).row(0, named=True)
        n = f"n = {alone['n']:,} sentences, {counted(alone['n_questions'], 'question')}"
        takes = (
            f"Kept alone, a sentence takes {number(alone['mean'], 3)} nats off the KL of keeping none on average "
            f"(standard error {number(alone['se'], 3)}, {n}); {number(alone['helps'])} of them take something off."
        )
        singles = _tenths(report.singles)
        parts.append(Chart("singles", "What a sentence does alone", takes, singles_chart(report), singles))
    evidence = pl.DataFrame([row.to_dict() for row in report.evidence], infer_schema_length=None)
    if evidence.height:
        found = evidence["verdict"].to_list()
        survive, fail = (sum(v == word for v in found) for word in ("survives", "fails"))
        reading = f"{survive} of {len(found)} rows survive, {fail} fail; the others are undecided."
        title = "Selectors against keeping none and the last M"
        parts.append(Table("compression-evidence", title, reading, _in_words(evidence)))
    return Section("selections", TITLE, " ".join(f"{n}." for n in report.notices), parts)


def _tenths(rows: pl.DataFrame) -> pl.DataFrame:
    """Tenths counted as the page counts them, from 1; null for the whole region."""
    tenth = pl.when(pl.col("bin") >= 0).then(pl.col("bin") + 1)
    return rows.with_columns(bin=tenth).rename({"bin": "tenth"})


def _in_words(evidence: pl.DataFrame) -> pl.DataFrame:
    """The evidence's columns, and what stands in them, as the page calls them."""
    return evidence.with_columns(
        signal=pl.Series([_selector(name) for name in evidence["signal"]]),
        control=pl.Series([CONTROL_WORDS.get(name, name) for name in evidence["control"]]),
        verdict=pl.Series([f"{verdict_kind(v)} {verdict_reason(v)}".strip() for v in evidence["verdict"]]),
    ).rename({old: new for old, new in COLUMNS.items() if old in evidence.columns})


def _selector(signal: str) -> str:
    measure, _, selector = signal.partition(".")
    return f"{figure_words(measure)} of {selector}" if selector else signal


def _bad(folder: Path, why: str) -> LmassayError:
    return LmassayError("bad-run-folder", f"{folder}: {why}", "run its command again, in another folder")
