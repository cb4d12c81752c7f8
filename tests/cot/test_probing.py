"""Methods that read activations in an evaluation: what they are given, recorded, kept, and called in a leaderboard."""

from __future__ import annotations

import json
import shutil

import jsonschema
import numpy as np
import pytest
from made_cot import made_data
from sklearn.metrics import roc_auc_score

from lmassay.cot.evaluate import evaluate
from lmassay.cot.leaderboard import leaderboard
from lmassay.cot.probe_view import view_probe
from lmassay.cot.probing import kept_method
from lmassay.errors import LmassayError
from lmassay.measures.classification import choose_threshold
from lmassay.methods.held_activations import HeldActivations, word_states
from lmassay.methods.linear import Linear
from lmassay.storage.schema import schema

FAST = {"epochs": 3, "seeds": 2}


def store_of(data, *, without=(), model="words"):
    return word_states((x for s in data.splits.values() for x in s.examples if x.key not in without), model=model)


@pytest.fixture(scope="module")
def data():
    return made_data()


@pytest.fixture(scope="module")
def store(data):
    return store_of(data)


@pytest.fixture(scope="module")
def found(data, store):
    return evaluate(data, "linear", activations=store)


def test_a_probe_is_scored_like_any_method_against_the_same_controls(data, store, found):
    split = data["test"]
    probe = Linear()
    probe.activations = store
    table = found.predictions.filter(method_id="linear", split="test")
    auroc = roc_auc_score(split.y, table["score"].to_numpy())
    assert found.scored.scores["test.auroc"].value == pytest.approx(auroc)
    assert auroc > 0.7
    assert {r.control for r in found.scored.evidence} >= {"length", "shortcuts", "prompt_only"}
    assert evaluate(data, "tfidf").scored.controls.keys() == found.scored.controls.keys()


def test_half_of_validation_chose_the_block_and_gives_no_threshold(found):
    splits = found.predictions.filter(method_id="linear")["split"].value_counts()
    counts = dict(splits.iter_rows())
    assert counts["choosing"] + counts["validation"] == 120
    assert counts["choosing"] > 30


def test_with_one_block_and_one_pooling_all_of_validation_gives_the_threshold(data, store):
    one = {"blocks": (1,), "poolings": ("mean",)}
    ran = evaluate(data, "linear", activations=store, options=one)
    mine = ran.predictions.filter(method_id="linear")
    assert mine.filter(split="choosing").is_empty()
    scores = mine.filter(split="validation")["score"].to_numpy()
    assert len(scores) == 120
    expected = choose_threshold(data["validation"].y, scores).value
    assert ran.document["thresholds"]["linear"]["value"] == expected
    assert (
        not evaluate(data, "linear", activations=store, options={"blocks": (1,)})
        .predictions.filter(method_id="linear", split="choosing")
        .is_empty()
    )


def test_the_identity_names_reader_activations_cap_and_options(data, store):
    ran = evaluate(data, "linear", activations=store, train_cap=60, options={"blocks": (1,)})
    identity = ran.document["identity"]
    assert identity["activations"] == {"reader": "words", "sha256": store.fingerprint}
    assert identity["settings"] == {"seed": 0, "train_cap": 60}
    assert identity["method"]["options"] == {"blocks": [1]}
    assert identity["task"]["sha256"] == data.fingerprint
    assert any("train_cap=60" in notice for notice in ran.document["notices"])
    plain = evaluate(data, "length").document["identity"]
    assert "activations" not in plain
    assert plain["settings"] == {"seed": 0}


def test_examples_without_activations_abstain_and_are_counted(data):
    gone = {int(k) for name in ("train", "test") for k in data[name].examples.keys[:7]}
    ran = evaluate(data, "mean_difference", activations=store_of(data, without=gone))
    table = ran.predictions.filter(method_id="mean_difference")
    assert table.filter(split="test", status="abstained").height == 7
    assert table.filter(status="abstained").height == 7
    counts = ran.document["counts"]["test"]
    assert (counts["n_scored"], counts["n_undecided"]) == (113, 7)
    assert counts["statuses"] == {"abstained": 7, "ok": 113}
    notices = ran.document["notices"]
    assert "train: 7 of 120 usable rows have no activations and are not learnt from" in notices
    assert "test: 7 of 120 usable rows have no activations and are not scored" in notices


