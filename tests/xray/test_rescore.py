"""A finished run scored again from its tables, without a model."""

from __future__ import annotations

import json
import sys

import polars as pl
import pytest

from lmassay.errors import LmassayError
from lmassay.storage.rescore import rescore_run
from lmassay.storage.runs import LABELS, OPTIONS, RUN, SCORES, claimed, read_scores
from lmassay.xray.run import rescored
from outside_runs import outside_run, outside_table


@pytest.fixture
def run(tmp_path):
    return outside_run(tmp_path / "run")


@pytest.mark.parametrize("depths", ["paper", "distinct"])
@pytest.mark.parametrize("left_out", [(), ("neutral", "n_tokens")])
def test_every_score_and_notice_comes_out_again(tmp_path, depths, left_out):
    run = outside_run(tmp_path / "run", table=outside_table().drop(left_out), depths=depths, seed=5)
    before = (run / SCORES).read_bytes()
    document, differing = rescore_run(run, rescored)
    assert differing is None
    assert document == json.loads(before)
    assert (run / SCORES).read_bytes() == before


def test_no_model_is_opened(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmassay.models.open", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert rescore_run(run, rescored)[1] is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d["scores"]["psi"].update(value=0.9), "scores.psi.value"),
        (lambda d: d["evidence"][0].update(verdict="survives"), "evidence"),
        (lambda d: d.update(survives_its_controls=True), "survives_its_controls"),
        (lambda d: d["counts"].update(n_error=1), "counts.n_error"),
        (lambda d: d["scores"].update(mine=1), "scores.mine"),
        (lambda d: d["notices"].pop(), "notices"),
    ],
)
def test_a_changed_figure_is_named_and_put_right(run, change, field):
    before = (run / SCORES).read_bytes()
    document = json.loads(before)
    change(document)
    (run / SCORES).write_text(json.dumps(document))
    assert rescore_run(run, rescored)[1] == field
    assert (run / SCORES).read_bytes() == before


def test_the_same_scores_written_in_another_way_become_the_run_s_own_file_again(run):
    before = (run / SCORES).read_bytes()
    (run / SCORES).write_text(json.dumps(json.loads(before)))
    with pytest.raises(LmassayError, match="bad-run-folder"):
        read_scores(run)
    assert rescore_run(run, rescored)[1] is None
    assert (run / SCORES).read_bytes() == before
    read_scores(run)


@pytest.mark.parametrize("content", [None, "", "[]", '{"scores": '])
def test_a_lost_or_cut_scores_file_is_made_again(run, content):
    before = (run / SCORES).read_bytes()
    (run / SCORES).unlink()
    if content is not None:
        (run / SCORES).write_text(content)
    assert rescore_run(run, rescored)[1] == SCORES
    assert (run / SCORES).read_bytes() == before


def test_an_altered_table_is_refused_and_the_scores_left(run):
    before = (run / SCORES).read_bytes()
    better = pl.col("logprob", "score") + 1
    for name, change in ((OPTIONS, better), (LABELS, pl.col("length_difference") + 1)):
        kept = (run / name).read_bytes()
        pl.read_parquet(run / name).with_columns(change).write_parquet(run / name)
        with pytest.raises(LmassayError, match=f"{name} is not the table this run wrote"):
            rescore_run(run, rescored)
        (run / name).write_bytes(kept)
    assert (run / SCORES).read_bytes() == before
    assert rescore_run(run, rescored)[1] is None


def test_an_unfinished_run_and_one_being_written_are_refused(run):
    with claimed(run) as folder:
        with pytest.raises(LmassayError, match="run-folder-in-use"):
            rescore_run(run, rescored)
        folder.update(status="interrupted")
    with pytest.raises(LmassayError, match="the run is interrupted"):
        rescore_run(run, rescored)


def test_what_is_no_run_is_refused_and_left_as_it_was(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(LmassayError, match="bad-run-folder"):
            rescore_run(path, rescored)
    assert list(tmp_path.iterdir()) == []
    assert not (tmp_path / RUN).exists()
