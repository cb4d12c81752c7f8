"""Cells of one's own: rollouts kept apart, what single sentences do, against loops; files that do not fit."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict

import numpy as np
import polars as pl
import pytest

from lmassay.cli import main
from lmassay.cot.compression_scores import compression_report
from lmassay.cot.own_cells import read_cells
from lmassay.errors import LmassayError


def made_cells(seed=0):
    """Questions of one to three rollouts, prefixes of 8 to 14 sentences."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(11):
        for rollout in range(1 + q % 3):
            for n in (8, 11, 14):
                region = n - 5
                none = float(rng.gamma(2.0, 0.3))
                about = {"question": f"q{q}", "rollout": rollout, "prefix_length": n, "n_region": region}
                about |= {"floored_mass": 0.0, "token_kl_lower_bound": False, "answer_kl_exact": True}
                single = (none * rng.uniform(0.2, 1.3, region)).tolist()
                rows.append({**about, "m": region, "selector": "baseline", "indices": None, "answer_kl": 0.0,
                             "token_kl": 0.0, "single_kl": single})  # fmt: skip
                rows.append({**about, "m": 0, "selector": "deletion", "indices": None, "answer_kl": none,
                             "token_kl": none / 2, "single_kl": None})  # fmt: skip
                for name in ("last_m", "random"):
                    kept = list(range(region - 2, region)) if name == "last_m" else sorted(rng.choice(region, 2, False))
                    rows.append({**about, "m": 2, "selector": name, "indices": [int(i) for i in kept],
                                 "answer_kl": none * float(rng.uniform(0.1, 1)), "token_kl": float(rng.random()),
                                 "single_kl": None})  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


@pytest.fixture
def file(tmp_path):
    made_cells().write_parquet(tmp_path / "cells.parquet")
    return tmp_path / "cells.parquet"


def test_gains_are_against_the_deletion_of_the_same_rollout(file):
    report = compression_report(read_cells(file))
    rows = made_cells().to_dicts()
    none = {
        (r["question"], r["rollout"], r["prefix_length"]): r["answer_kl"] for r in rows if r["selector"] == "deletion"
    }
    by = defaultdict(list)
    for r in rows:
        if r["selector"] == "random":
            by[r["question"]].append((none[r["question"], r["rollout"], r["prefix_length"]] - r["answer_kl"]) / r["m"])
    means = [statistics.fmean(values) for values in by.values()]
    (found,) = report.summary.filter(by="all", selector="random", measure="gain_per_sentence").to_dicts()
    assert found["mean"] == pytest.approx(statistics.fmean(means), abs=1e-12)
    assert found["se"] == pytest.approx(statistics.stdev(means) / len(means) ** 0.5, abs=1e-12)
    assert (found["n"], found["n_questions"]) == (sum(map(len, by.values())), 11)
    (row,) = [e for e in report.evidence if (e.signal, e.control) == ("answer_kl.random", "last_m")]
    assert row.n == 11


def test_effects_of_single_sentences_are_questions_first_with_their_standard_error(file):
    report = compression_report(read_cells(file))
    rows = made_cells().to_dicts()
    none = {
        (r["question"], r["rollout"], r["prefix_length"]): r["answer_kl"] for r in rows if r["selector"] == "deletion"
    }
    effects = defaultdict(lambda: defaultdict(list))
    for r in rows:
        if r["selector"] == "baseline":
            for i, kl in enumerate(r["single_kl"]):
                effect = none[r["question"], r["rollout"], r["prefix_length"]] - kl
                for tenth in (-1, int(10 * (i + 0.5) / r["n_region"])):
                    effects[tenth][r["question"]].append(effect)
    assert report.singles["bin"].to_list() == sorted(effects)
    for found in report.singles.to_dicts():
        own = effects[found["bin"]]
        means = [statistics.fmean(v) for v in own.values()]
        every = [x for v in own.values() for x in v]
        assert found["mean"] == pytest.approx(statistics.fmean(means), abs=1e-12)
        assert found["se"] == pytest.approx(statistics.stdev(means) / len(means) ** 0.5, abs=1e-12)
        assert found["median"] == pytest.approx(statistics.median(every), abs=1e-12)
        assert found["helps"] == pytest.approx(sum(x > 0 for x in every) / len(every), abs=1e-12)
        assert (found["n"], found["n_questions"]) == (len(every), len(own))


def test_places_of_kept_sentences_have_standard_errors_over_questions(file):
    places = compression_report(read_cells(file)).places.filter(selector="random")
    assert places["share"].sum() == pytest.approx(1)
    assert places["n_questions"].to_list() == [11] * 10
    assert places["se"].null_count() == 0


def test_the_command_prints_draws_and_writes_json(file, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["cot", "analyse", "9", "--source", str(file), "--figure", str(tmp_path / "f.svg")])
    out = capsys.readouterr()
    assert stop.value.code == 0, out.err
    assert "A sentence alone" in out.out
    assert (tmp_path / "f.svg").stat().st_size > 1000
    with pytest.raises(SystemExit) as stop:
        main(["cot", "analyse", "compression", "--source", str(file), "--json"])
    assert stop.value.code == 0
    assert {row["bin"] for row in json.loads(capsys.readouterr().out)["singles"]} >= {-1}


def _with(**changes):
    def changed(frame):
        return frame.with_columns(**{k: pl.when(pl.int_range(pl.len()) == 3).then(pl.lit(v)).otherwise(pl.col(k))
                                     for k, v in changes.items()})  # fmt: skip

    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop("answer_kl"), "no column 'answer_kl'"),
        (lambda f: f.head(0), "holds no cell"),
        (lambda f: pl.concat([f, f.head(1)]), "stands twice"),
        (lambda f: f.filter(pl.col("selector") != "baseline"), "no cell of the whole prefix"),
        (_with(answer_kl=-0.5), "a KL that is none"),
        (_with(token_kl=float("nan")), "a KL that is none"),
        (_with(m=99), "keeps 99 of"),
        (_with(question=None), "an empty cell"),
        (lambda f: f.with_columns(indices=pl.lit([77], dtype=pl.List(pl.Int64))), "outside the"),
        (lambda f: f.with_columns(prefix_length=pl.lit("long")), "cannot be read"),
    ],
)
def test_cells_that_do_not_fit_are_refused_by_name(file, change, said):
    change(made_cells()).write_parquet(file)
    with pytest.raises(LmassayError) as error:
        read_cells(file)
    assert error.value.code == "cot-data-broken"
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("8", "--source", "cells.parquet"), "only cells of task 9"),
        (("9", "--source", "nowhere.parquet"), "there is no file nowhere.parquet"),
        (("9", "--source", "cells.csv"), "is no Parquet file"),
        (("9", "--source", "cells.parquet", "--layout", "post"), "have no layout"),
    ],
)
def test_a_source_that_cannot_be_one_is_a_bad_request(words, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["cot", "analyse", *words])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
