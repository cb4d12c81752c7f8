"""Option scores made elsewhere: every fault at once, and the same figures as our own."""

from __future__ import annotations

import json

import polars as pl
import pytest

from lmassay.errors import LmassayError
from lmassay.storage.runs import OPTIONS, RUN, SCORES
from lmassay.xray.batteries import load_battery
from lmassay.xray.outside import FAULTS_SHOWN, score_file
from lmassay.xray.scores import compute_scores
from lmassay.xray.tables import read_tables
from outside_runs import N_DEPTHS, N_OPTIONS, N_TASKS, outside_run, outside_table


def _document(run):
    return json.loads((run / SCORES).read_text())


def _refused(table, tmp_path, **named):
    named = {"battery": None, "depths": "paper", **named}
    table.write_parquet(tmp_path / "table.parquet")
    with pytest.raises(LmassayError) as refused:
        score_file(tmp_path / "table.parquet", tmp_path / "run", name="m", seed=0, **named)
    assert not (tmp_path / "run").exists()
    return refused.value


def _of(task, variant="real"):
    return (pl.col("task_id") == task) & (pl.col("variant") == variant)


def _set(column, value, where):
    return lambda t: t.with_columns(pl.when(where).then(pl.lit(value)).otherwise(pl.col(column)).alias(column))


