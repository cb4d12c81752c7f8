"""Task 9: cells against loops, the published KLs to 1e-9, and questions before averages."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from json_tree import EXPORT, as_json

from lmassay.cot.compression import SCHEMA, cells_of
from lmassay.cot.compression_scores import compression_report
from lmassay.errors import LmassayError

needs_export = pytest.mark.skipif(not EXPORT.is_dir(), reason="the published data is not beside this checkout")
SELECTORS = ("monitor", "last_m")


def made_records(n_questions=12, seed=0):
    """Questions of few and many prefixes; what is kept helps."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(n_questions):
        for prefix in range(15, 16 + (q % 4) * 6, 3):
            region = prefix - 5
            spread = rng.dirichlet(np.ones(4))

            def near(weight, spread=spread):
                p = weight * spread + (1 - weight) * rng.dirichlet(np.ones(4))
                return [{"key": k, "value": float(v)} for k, v in zip("ABCD", p, strict=True)]

            about = {"question_id": f"q{q}", "prefix_length": prefix}
            whole = [{"key": k, "value": float(v)} for k, v in zip("ABCD", spread, strict=True)]
            rows.append({**about, "method": "baseline", "keep_m": region, "token_kl": 0.0, "selected_indices": None,
                         "distribution": whole})  # fmt: skip
            rows.append({**about, "method": "deletion", "keep_m": 0, "token_kl": None, "selected_indices": None,
                         "distribution": near(0.2)})  # fmt: skip
            for selector in SELECTORS:
                for m in (3, 5, 10):
                    chosen = sorted(rng.choice(region, m, replace=False).tolist()) if selector == "monitor" else None
                    weight = 0.9 if selector == "monitor" else 0.5
                    rows.append({**about, "method": selector, "keep_m": m, "token_kl": float(rng.random()),
                                 "selected_indices": chosen, "distribution": near(weight)})  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


@pytest.fixture(scope="module")
def records():
    return made_records()


@pytest.fixture(scope="module")
def cells(records):
    return cells_of(records)


@pytest.fixture(scope="module")
def report(cells):
    return compression_report(cells)


def loop_kl(p, q, floor=1e-10):
    """Letters one side lacks are 0; q is floored, p is not; nothing is normalised."""
    p, q = ({d["key"]: d["value"] for d in side} for side in (p, q))
    return sum(a * (math.log(a) - math.log(max(q.get(k, 0.0), floor))) for k, a in p.items() if a > 0)


def _check_kls(records, cells, expected):
    whole = {
        (r["question_id"], r["prefix_length"]): r["distribution"]
        for r in records.filter(method="baseline").iter_rows(named=True)
    }
    key = ("question_id", "prefix_length", "keep_m", "method")
    wanted = {
        tuple(r[k] for k in key): (loop_kl(whole[r["question_id"], r["prefix_length"]], r["distribution"]), expected(r))
        for r in records.iter_rows(named=True)
    }
    assert cells.height == len(wanted)
    for cell in cells.iter_rows(named=True):
        loop, stored = wanted[cell["question"], cell["prefix_length"], cell["m"], cell["selector"]]
        assert abs(cell["answer_kl"] - loop) < 1e-12
        assert stored is None or abs(cell["answer_kl"] - stored) < 1e-9


def test_answer_kls_are_those_of_a_loop(records, cells):
    assert cells.schema == SCHEMA
    _check_kls(records, cells, lambda r: None)


def test_a_letter_one_side_lacks_is_zero_there_and_its_mass_is_told(records):
    changed = records.with_columns(
        distribution=pl.when((pl.col("method") == "monitor") & (pl.col("keep_m") == 3))
        .then(pl.col("distribution").list.head(3))
        .otherwise(pl.col("distribution"))
    )
    cells = cells_of(changed)
    _check_kls(changed, cells, lambda r: None)
    floored = cells.filter(pl.col("floored_mass") > 0)
    assert set(floored["m"]) == {3}
    assert set(floored["selector"]) == {"monitor"}
    assert any("under the floor" in notice for notice in compression_report(cells).notices)


def test_the_order_of_records_changes_nothing(records, cells):
    assert cells_of(records.sample(fraction=1, shuffle=True, seed=1)).equals(cells)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: pl.concat([r, r.head(1)]), "stands twice"),
        (lambda r: r.filter(~((pl.col("method") == "baseline") & (pl.col("question_id") == "q3"))), "whole prefix"),
        (lambda r: r.with_columns(keep_m=pl.col("keep_m") + 900), "keeps 9.. of"),
        (lambda r: r.drop("distribution"), "no field distribution"),
    ],
)
def test_cells_that_do_not_fit_are_named(records, change, message):
    with pytest.raises(LmassayError, match=message) as error:
        cells_of(change(records))
    assert error.value.code == "cot-data-broken"


def _summary(report, **which):
    return report.summary.filter(**which).row(0, named=True)


def _by_question(cells, selector, value, keep):
    found = {}
    for cell in cells.iter_rows(named=True):
        if cell["selector"] == selector and keep(cell) and cell[value] is not None:
            found.setdefault(cell["question"], []).append(cell[value])
    return {q: sum(v) / len(v) for q, v in found.items()}, sum(len(v) for v in found.values())


