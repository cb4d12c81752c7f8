"""A cot run on disk: schema, resume, rescore, refusals."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import replace

import jsonschema
import numpy as np
import polars as pl
import pytest
from made_cot import made_data

from lmassay.cli import main
from lmassay.cot import evaluate as module
from lmassay.cot.evaluate import evaluate, rescored
from lmassay.errors import LmassayError
from lmassay.methods.method import Method, check_training
from lmassay.reports.cite import citation, latex
from lmassay.storage.bundle import content_hash
from lmassay.storage.rescore import rescore_run
from lmassay.storage.runs import PREDICTIONS, RUN, SCORES
from lmassay.storage.schema import schema

FITTED = []


class Notes(Method):
    """Notes that it was fitted."""

    id = "notes"

    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)
        FITTED.append(self.id)
        self.choices = {"n": len(y)}

    def score(self, X):
        return np.array([x.text("cot").count("wait") + len(x.text("cot")) / 1e4 for x in X])


def _files(path):
    """All that decides a number: the table's bytes, the scores, and what was chosen."""
    record = json.loads((path / RUN).read_text())
    return (path / PREDICTIONS).read_bytes(), (path / SCORES).read_text(), record["identity"], record["choices"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "one"
    return path, evaluate(made_data(n=60), Notes, out=path)


@pytest.mark.parametrize(
    ("kind", "ood"), [("binary", ("ood_test",)), ("interventional", ("ood_test",)), ("regression", ("ood_1", "ood_2"))]
)
def test_what_is_written_is_what_the_schemas_say(tmp_path, kind, ood):
    found = evaluate(made_data(kind, n=60, ood=ood), Notes, out=tmp_path / "run")
    for name, file in (("cot_run", RUN), ("cot_scores", SCORES)):
        document = json.loads((tmp_path / "run" / file).read_text())
        jsonschema.Draft202012Validator(schema(name)).validate(document)
    assert json.loads((tmp_path / "run" / SCORES).read_text()) == json.loads(json.dumps(found.document))


def test_in_memory_and_in_a_folder_are_the_same(finished):
    path, found = finished
    again = evaluate(made_data(n=60), Notes)
    assert again.document == found.document
    assert again.predictions.equals(pl.read_parquet(path / PREDICTIONS))


def test_the_same_command_again_reads_what_is_there(finished):
    path, found = finished
    before = len(FITTED)
    again = evaluate(made_data(n=60), Notes, out=path)
    assert len(FITTED) == before
    assert again.document == found.document


def test_stopped_after_any_method_it_goes_on_and_ends_the_same(tmp_path, finished, monkeypatch):
    fit = module.fit_and_score
    path = tmp_path / "run"
    # Notes and five controls.
    for stop in range(6):
        calls = []

        def stopping(method, data, seed, calls=calls):
            if len(calls) == 1:
                raise KeyboardInterrupt
            calls.append(method.id)
            return fit(method, data, seed)

        monkeypatch.setattr(module, "fit_and_score", stopping)
        if stop < 5:
            with pytest.raises(KeyboardInterrupt):
                evaluate(made_data(n=60), Notes, out=path)
            assert json.loads((path / RUN).read_text())["status"] == "interrupted"
        else:
            evaluate(made_data(n=60), Notes, out=path)
        assert len(calls) == 1
    assert _files(path) == _files(finished[0])
    assert not (path / "parts").exists()


def _killed(path):
    fit = module.fit_and_score

    def dying(method, data, seed):
        if method.id == "position":
            os.kill(os.getpid(), signal.SIGKILL)
        return fit(method, data, seed)

    module.fit_and_score = dying
    evaluate(made_data(n=60), Notes, out=path)


def test_killed_half_way_and_run_again_it_equals_an_uninterrupted_run(tmp_path, finished):
    """I-89."""
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(tmp_path / "run",))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    evaluate(made_data(n=60), Notes, out=tmp_path / "run")
    assert _files(tmp_path / "run") == _files(finished[0])


def test_a_method_that_fails_leaves_what_was_done(tmp_path, monkeypatch):
    fit = module.fit_and_score

    def failing(method, data, seed):
        if method.id == "length":
            method.score = lambda X: [None] * 3
        return fit(method, data, seed)

    monkeypatch.setattr(module, "fit_and_score", failing)
    with pytest.raises(LmassayError, match="method length"):
        evaluate(made_data(n=60), Notes, out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / RUN).read_text())["status"] == "failed"
    assert len(list((tmp_path / "run" / "parts").glob("*.parquet"))) == 2


def test_rescoring_without_a_method_gives_the_same_scores(finished):
    """I-93."""
    path, found = finished
    document, differing = rescore_run(path, rescored)
    assert differing is None
    assert json.loads(json.dumps(document)) == json.loads((path / SCORES).read_text())
    assert document == found.document