FAULTS = [
    (lambda t: t.clear(), "the table is empty"),
    (lambda t: t.drop("logprob", "family"), "columns missing: logprob, family"),
    (lambda t: t.with_columns(pl.col("logprob").cast(pl.String)), "logprob and neutral must be numbers"),
    (lambda t: t.with_columns(pl.col("neutral").cast(pl.String)), "logprob and neutral must be numbers"),
    (lambda t: t.with_columns(-pl.col("logprob")), "a log-probability never is; were losses given?"),
    (lambda t: t.with_columns(pl.col("option") + 0.5), "option and answer must be indices"),
    (lambda t: t.with_columns(answer=pl.lit("a")), "option and answer must be indices"),
    (lambda t: t.with_columns(n_tokens=pl.lit(0)), "n_tokens must be whole numbers from 1"),
    (lambda t: t.with_columns(n_tokens=pl.lit(1.5)), "n_tokens must be whole numbers from 1"),
    (lambda t: t.with_columns(n_prompt_tokens=pl.lit(-1)), "n_prompt_tokens must be whole numbers from 0"),
    (lambda t: t.with_columns(n_prompt_tokens=pl.lit("7")), "n_prompt_tokens must be whole numbers from 0"),
    (_set("logprob", None, _of("t1")), "empty cells in logprob"),
    (_set("task_id", None, _of("t1")), "empty cells in task_id"),
    (_set("answer", None, _of("t1")), "empty cells in answer"),
    (_set("n_tokens", None, _of("t1")), "empty cells in n_tokens"),
    (lambda t: t.filter(pl.col("variant") != "real"), "no row of variant real"),
    (_set("variant", "semantic_break", pl.col("variant") == "semantics_break"), "did you mean semantics_break?"),
    (lambda t: t.filter(pl.col("depth") == "d0"), "at least two depths are needed"),
    (lambda t: pl.concat([t, t.filter(_of("t1"))[:2]]), "task 't1' (real): 2 rows stand twice"),
    (lambda t: t.filter(~(_of("t2") & (pl.col("depth") == "d3"))), "task 't2' (real): 12 rows, expected 3 options at each"),
    (lambda t: t.filter(~(_of("t2") & (pl.col("option") == 0))), "task 't2' (real): 10 rows"),
    (lambda t: t.filter(~(_of("t2") & (pl.col("option") > 0))), "task 't2' (real): fewer than two options"),
    (_set("answer", 3, _of("t3")), "task 't3' (real): the answer is not among the options"),
    (_set("answer", 0, _of("t10") & (pl.col("option") == 1)), "task 't10' (real): the answer is not among the options"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_each_fault_is_named_and_nothing_is_left(tmp_path, change, said):
    table = outside_table().with_columns(answer=pl.lit(1))
    error = _refused(change(table), tmp_path)
    assert error.code == "bad-option-scores"
    assert said in error.what


def test_all_faults_come_at_once_and_the_rest_is_counted(tmp_path):
    table = outside_table().with_columns(answer=pl.lit(7))
    error = _refused(table, tmp_path)
    assert error.what.count("the answer is not among the options") == FAULTS_SHOWN
    assert f"and {3 * N_TASKS + 6 - FAULTS_SHOWN} more" in error.what


def test_a_file_that_is_no_table_is_one_line(tmp_path):
    for name, content in (("x.parquet", b"PAR1"), ("x.csv", b""), ("x.jsonl", b"{"), ("x.xlsx", b"x")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LmassayError, match="bad-option-scores") as refused:
            score_file(tmp_path / name, tmp_path / "run", battery=None, name="m", depths="paper", seed=0)
        assert "\n" not in str(refused.value)


def test_depths_that_are_not_known_or_too_few_are_refused(tmp_path):
    assert "did you mean distinct?" in str(_refused(outside_table(), tmp_path, depths="distinc"))
    few = outside_table().filter(pl.col("depth").is_in(["d0", "d1"]))
    assert "three or more" in str(_refused(few, tmp_path, depths="distinct"))


def test_figures_are_those_of_the_scores_themselves(tmp_path):
    run = outside_run(tmp_path / "run")
    scored, labels = read_tables(run, "outside", {})
    table = outside_table()
    for t in scored.variants["real"]:
        own = table.filter(_of(t.task_id)).sort("option", "depth")
        assert t.logprob.ravel().tolist() == own["logprob"].to_list()
        assert t.logprob.shape == (N_OPTIONS, N_DEPTHS)
    assert _document(run)["scores"] == compute_scores(scored, seed=0, labels=labels).to_dict()["scores"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_every_format_gives_the_same_scores(tmp_path, suffix):
    """Options that look like numbers stay texts."""
    table = outside_table().with_columns(option_text=(pl.col("option") * 10).cast(pl.String))
    file = tmp_path / f"table.{suffix}"
    {"csv": table.write_csv, "jsonl": table.write_ndjson, "parquet": table.write_parquet}[suffix](file)
    document = score_file(file, tmp_path / "run", battery=None, name="m", depths="paper", seed=0)
    assert pl.read_parquet(tmp_path / "run" / OPTIONS)["option_text"].unique().sort().to_list() == ["0", "10", "20"]
    assert document["scores"] == _document(outside_run(tmp_path / "other", table=table))["scores"]


def test_what_was_not_given_is_said(tmp_path):
    run = outside_run(tmp_path / "run", table=outside_table().drop("neutral", "n_tokens"))
    notices = _document(run)["notices"]
    assert "no neutral log-probabilities were given: scores are not prior-normalised" in notices
    assert "no token counts were given: every option counts as equally long" in notices


@pytest.mark.parametrize(("given", "told"), [(None, None), (9, 9)])
def test_prompt_tokens_are_told_where_they_are_given(tmp_path, given, told):
    table = outside_table()
    if given is not None:
        table = table.with_columns(n_prompt_tokens=pl.lit(given))
    assert {t["prompt_n_tokens"] for t in _document(outside_run(tmp_path / "run", table=table))["tasks"]} == {told}


def test_a_battery_gives_families_texts_and_answers_by_task_id(tmp_path):
    tasks = load_battery("core50").tasks[:12]
    rows = [
        {"task_id": t.id, "option": o, "depth": d, "logprob": -1.0 - (o != t.answer)}
        for t in tasks
        for o in range(len(t.options))
        for d in ("embed", "block.0", "final")
    ]
    run = outside_run(tmp_path / "run", table=pl.DataFrame(rows), battery="core50")
    document = _document(run)
    assert document["scores"]["real_win"]["value"] == 1
    assert {(t["task_id"], t["family"]) for t in document["tasks"]} == {(t.id, t.family) for t in tasks}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"task_id": "nobody"}, "task 'nobody' is not in battery core50"),
        ({"option": 9}, "an option the battery does not"),
    ],
)
def test_a_task_or_option_the_battery_lacks_is_named(tmp_path, row, said):
    tasks = load_battery("core50").tasks[:2]
    rows = [
        {"task_id": t.id, "option": o, "depth": d, "logprob": -1.0}
        for t in tasks
        for o in range(len(t.options))
        for d in ("a", "b")
    ]
    table = pl.DataFrame([*rows, {**rows[0], **row}])
    assert said in _refused(table, tmp_path, battery="core50").what


def test_the_same_file_again_changes_nothing_and_another_is_refused(tmp_path):
    run = outside_run(tmp_path / "run")
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.name in (SCORES, OPTIONS)}
    outside_run(run)
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.name in before} == before
    with pytest.raises(LmassayError, match=r"run-folder-mismatch: .* model\.scores_sha256"):
        outside_run(run, table=outside_table(seed=1))
    assert json.loads((run / RUN).read_text())["status"] == "done"
