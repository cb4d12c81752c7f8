"""Option scores as tables and back: each score once, nothing lost, nothing altered unnoticed."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from made import random_battery
from polars.testing import assert_frame_equal

from lmassay.errors import LmassayError
from lmassay.storage.runs import LABELS, OPTIONS
from lmassay.xray.scored import ScoredBattery
from lmassay.xray.scores import compute_scores
from lmassay.xray.tables import LABEL_SCHEMA, OPTION_SCHEMA, labels_frame, options_frame, read_tables, write_tables


@pytest.fixture(scope="module")
def scored():
    """Flags on some tasks, a set on others, a text no terminal would like."""
    battery = random_battery(n=8, n_templates=4)
    real = list(battery.variants["real"])
    real[0] = replace(real[0], flags=frozenset({"near", "boundary_shift"}), set_id="set 1", n_prompt_tokens=7)
    real[1] = replace(real[1], options=("a", "[red]b[/]\x1b[0m", "ç, \"'", "d"))
    real[2] = replace(real[2], flags=frozenset({"undecidable: shared first token"}))
    return replace(battery, variants={**battery.variants, "real": tuple(real)}, skipped={"long": "too long"})


@pytest.fixture(scope="module")
def scores(scored):
    return compute_scores(scored, seed=3)


@pytest.fixture
def folder(tmp_path, scored, scores):
    write_tables(tmp_path, scored, scores)
    return tmp_path


def _same(a: ScoredBattery, b: ScoredBattery):
    assert (a.depths, a.protocol, dict(a.skipped)) == (b.depths, b.protocol, dict(b.skipped))
    assert list(a.variants) == list(b.variants)
    for name in a.variants:
        for first, second in zip(a.variants[name], b.variants[name], strict=True):
            for field in ("logprob", "neutral", "n_tokens"):
                np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
            for field in ("task_id", "family", "template", "set_id", "variant", "options", "answer", "flags"):
                assert getattr(first, field) == getattr(second, field)
            assert first.n_prompt_tokens == second.n_prompt_tokens


def test_a_battery_comes_back_as_it_was(folder, scored, scores):
    read, labels = read_tables(folder, scored.protocol, scored.skipped)
    _same(read, scored)
    assert labels == {m.task.task_id: m.labels for m in scores.decided.tasks}


def test_every_cell_is_the_number_of_its_task_option_and_depth(scored):
    frame = options_frame(scored)
    expected = [
        (t.task_id, variant, o, d, depth, t.logprob[o, d], t.neutral[o, d], t.logprob[o, d] - t.neutral[o, d])
        for variant, tasks in scored.variants.items()
        for t in tasks
        for o in range(len(t.options))
        for d, depth in enumerate(scored.depths)
    ]
    columns = ("task_id", "variant", "option", "depth_index", "depth", "logprob", "neutral", "score")
    assert frame.select(columns).rows() == expected
    assert frame.schema == OPTION_SCHEMA


def test_relabelling_adds_rows_of_labels_and_none_of_scores(scored, scores):
    labels = labels_frame(scored, scores)
    assert labels.schema == LABEL_SCHEMA
    assert options_frame(scored)["variant"].unique().sort().to_list() == sorted(scored.variants)
    answers = labels.filter(condition="real").join(
        labels.filter(pl.col("condition") != "real"), on=["task_id", "variant"]
    )
    assert set(answers["variant"]) == {"real"}
    assert answers.height == 2 * len(scores.decided.tasks)
    assert (answers["option"] != answers["option_right"]).all()


def test_the_same_battery_gives_the_same_bytes(tmp_path, scored, scores):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_tables(tmp_path / name, scored, compute_scores(scored, seed=3))
    for table in (OPTIONS, LABELS):
        assert (tmp_path / "a" / table).read_bytes() == (tmp_path / "b" / table).read_bytes()


def test_a_score_that_is_no_number_survives_the_table(tmp_path, scored):
    real = list(scored.variants["real"])
    logprob = real[0].logprob.copy()
    logprob[1, 2] = np.nan
    real[0] = replace(real[0], logprob=logprob)
    battery = replace(scored, variants={**scored.variants, "real": tuple(real)})
    write_tables(tmp_path, battery, compute_scores(battery, seed=0))
    read, labels = read_tables(tmp_path, scored.protocol, scored.skipped)
    _same(read, battery)
    assert real[0].task_id not in labels


def _change(folder, name, change):
    changed = change(pl.read_parquet(folder / name))
    changed.write_parquet(folder / name)


def _first(column, value):
    return pl.when(pl.int_range(pl.len()) == 0).then(value).otherwise(pl.col(column)).alias(column)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (OPTIONS, lambda f: f.with_columns(_first("score", pl.col("score") + 1e-6)), "scores differ from logprob"),
        (OPTIONS, lambda f: f.with_columns(_first("logprob", pl.col("logprob") + 1)), "scores differ from logprob"),
        (OPTIONS, lambda f: f.drop("neutral"), "columns"),
        (OPTIONS, lambda f: f.with_columns(pl.col("score").cast(pl.String)), "columns"),
        (OPTIONS, lambda f: f[1:], "is not complete"),
        (OPTIONS, lambda f: pl.concat([f, f[:1]]), "is not complete"),
        (OPTIONS, lambda f: f.filter(pl.col("variant") != "real"), "no task was scored under its own prompt"),
        (LABELS, lambda f: f.filter(pl.col("condition") != "real"), "is not complete"),
        (LABELS, lambda f: f.with_columns(option=pl.lit(4, pl.Int32)), "is not complete"),
        (LABELS, lambda f: f.with_columns(option=pl.lit(-1, pl.Int32)), "is not complete"),
        (LABELS, lambda f: f.with_columns(option=pl.lit(0, pl.Int32)), "none of its wrong options"),
        (LABELS, lambda f: f.drop("condition"), "columns"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(folder, scored, name, change, said):
    _change(folder, name, change)
    with pytest.raises(LmassayError, match=f"bad-run-folder: .*{said}"):
        read_tables(folder, scored.protocol, scored.skipped)


@pytest.mark.parametrize("name", [OPTIONS, LABELS])
@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"not a table at all"])
def test_a_table_that_is_missing_or_cut_is_one_line(folder, scored, name, content):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(LmassayError, match="bad-run-folder") as refused:
        read_tables(folder, scored.protocol, scored.skipped)
    assert "\n" not in str(refused.value)


def test_row_order_of_a_table_changes_no_score(folder, scored, scores):
    _change(folder, OPTIONS, lambda f: f.sample(fraction=1, shuffle=True, seed=0).sort("variant", descending=True))
    read, labels = read_tables(folder, scored.protocol, scored.skipped)
    again = compute_scores(read, seed=3, labels=labels).to_dict()
    assert again["scores"] == scores.to_dict()["scores"]


@pytest.mark.slow
def test_six_thousand_tasks_are_written_and_read_in_seconds(tmp_path):
    scored = random_battery(n=6000, n_depths=32, n_templates=100)
    scores = compute_scores(replace(scored, variants={"real": scored.variants["real"][:10]}), seed=0)
    start = time.process_time()
    write_tables(tmp_path, scored, scores)
    assert time.process_time() - start < 20
    start = time.process_time()
    read, _ = read_tables(tmp_path, scored.protocol, {})
    assert time.process_time() - start < 20
    assert_frame_equal(options_frame(read), pl.read_parquet(tmp_path / OPTIONS))