def test_an_altered_score_is_put_right_and_an_altered_table_refused(tmp_path, finished):
    path = tmp_path / "run"
    evaluate(made_data(n=60), Notes, out=path)
    document = json.loads((path / SCORES).read_text())
    document["scores"]["test.auroc"]["value"] = 0.999
    (path / SCORES).write_text(json.dumps(document))
    assert rescore_run(path, rescored)[1] == "scores.test.auroc.value"
    assert rescore_run(path, rescored)[1] is None
    table = pl.read_parquet(path / PREDICTIONS)
    table.with_columns(score=-pl.col("score")).write_parquet(path / PREDICTIONS)
    with pytest.raises(LmassayError, match=r"predictions\.parquet is not the table this run wrote"):
        rescore_run(path, rescored)


def test_a_bundle_is_verified_by_its_own_suite(tmp_path, finished, capsys):
    path, _ = finished
    packed = tmp_path / "run.tar.gz"
    for words in (["bundle", str(path), "-o", str(packed)], ["bundle", str(packed), "--verify"]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0
    assert "hashes hold and all scores come out again" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["binary", "interventional", "regression"])
def test_a_citation_holds_the_figures_of_every_test_split(tmp_path, kind):
    found = evaluate(made_data(kind, n=60), Notes, out=tmp_path / "run")
    text = citation(tmp_path / "run")
    columns, row = (line.removesuffix(r" \\").split(" & ") for line in text.splitlines()[:2])
    cells = dict(zip([columns[0].removeprefix("% columns: "), *columns[1:]], row, strict=True))
    task = found.document["identity"]["task"]
    assert cells["method"] == "notes"
    assert cells["task"] == latex(f"{task['id']}, {task['layout']}")
    figures = {
        "binary": ("g_mean2", "auroc"),
        "regression": ("r2",),
        "interventional": ("g_mean2_mc", "g_mean2", "auroc"),
    }
    for split in task["splits"]:
        for figure in figures[kind]:
            score = found.document["scores"][f"{split}.{figure}"]
            low, high = score["low"], score["high"]
            assert cells[latex(f"{split} {figure}")] == f"${score['value']:.3f}$ $[{low:.3f}, {high:.3f}]$"
    assert cells["survives its controls"] == ("yes" if found.survives else "no")
    assert text.splitlines()[-1] == f"content sha256: {content_hash(tmp_path / 'run')}"


@pytest.mark.parametrize("cut", [0, 100, -20])
def test_a_cut_table_is_refused(tmp_path, finished, cut):
    path = tmp_path / "run"
    evaluate(made_data(n=60), Notes, out=path)
    data = (path / PREDICTIONS).read_bytes()
    (path / PREDICTIONS).write_bytes(data[:cut])
    with pytest.raises(LmassayError) as error:
        rescore_run(path, rescored)
    assert error.value.code == "bad-run-folder"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seed": 1}, "settings.seed"),
        ({"method": "length"}, "method.id"),
        ({"task": made_data(n=60, seed=3)}, "task.sha256"),
        ({"task": replace(made_data(n=60), layout="post", regime="id")}, "task.layout"),
    ],
)
def test_a_folder_holds_one_run_only(finished, change, field):
    request = {"task": made_data(n=60), "method": Notes} | change
    with pytest.raises(LmassayError, match=field) as error:
        evaluate(request.pop("task"), request.pop("method"), out=finished[0], **request)
    assert error.value.code == "run-folder-mismatch"


def test_an_unwritable_folder_fails_before_anything_is_fitted(tmp_path):
    """I-95."""
    (tmp_path / "file").write_text("")
    before = len(FITTED)
    with pytest.raises(LmassayError, match="cannot write to"):
        evaluate(made_data(n=60), Notes, out=tmp_path / "file" / "run")
    assert len(FITTED) == before


def _command(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return stop.value.code, capsys.readouterr()


def test_show_and_rescore_print_a_cot_run(finished, capsys):
    path, found = finished
    status, out = _command(capsys, "show", path)
    assert status == 0
    for shown in (
        "lmassay cot  notes on made",
        "Evidence",
        "test.g_mean2",
        "Beside its controls",
        "prompt_only",
        "note:",
    ):
        assert shown in out.out
    status, out = _command(capsys, "rescore", path, "--json")
    assert status == 0
    assert json.loads(out.out) == json.loads(json.dumps(found.document))


def test_untrusted_names_reach_the_terminal_without_their_control_characters(tmp_path, capsys):
    data = made_data(n=60)
    data = replace(data, notes=("a \x1b[31mred\u202e note [bold]",))
    evaluate(data, Notes, out=tmp_path / "run")
    status, out = _command(capsys, "show", tmp_path / "run")
    assert status == 0
    assert "\x1b" not in out.out
    assert "\u202e" not in out.out
    assert "[bold]" in out.out
