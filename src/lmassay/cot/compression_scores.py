"""What choosing sentences costs: KL by M and by compression ratio for each way of choosing, questions first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmassay.cot.compression import DELETION, LAST_M, WHOLE
from lmassay.evidence import Evidence, judged, no_evidence, paired_evidence
from lmassay.markup import evidence_html, html_table, interval, noted, number, verdicts
from lmassay.measures.bootstrap import ClusterDraws, cluster_draws, interval_of, ratio_draws
from lmassay.measures.intervals import Resampling
from lmassay.seeds import generator

#: nats, lower is better, except the last: how much a kept sentence takes off the KL of keeping none.
MEASURES = {
    "answer_kl": "KL of the answer, nats",
    "token_kl": "KL of the next sentence's tokens, nats",
    "mean_kl": "mean of the two, where both are known, nats",
    "gain_per_sentence": "(KL of keeping none - answer KL) / M, nats a kept sentence",
}
#: What a selector is held against: keeping none of the region, and the simplest choice.
CONTROLS = (DELETION, LAST_M)
SIGNALS = ("answer_kl", "token_kl")
BINS = 10
#: Two selectors that choose alike on this share of their common cells are named as one.
ALIKE = 0.99

SUMMARY: dict[str, Any] = {
    "by": pl.String, "at": pl.String, "selector": pl.String, "measure": pl.String, "mean": pl.Float64,
    "se": pl.Float64, "median": pl.Float64, "low": pl.Float64, "high": pl.Float64, "n": pl.Int64,
    "n_missing": pl.Int64, "n_questions": pl.Int64, "status": pl.String,
}  # fmt: skip
#: What tells prefixes apart; published data has one rollout of a question.
PREFIX = ["question", "rollout", "prefix_length"]
SINGLES: dict[str, Any] = {
    "bin": pl.Int64, "mean": pl.Float64, "se": pl.Float64, "median": pl.Float64, "helps": pl.Float64, "n": pl.Int64,
    "n_questions": pl.Int64,
}  # fmt: skip
PLACES: dict[str, Any] = {
    "selector": pl.String, "bin": pl.Int64, "share": pl.Float64, "se": pl.Float64, "n": pl.Int64,
    "n_questions": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True)
class CompressionReport:
    """Selectors side by side.

    Attributes
    ----------
    summary : polars.DataFrame
        A row for each selector and measure, over all cells (``by`` = ``all``), by M (``m``) and by compression ratio
        M / region (``ratio``, ``at`` such as ``(.1,.2]``). ``mean`` is over questions of their means, ``se`` its
        standard error over questions, ``median`` the median question; the interval is a bootstrap by question; ``n``
        counts cells, ``n_missing`` those without the measure.
    places : polars.DataFrame
        ``share`` of the kept sentences in each tenth of the region, questions first; .1 without a preference.
    singles : polars.DataFrame
        What one sentence does by itself, by tenth of the region (-1: the whole region): KL of keeping none minus KL
        when it is the only one kept, nats, questions first; ``median`` of the sentences, ``helps`` the share above 0.
        Empty where no sentence was measured alone, as in the published data.
    evidence : tuple of Evidence
        Each selector against each of `CONTROLS`, on the cells both have; positive differences are lower KLs.
    notices : tuple of str
    """

    summary: pl.DataFrame
    places: pl.DataFrame
    singles: pl.DataFrame
    evidence: tuple[Evidence, ...]
    notices: tuple[str, ...]

    def __repr__(self) -> str:
        selectors = self.summary["selector"].n_unique()
        return f"<CompressionReport {selectors} selectors: evidence {verdicts(r.verdict for r in self.evidence)}>"

    def _repr_html_(self) -> str:
        """Evidence first, for a notebook."""
        columns = ("selector", "measure", "mean", "95 % interval", "cells", "questions", "status")
        rows = [
            (r["selector"], r["measure"], number(r["mean"]), interval(r["low"], r["high"]), r["n"], r["n_questions"],
             r["status"])
            for r in self.summary.filter(by="all").to_dicts()
        ]  # fmt: skip
        table = html_table("KL, questions first", columns, rows, left=2)
        return evidence_html(r.to_dict() for r in self.evidence) + table + noted(self.notices)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "evidence": [row.to_dict() for row in self.evidence],
            "summary": self.summary.to_dicts(),
            "places": self.places.to_dicts(),
            "singles": self.singles.to_dicts(),
            "notices": list(self.notices),
        }


def compression_report(cells: pl.DataFrame, *, seed: int = 0) -> CompressionReport:
    """Summaries of a table of cells (`lmassay.cot.compression.SCHEMA`), published or one's own (`own_cells`)."""
    if "rollout" not in cells.columns:
        cells = cells.with_columns(rollout=pl.lit(0, dtype=pl.Int64))
    cells = _with_measures(cells)
    questions = sorted(cells["question"].unique().to_list())
    drawn = cluster_draws(questions, generator(seed, "questions", "cot compression"))
    # What keeps everything has as many values of M as there are prefixes, and nothing to show at any of them.
    chosen = cells.filter(pl.col("selector") != WHOLE)
    tables = [
        _summarised(
            (cells if by == "all" else chosen).with_columns(by=pl.lit(by), at=at, order=order), questions, drawn
        )
        for by, at, order in (
            ("all", pl.lit("all"), pl.lit(0, dtype=pl.Int64)),
            ("m", pl.col("m").cast(pl.String), pl.col("m")),
            ("ratio", _ratio_name(), _ratio_bin()),
        )
    ]
    evidence = judged(_evidence(cells, seed))
    return CompressionReport(pl.concat(tables), _places(cells), single_effects(cells), evidence, tuple(_notices(cells)))


