"""Statistics of entropies against loops; on the published distributions, against what the specification counted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from json_tree import EXPORT, as_json
from made_cot import made_data
from scipy.stats import spearmanr

from lmassay.cot.entropy import entropy_report
from lmassay.cot.tasks.answer_entropy import boundaries
from lmassay.errors import LmassayError
from lmassay.measures.bootstrap import cluster_draws

needs_export = pytest.mark.skipif(not EXPORT.is_dir(), reason="the published data is not beside this checkout")
FOLDERS = ("train", "val", "test", "ood_test_1", "ood_test_2", "ood_test_3")


@pytest.fixture(scope="module")
def data():
    """Two rollouts a question."""
    made = made_data("regression", n=120, ood=("ood_1", "ood_2"))
    splits = {}
    for name, split in made.splits.items():
        n = len(split)
        hidden = split.hidden.with_columns(
            sentence_idx=pl.Series(np.random.default_rng(0).permutation(n)),
            source_rollout_idx=pl.Series(np.arange(n) % 2),
        )
        splits[name] = replace(split, hidden=hidden, y=np.abs(split.y))
    return replace(made, splits=splits)


def test_figures_are_those_of_a_loop(data):
    found = entropy_report(data).estimates["test"]
    y, groups = data["test"].y, data["test"].groups
    by = {g: [v for v, h in zip(y, groups, strict=True) if h == g] for g in set(groups)}
    mean = math.fsum(y) / len(y)
    variance = math.fsum((v - mean) ** 2 for v in y) / len(y)
    between = math.fsum(len(v) * (sum(v) / len(v) - mean) ** 2 for v in by.values()) / len(y)
    expected = {
        "mean": mean,
        "variance": variance,
        "median": sorted(y)[59] / 2 + sorted(y)[60] / 2,
        "mean_of_questions": sum(sum(v) / len(v) for v in by.values()) / len(by),
        "between_questions": between / variance,
        "settled": sum(v < 0.1 for v in y) / len(y),
        "normalised_mean": mean / math.log(4),
    }
    for name, value in expected.items():
        assert found[name].value == pytest.approx(value, abs=1e-12), name
        assert found[name].low <= found[name].value <= found[name].high
        assert (found[name].n, found[name].n_clusters) == (120, len(by))


def test_first_and_last_are_the_ends_of_each_rollout_and_the_trend_is_within_questions(data):
    split = data["test"]
    rows = {}
    for y, g, r, k in zip(
        split.y, split.groups, split.hidden["source_rollout_idx"], split.hidden["sentence_idx"], strict=True
    ):
        rows.setdefault((g, r), []).append((k, y))
    rows = {key: sorted(v) for key, v in rows.items()}
    found = entropy_report(data).estimates["test"]
    assert found["first"].n == found["last"].n == len(rows)
    assert found["first"].value == pytest.approx(sum(v[0][1] for v in rows.values()) / len(rows), abs=1e-12)
    assert found["last"].value == pytest.approx(sum(v[-1][1] for v in rows.values()) / len(rows), abs=1e-12)


def test_the_trend_is_spearmans_within_questions(data):
    split = data["test"]
    one = replace(
        split,
        hidden=split.hidden.with_columns(
            # Places that stand as far apart in every question.
            sentence_idx=pl.Series([int((split.groups[:i] == g).sum()) for i, g in enumerate(split.groups)]),
            source_rollout_idx=pl.lit(0),
        ),
    )
    found = entropy_report(replace(data, splits={"test": one})).estimates["test"]["within_trend"].value
    index = one.hidden["sentence_idx"].to_numpy()
    each = [spearmanr(index[split.groups == g], split.y[split.groups == g])[0] for g in np.unique(split.groups)]
    assert found == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_the_interval_of_a_median_is_that_of_repeated_rows(data, monkeypatch, chunk):
    from lmassay.cot import entropy
    from lmassay.cot.entropy import _medians

    monkeypatch.setattr(entropy, "_CHUNK", chunk)
    y, groups = data["test"].y, data["test"].groups
    drawn = cluster_draws(groups, np.random.default_rng(3), draws=40)
    slow = [float(np.median(np.repeat(y, times[drawn.codes]))) for times in drawn.times]
    assert _medians(y, drawn) == pytest.approx(slow, abs=1e-12)


def test_what_the_data_does_not_say_is_undefined_and_a_constant_has_no_shares():
    made = made_data("regression", n=60)
    constant = replace(made["test"], y=np.full(60, 0.7))
    found = entropy_report(replace(made, splits={"test": constant})).estimates["test"]
    assert found["first"].status == "undefined: the data does not say"
    assert found["between_questions"].value is None
    assert found["between_questions"].status == "undefined: constant target"
    assert found["variance"].value == pytest.approx(0, abs=1e-12)


def test_a_small_variance_is_flagged_and_another_kind_refused():
    made = made_data("regression", n=60)
    flat = replace(made, splits={"test": replace(made["test"], y=made["test"].y * 0.05)})
    assert any("variance under" in notice for notice in entropy_report(flat).notices)
    with pytest.raises(LmassayError, match="no task of entropies"):
        entropy_report(made_data())


def _records(path):
    """As the store gives them: maps as lists of pairs, whatever polars makes of them."""
    rows = []
    for record in pl.read_parquet(path).to_dicts():
        kept = [
            {
                **{k: entry[k] for k in ("sentence_idx", "partial_cot_length")},
                "answer_distribution": [
                    {"key": k, "value": v} for k, v in dict(as_json(entry["answer_distribution"])).items()
                ],
            }
            for entry in record["sentence_summaries"]
        ]
        rows.append({k: record[k] for k in ("question_id", "source_rollout_idx")} | {"sentence_summaries": kept})
    return pl.DataFrame(rows, infer_schema_length=None)


@needs_export
def test_published_entropies_are_a_loops_and_their_statistics_those_counted():
    """Means, variances, medians and the share between questions, as counted on the files before any of this was written."""
    counted = {
        "train": (13067, 0.779, 0.194, 0.890, 0.83), "val": (2900, 0.693, 0.221, 0.786, 0.85),
        "test": (3522, 0.643, 0.200, 0.684, 0.90), "ood_test_1": (1089, 0.245, 0.177, 0.020, 0.52),
        "ood_test_2": (1119, 0.275, 0.164, 0.036, 0.85), "ood_test_3": (716, 0.032, 0.009, 0.002, 0.21),
    }  # fmt: skip
    base = made_data("regression", n=60)
    for folder in FOLDERS:
        rows = boundaries(_records(EXPORT / "task8" / f"task8_{folder}.parquet"))
        y = rows["y"].to_numpy()
        for value, spread in zip(y[::7], rows["answer_distribution"].to_list()[::7], strict=True):
            loop = -sum(d["value"] * math.log(d["value"]) for d in spread if d["value"] > 0)
            assert value == pytest.approx(loop, abs=1e-12)
        split = replace(
            base["test"],
            y=y,
            groups=rows["question_id"].rank("dense").cast(pl.Int64).to_numpy(),
            status=np.array(["ok"] * len(y)),
            hidden=rows,
        )
        found = entropy_report(replace(base, splits={folder: split})).estimates[folder]
        n, mean, variance, median, between = counted[folder]
        assert found["mean"].n == n
        assert found["mean"].value == pytest.approx(mean, abs=6e-4)
        assert found["variance"].value == pytest.approx(variance, abs=6e-4)
        assert found["median"].value == pytest.approx(median, abs=6e-4)
        assert found["between_questions"].value == pytest.approx(between, abs=6e-3)