def test_a_mean_is_over_questions_of_their_means(cells, report):
    cases = [
        ("all", "all", lambda c: True),
        ("m", "5", lambda c: c["m"] == 5),
        ("ratio", "(.2,.3]", lambda c: 0.2 < c["m"] / c["n_region"] <= 0.3),
        ("ratio", "(.9,1]", lambda c: 0.9 < c["m"] / c["n_region"] <= 1),
    ]
    for by, at, keep in cases:
        means, n = _by_question(cells, "monitor", "answer_kl", keep)
        row = _summary(report, by=by, at=at, selector="monitor", measure="answer_kl")
        values = sorted(means.values())
        mean = sum(values) / len(values)
        assert row["mean"] == pytest.approx(mean, abs=1e-12)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
        assert row["se"] == pytest.approx(deviation / math.sqrt(len(values)), abs=1e-12)
        assert row["median"] == pytest.approx(float(np.median(values)), abs=1e-12)
        assert (row["n"], row["n_questions"]) == (n, len(values))
        assert row["low"] <= row["mean"] <= row["high"]


def test_a_missing_kl_is_missing_and_not_zero(report):
    kept = report.summary.filter(selector="deletion", measure="token_kl")
    assert kept.height == 0
    row = _summary(report, by="all", selector="deletion", measure="answer_kl")
    assert row["n_missing"] == 0
    assert any("token_kl is missing in" in notice for notice in report.notices)


def test_ratios_on_a_border_belong_to_the_lower_bin():
    """M / region = .3 exactly, which floating point would put above .3."""
    records = made_records().filter(pl.col("prefix_length") == 15)
    report = compression_report(cells_of(records))
    assert set(report.summary.filter(by="ratio", selector="monitor")["at"]) == {"(.2,.3]", "(.4,.5]", "(.9,1]"}
    assert set(report.summary.filter(by="ratio", selector="deletion")["at"]) == {"0"}


def test_gain_by_sentence_is_what_a_kept_sentence_takes_off(cells, report):
    none = {(c["question"], c["prefix_length"]): c["answer_kl"] for c in cells.filter(selector="deletion").to_dicts()}
    gains = {}
    for c in cells.filter(selector="monitor").to_dicts():
        gain = (none[c["question"], c["prefix_length"]] - c["answer_kl"]) / c["m"]
        gains.setdefault(c["question"], []).append(gain)
    mean = sum(sum(v) / len(v) for v in gains.values()) / len(gains)
    assert _summary(report, by="all", selector="monitor", measure="gain_per_sentence")["mean"] == pytest.approx(
        mean, abs=1e-12
    )


def test_places_of_kept_sentences_are_shares_that_sum_to_one(cells, report):
    for selector in SELECTORS:
        rows = report.places.filter(selector=selector)
        assert rows["bin"].to_list() == list(range(10))
        assert rows["share"].sum() == pytest.approx(1)
    by_question = {}
    for c in cells.filter(selector="monitor").to_dicts():
        share = sum(int((i + 0.5) / c["n_region"] * 10) == 4 for i in c["indices"]) / len(c["indices"])
        by_question.setdefault(c["question"], []).append(share)
    mean = sum(sum(v) / len(v) for v in by_question.values()) / len(by_question)
    assert report.places.filter(selector="monitor", bin=4)["share"][0] == pytest.approx(mean, abs=1e-12)
    # The last sentences are last by their very name.
    assert report.places.filter(selector="last_m", bin=9)["share"][0] > 0.2
    assert report.places.filter(selector="last_m", bin=0)["share"][0] < 0.1


def test_evidence_compares_on_common_cells_and_a_lower_kl_is_better(cells, report):
    row = next(r for r in report.evidence if (r.signal, r.control) == ("answer_kl.monitor", "last_m"))
    one, _ = _by_question(cells, "monitor", "answer_kl", lambda c: True)
    other, _ = _by_question(cells, "last_m", "answer_kl", lambda c: True)
    assert row.signal_value == pytest.approx(sum(one.values()) / 12, abs=1e-12)
    assert row.difference == pytest.approx((sum(other.values()) - sum(one.values())) / 12, abs=1e-12)
    assert row.verdict == "survives"
    lacking = next(r for r in report.evidence if (r.signal, r.control) == ("token_kl.monitor", "deletion"))
    assert lacking.verdict == "undecided (no common cells)"


def test_two_selectors_that_choose_alike_are_named_and_so_is_a_selection_of_another_size(records):
    twin = records.filter(method="monitor").with_columns(method=pl.lit("twin"))
    short = (
        records.filter(method="monitor")
        .head(1)
        .with_columns(method=pl.lit("short"), selected_indices=pl.col("selected_indices").list.head(2))
    )
    notices = compression_report(cells_of(pl.concat([records, twin, short]))).notices
    n = twin.height
    assert f"monitor and twin chose the same sentences in {n} of {n} common cells" in notices
    assert "1 selections have other than M sentences (short)" in notices


def _records(path):
    """As the store gives them: maps as lists of pairs, whatever polars makes of them."""
    frame = pl.read_parquet(path)
    pairs = [[{"key": k, "value": v} for k, v in dict(as_json(d)).items()] for d in frame["distribution"].to_list()]
    if "selected_indices" not in frame.columns:
        frame = frame.with_columns(selected_indices=pl.lit(None, dtype=pl.List(pl.Int64)))
    frame = frame.with_columns(distribution=pl.Series(pairs))
    return frame.select(
        "question_id", "method", "prefix_length", "keep_m", pl.col("kl_to_baseline", "token_kl").cast(pl.Float64),
        "selected_indices", "distribution",
    )  # fmt: skip


@needs_export
def test_the_published_answer_kls_come_out_to_1e_9():
    folder = EXPORT / "task9"
    files = [p for p in sorted(folder.glob("task9_*.parquet")) if "prompts" not in p.name]
    records = pl.concat([_records(p) for p in files])
    assert records.height == 39167
    _check_kls(records, cells_of(records), lambda r: r["kl_to_baseline"])