@pytest.mark.parametrize(
    ("method", "how", "said"),
    [
        ("linear", {}, "lmassay cot activations TASK"),
        ("tfidf", {"activations": "any"}, "method tfidf reads no activations"),
        ("linear", {"activations": "other"}, "hold no example of task made"),
        ("linear", {"activations": "any", "options": {"block": 1}}, "has no option 'block'"),
        ("linear", {"activations": "any", "options": {"blocks": (5,)}}, "do not have block 5"),
        ("linear", {"activations": "any", "train_cap": 2}, "the first question alone"),
        ("length", {"options": {"n": 1}}, "method length has no option 'n'"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(method, how, said, data, store):
    other = HeldActivations("words", {1: {0: np.ones((2, 3), np.float32)}})
    how = {**how, "activations": {"any": store, "other": other}.get(how.get("activations"))}
    with pytest.raises(LmassayError) as caught:
        evaluate(data, method, **{k: v for k, v in how.items() if v is not None})
    assert said in str(caught.value)


def test_a_made_probe_brings_its_own_activations_and_takes_no_options(data, store, found):
    probe = Linear()
    probe.activations = store
    again = evaluate(data, probe)
    assert again.document["scores"] == found.document["scores"]
    with pytest.raises(LmassayError, match="takes no options"):
        evaluate(data, probe, options={"blocks": (1,)})


def test_regression_is_probed_too():
    data = made_data("regression", n=90)
    store = store_of(data)
    for name, options in (("linear", {}), ("attention", FAST)):
        assert evaluate(data, name, activations=store, options=options).scored.scores["test.r2"].n == 90
    with pytest.raises(LmassayError, match="method lda cannot do task made, which is regression"):
        evaluate(data, "lda", activations=store)


def test_the_fitted_method_is_kept_in_the_run_folder(data, store, tmp_path):
    for name, options in (("linear", {}), ("attention", FAST), ("lda", {}), ("mean_difference", {})):
        run = tmp_path / name
        ran = evaluate(data, name, activations=store, train_cap=100, options=options, out=run)
        kept = kept_method(run, name, store)
        table = ran.predictions.filter(method_id=name, split="test")
        assert kept.score(data["test"].examples).tolist() == table["score"].to_list()
        record = json.loads((run / "run.json").read_text())
        jsonschema.validate(record, schema("cot_run"))
        jsonschema.validate(json.loads((run / "scores.json").read_text()), schema("cot_scores"))
        assert record["choices"][name]["reader"] == "words"
    evaluate(data, "tfidf", out=tmp_path / "tfidf")
    with pytest.raises(LmassayError, match="did not keep its fitted method tfidf"):
        kept_method(tmp_path / "tfidf", "tfidf", store)


def test_a_folder_holds_one_cap_and_one_set_of_activations(data, store, tmp_path):
    evaluate(data, "lda", activations=store, train_cap=60, out=tmp_path)
    again = evaluate(data, "lda", activations=store, train_cap=60, out=tmp_path)
    assert again.document["identity"]["settings"]["train_cap"] == 60
    with pytest.raises(LmassayError, match=r"run-folder-mismatch.*train_cap = 60, this one has 80"):
        evaluate(data, "lda", activations=store, train_cap=80, out=tmp_path)
    with pytest.raises(LmassayError, match=r"run-folder-mismatch.*activations.reader = words, this one has more"):
        evaluate(data, "lda", activations=store_of(data, model="more"), train_cap=60, out=tmp_path)


def test_capped_and_uncapped_runs_stand_in_one_leaderboard_under_names_that_tell(data, store):
    board = leaderboard(
        [
            evaluate(data, "tfidf"),
            evaluate(data, "tfidf", train_cap=60),
            evaluate(data, "linear", activations=store, train_cap=60),
            evaluate(
                data, "linear", activations=store_of(data, model="more"), train_cap=60, options={"blocks": (0, 1)}
            ),
        ]
    )
    labels = {r.label: r.kind for r in board.rows}
    assert {k for k, v in labels.items() if v == "method"} == {
        "tfidf",
        "tfidf (train_cap=60)",
        "linear (words, train_cap=60)",
        "linear (more, train_cap=60, blocks=0+1)",
    }
    assert {"shortcuts", "shortcuts (train_cap=60)"} <= {k for k, v in labels.items() if v == "control"}
    both = board.cells.filter(figure="auroc", part="id")
    fewer, more = (both.filter(row=r)["value"][0] for r in ("shortcuts (train_cap=60)", "shortcuts"))
    assert fewer != more


def test_two_runs_of_one_name_are_still_refused(data, store):
    run = evaluate(data, "lda", activations=store)
    with pytest.raises(LmassayError, match=r"both runs of lda \(words\) on made"):
        leaderboard([run, evaluate(data, "lda", activations=store)])


def texts(reader, ids):
    assert reader == "words"
    return [f"<{i}>" for i in ids]


@pytest.mark.parametrize("method", ["linear", "attention"])
def test_what_the_probe_used_is_shown_token_by_token(method, data, store, tmp_path):
    evaluate(data, method, activations=store, options=FAST if method == "attention" else {}, out=tmp_path)
    x = data["test"].examples[3]
    view = view_probe(tmp_path, data, "test", x, texts, store)
    words = [w for s in x.segments for w in s.text.split()]
    assert len(view.texts) == len(view.kinds) == len(view.contributions.values) == len(words)
    assert view.kinds[: len(x.text("prompt").split())] == ("prompt",) * len(x.text("prompt").split())
    assert view.kinds[-1] == "cot"
    assert view.contributions.score == pytest.approx(kept_method(tmp_path, method, store).score([x])[0])
    shown = view.to_dict(4)
    sizes = [abs(t["contribution"]) for t in shown["tokens"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 4
    assert json.loads(json.dumps(shown)) == shown


def test_a_view_needs_the_run_s_own_activations_and_task(data, store, tmp_path):
    evaluate(data, "lda", activations=store, out=tmp_path / "lda")
    x = data["test"].examples[0]
    with pytest.raises(LmassayError, match=r"does not say where its activations are"):
        view_probe(tmp_path / "lda", data, "test", x, texts)
    with pytest.raises(LmassayError, match=r"holds other activations|other activations than those"):
        view_probe(tmp_path / "lda", data, "test", x, texts, store_of(data, without={x.key}))
    evaluate(data, "length", out=tmp_path / "length")
    with pytest.raises(LmassayError, match=r"no run of a method that reads activations"):
        view_probe(tmp_path / "length", data, "test", x, texts, store)
    shutil.rmtree(tmp_path / "lda" / "method")
    with pytest.raises(LmassayError, match=r"did not keep its fitted method"):
        view_probe(tmp_path / "lda", data, "test", x, texts, store)
