"""What a finished run's features are about: training tokens among their neighbours, from the run's folder alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from made_cot import made_data
from rich.console import Console
from safetensors.torch import save_file

from lmassay.cot.evaluate import evaluate
from lmassay.cot.feature_view import view_features
from lmassay.cot.probe_view import AROUND, view_probe
from lmassay.errors import LmassayError
from lmassay.methods.held_activations import word_states
from lmassay.reports import cot_features

BLOCK, WIDTH = 1, 8


@pytest.fixture(scope="module")
def data():
    return made_data(n=80)


@pytest.fixture(scope="module")
def store(data):
    return word_states(x for s in data.splits.values() for x in s.examples)


@pytest.fixture(scope="module")
def words(data, store):
    """Text of every token id, by hand from the examples."""
    found = {}
    for split in data.splits.values():
        for x in split.examples:
            said = [w for s in x.segments for w in s.text.split()]
            found |= dict(zip(store.token_ids(x.key).tolist(), said, strict=True))
    return found


@pytest.fixture(scope="module")
def autoencoder(tmp_path_factory):
    """Features are the components of a state and their opposites, so it loses nothing."""
    folder = tmp_path_factory.mktemp("sae")
    d = torch.cat([torch.eye(WIDTH), -torch.eye(WIDTH)])
    config = {"architecture": "standard", "metadata": {"hook_name": f"blocks.{BLOCK}.hook_resid_post"}}
    (folder / "cfg.json").write_text(json.dumps(config))
    biases = {"b_enc": torch.zeros(2 * WIDTH), "b_dec": torch.zeros(WIDTH)}
    save_file({"W_enc": d.T.contiguous(), "W_dec": d, **biases}, folder / "sae_weights.safetensors")
    return folder


@pytest.fixture(scope="module")
def run(data, store, autoencoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "sae"
    options = {"sae": (str(autoencoder),), "features": (4,), "poolings": ("max",)}
    evaluate(data, "sae", activations=store, options=options, out=out)
    return out


def test_features_come_with_the_training_tokens_where_they_are_largest(run, data, store, words):
    asked = []

    def text_of(reader, ids):
        asked.append((reader, len(ids)))
        return [words[i] + " " for i in ids]

    choices, views = view_features(run, 3, text_of, store)
    assert [reader for reader, _ in asked] == ["words"], "one call for all tokens"
    assert choices["features"] == 4
    assert len(views) == 3
    assert abs(views[0].weight) >= abs(views[1].weight) >= abs(views[2].weight)
    states = {k: store.states(k, BLOCK) for k in data["train"].examples.keys.tolist()}
    for view in views:
        sign, place = (1, view.index) if view.index < WIDTH else (-1, view.index - WIDTH)
        largest = max(float((sign * s[:, place]).max()) for s in states.values())
        assert view.occurrences[0].value == pytest.approx(largest, abs=1e-5)
        for found in view.occurrences:
            column = sign * states[found.key][:, place]
            assert found.place == int(column.argmax())
            said = [words[i] for i in store.token_ids(found.key).tolist()]
            assert found.text == said[found.place] + " "
            assert found.before.split() == said[max(0, found.place - AROUND) : found.place]
            assert found.after.split() == said[found.place + 1 : found.place + 1 + AROUND]


def test_the_probe_view_of_an_example_names_features_and_sums_to_the_score(run, data, store, words):
    x = data["test"].examples[0]
    view = view_probe(run, data, "test", x, lambda _, ids: [words[i] for i in ids], store)
    found = view.contributions
    assert found.values.sum() + found.rest == pytest.approx(found.score)
    assert all(note.startswith("feature ") for note in found.notes)
    assert found.notes


def test_the_table_holds_every_feature_and_runs_nothing_a_text_says(run, store, words, monkeypatch, capsys):
    monkeypatch.setattr(cot_features, "console", lambda: Console(width=160, markup=False, highlight=False))
    choices, views = view_features(run, 2, lambda _, ids: ["[bold]\x1b[31m"] * len(ids), store)
    cot_features.print_features(choices, views)
    printed = capsys.readouterr().out
    assert all(str(view.index) in printed for view in views)
    assert "«[bold]\\x1b[31m»" in printed
    assert "\x1b" not in printed


def test_what_has_no_features_or_other_activations_is_refused(run, data, store, words, tmp_path):
    def text_of(_, ids):
        return [words[i] for i in ids]

    other = word_states((x for s in data.splits.values() for x in s.examples), model="another")
    with pytest.raises(LmassayError, match="other activations"):
        view_features(run, 1, text_of, other)
    with pytest.raises(LmassayError, match="--activations"):
        view_features(run, 1, text_of)
    evaluate(data, "mean_difference", activations=store, out=tmp_path / "plain")
    with pytest.raises(LmassayError, match="reads no features"):
        view_features(tmp_path / "plain", 1, text_of, store)


def test_a_run_names_the_autoencoder_by_what_it_holds(run, autoencoder, data, store, tmp_path):
    record = json.loads((run / "run.json").read_text())
    about = record["choices"]["sae"]
    assert about["explained"][f"{autoencoder.name}@{BLOCK}"]["value"] == pytest.approx(1, abs=1e-6)
    assert (about["layout"], about["activation"], about["block"]) == ("sae-lens", "relu", BLOCK)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in autoencoder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    options = {"sae": (str(copy),), "features": (4,), "poolings": ("max",)}
    again = evaluate(data, "sae", activations=store, options=options)
    mine, theirs = (e["identity"]["method"]["sha256"] for e in (again.document, record))
    assert mine == theirs
    assert np.isfinite(again.scored.scores["test.auroc"].value)