def _with_measures(cells: pl.DataFrame) -> pl.DataFrame:
    none = cells.filter(selector=DELETION).select(*PREFIX, none="answer_kl")
    return cells.join(none.unique(PREFIX), on=PREFIX, how="left", maintain_order="left").with_columns(
        mean_kl=(pl.col("answer_kl") + pl.col("token_kl")) / 2,
        gain_per_sentence=pl.when((pl.col("m") > 0) & (pl.col("selector") != WHOLE)).then(
            (pl.col("none") - pl.col("answer_kl")) / pl.col("m")
        ),
    )


def _ratio_bin() -> pl.Expr:
    """1 for M / region in (0, .1] … 10 for (.9, 1], in whole numbers; 0 where nothing is kept."""
    return (BINS * pl.col("m") + pl.col("n_region") - 1) // pl.col("n_region")


def _ratio_name() -> pl.Expr:
    names = ["0", *(f"({_tenth(i)},{_tenth(i + 1)}]" for i in range(BINS))]
    return _ratio_bin().replace_strict(list(range(BINS + 1)), names, return_dtype=pl.String)


def _tenth(i: int) -> str:
    return {0: "0", BINS: "1"}.get(i, f".{i}")


def _summarised(cells: pl.DataFrame, questions: Sequence[str], drawn: ClusterDraws) -> pl.DataFrame:
    long = cells.unpivot(
        list(MEASURES), index=["by", "at", "order", "selector", "question"], variable_name="measure"
    ).with_columns(pl.col("value").fill_nan(None))
    keys = ["by", "at", "order", "selector", "measure"]
    each = long.group_by(*keys, "question").agg(
        pl.col("value").mean(), n=pl.col("value").count(), n_missing=pl.col("value").null_count()
    )
    number = {q: i for i, q in enumerate(questions)}
    rank = {name: i for i, name in enumerate(MEASURES)}
    rows = []
    for key, part in sorted(
        each.partition_by(keys, as_dict=True).items(), key=lambda kv: (kv[0][2], kv[0][3], rank[str(kv[0][4])])
    ):
        known = part.drop_nulls("value").sort("question")
        if not known.height:
            # Keeping all or nothing has no gain by sentence: no row, rather than one without a figure.
            continue
        values = known["value"].to_numpy()
        sums, there = np.zeros(len(questions)), np.zeros(len(questions))
        places = [number[q] for q in known["question"]]
        sums[places], there[places] = values, 1.0
        low, high, status = interval_of(ratio_draws(sums, there, drawn), len(values))
        rows.append(
            {
                **dict(zip(keys, key, strict=True)),
                "mean": float(values.mean()),
                "se": float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None,
                "median": float(np.median(values)),
                "low": low,
                "high": high,
                "n": int(part["n"].sum()),
                "n_missing": int(part["n_missing"].sum()),
                "n_questions": len(values),
                "status": status,
            }
        )
    return pl.DataFrame(rows, schema={**SUMMARY, "order": pl.Int64}).select(list(SUMMARY))


def _places(cells: pl.DataFrame) -> pl.DataFrame:
    """Where in the region the kept sentences stand. A share is of one cell's, then of a question's, then over them."""
    chosen = cells.filter(pl.col("indices").list.len() > 0).with_row_index("cell")
    index = ["cell", "selector", "question", "n_region"]
    each = chosen.select(*index, "indices").explode("indices").drop_nulls("indices")
    # Whole numbers, so that a sentence on a border falls where it does on every machine.
    each = each.with_columns(bin=((2 * pl.col("indices") + 1) * BINS) // (2 * pl.col("n_region")))
    each = each.filter((pl.col("bin") >= 0) & (pl.col("bin") < BINS))
    shares = each.group_by(*index, "bin").len().with_columns(share=pl.col("len") / pl.col("len").sum().over("cell"))
    grid = chosen.select(index).join(pl.DataFrame({"bin": range(BINS)}), how="cross")
    shares = grid.join(shares, on=[*index, "bin"], how="left").with_columns(pl.col("share").fill_null(0.0))
    return (
        shares.group_by("selector", "bin", "question")
        .agg(pl.col("share").mean(), n=pl.len())
        .group_by("selector", "bin")
        .agg(
            share=pl.col("share").mean(),
            se=pl.col("share").std() / pl.len().sqrt(),
            n=pl.col("n").sum(),
            n_questions=pl.len(),
        )
        .sort("selector", "bin")
        .select(pl.col(name).cast(kind) for name, kind in PLACES.items())
    )


def single_effects(cells: pl.DataFrame) -> pl.DataFrame:
    """`CompressionReport.singles` of cells that have ``single_kl`` and what keeping none of the region costs."""
    if "single_kl" not in cells.columns:
        return pl.DataFrame(schema=SINGLES)
    whole = cells.filter((pl.col("selector") == WHOLE) & pl.col("single_kl").is_not_null())
    each = whole.with_columns(at=pl.int_ranges("n_region")).explode("single_kl", "at")
    each = each.select(
        "question",
        effect=pl.col("none") - pl.col("single_kl"),
        bin=((2 * pl.col("at") + 1) * BINS) // (2 * pl.col("n_region")),
    ).drop_nulls("effect")
    return (
        pl.concat([each.with_columns(bin=pl.lit(-1, dtype=pl.Int64)), each])
        .group_by("bin", "question")
        .agg(pl.col("effect").mean().alias("mean"), pl.col("effect"))
        .group_by("bin")
        .agg(
            pl.col("mean").mean(),
            se=pl.col("mean").std() / pl.len().sqrt(),
            median=pl.col("effect").explode().median(),
            helps=(pl.col("effect").explode() > 0).mean(),
            n=pl.col("effect").list.len().sum(),
            n_questions=pl.len(),
        )
        .sort("bin")
        .select(pl.col(name).cast(kind) for name, kind in SINGLES.items())
    )


def _evidence(cells: pl.DataFrame, seed: int) -> list[Evidence]:
    rows: list[Evidence] = []
    for selector in sorted(set(cells["selector"]) - {WHOLE, DELETION}):
        mine = cells.filter(selector=selector)
        for measure in SIGNALS:
            rows += [
                _against(mine, cells.filter(selector=control), control, measure, seed)
                for control in CONTROLS
                if control != selector and control in cells["selector"]
            ]
    return rows


def _against(mine: pl.DataFrame, theirs: pl.DataFrame, control: str, measure: str, seed: int) -> Evidence:
    """Question means over the cells both have. Keeping nothing has one cell a prefix, held against every M."""
    signal = f"{measure}.{mine['selector'][0]}"
    cell = PREFIX + (["m"] if control != DELETION else [])
    both = mine.join(theirs.select(*cell, other=measure), on=cell).drop_nulls([measure, "other"])
    if not both.height:
        return no_evidence(signal, control, "kl", "no common cells")
    each = both.group_by("question").agg(pl.col(measure).mean(), pl.col("other").mean()).sort("question")
    resampling = Resampling(
        each["question"].to_list(), generator(seed, f"{measure}/{control}", "cot compression pairs")
    )
    # A lower KL is better, so both are turned round for the difference and back for the eye.
    row = paired_evidence(signal, control, "kl", -_floats(each, measure), -_floats(each, "other"), resampling)
    assert row.signal_value is not None
    assert row.control_value is not None
    return replace(row, signal_value=abs(row.signal_value), control_value=abs(row.control_value))


def _floats(frame: pl.DataFrame, name: str) -> NDArray[np.float64]:
    return frame[name].to_numpy().astype(np.float64)


def _notices(cells: pl.DataFrame) -> list[str]:
    found = []
    for measure in SIGNALS:
        missing = cells[measure].null_count()
        if missing:
            found.append(f"{measure} is missing in {missing} of {cells.height} cells, which take no part in it")
    if "answer_kl_exact" in cells.columns:
        bounded = cells.filter(~pl.col("answer_kl_exact")).height
        if bounded:
            found.append(f"in {bounded} cells the server did not tell every letter, which counts by its upper bound")
        lower = cells.filter("token_kl_lower_bound").height
        if lower:
            found.append(f"the token KL of {lower} cells is a lower bound")
    floored = cells.filter(pl.col("floored_mass") > 0).height
    if floored:
        found.append(f"in {floored} cells an answer letter lies under the floor, which bounds their answer KL")
    odd = cells.filter(
        pl.col("indices").is_not_null() & (pl.col("m") > 0) & (pl.col("indices").list.len() != pl.col("m"))
    )
    if odd.height:
        found.append(f"{odd.height} selections have other than M sentences ({', '.join(sorted(set(odd['selector'])))})")
    return found + _alike(cells)


def _alike(cells: pl.DataFrame) -> list[str]:
    """Pairs of selectors that chose the same sentences."""
    chosen = cells.filter(pl.col("indices").is_not_null() & (pl.col("m") > 0)).select(
        *PREFIX,
        "m",
        "selector",
        pl.col("indices").list.sort().cast(pl.List(pl.String)).list.join(","),
    )
    names = sorted(set(chosen["selector"]))
    found = []
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            both = chosen.filter(selector=one).join(chosen.filter(selector=other), on=[*PREFIX, "m"], suffix="_other")
            same = both.filter(pl.col("indices") == pl.col("indices_other")).height
            if both.height and same >= ALIKE * both.height:
                found.append(f"{one} and {other} chose the same sentences in {same} of {both.height} common cells")
    return found
