"""Reproducing the paper's table, on models of random weights laid out as its checkpoints are."""

from __future__ import annotations

import json

import pytest

from lmassay.cli import main
from lmassay.errors import LmassayError
from lmassay.models.open import open_model
from lmassay.storage.runs import RUN, SCORES
from lmassay.xray import run as run_module
from lmassay.xray.paper_figures import CHECKPOINTS, INFORMATION
from lmassay.xray.reproduce import OTHER_INSTANCES, chosen, complete, reproduce
from tiny_models import tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
#: Checkpoint -> family and blocks: two GPT-2 of different depth, and a GPT-NeoX.
LAID_OUT = {"distilgpt2": ("gpt2", 2), "gpt2": ("gpt2", 3), "gpt2-medium": ("gpt2", 4), "pythia-70m": ("gpt_neox", 2)}


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, (family, n_blocks)) in enumerate(LAID_OUT.items()):
        blocks = {"n_layer" if family == "gpt2" else "num_hidden_layers": n_blocks}
        tiny_hf(family, seed=seed, **blocks).save_pretrained(folder / name)
        tiny_tokenizer().save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def document(models_dir, out):
    return reproduce(CHECKPOINTS, out, open_model, models_dir=models_dir, held_out=True)


def _rows(document):
    return {(row["name"], row["battery"]): row for row in document["checkpoints"]}


def test_each_checkpoint_is_run_under_the_paper_s_protocol(document, out):
    for (name, battery), row in _rows(document).items():
        if row["status"] == "done":
            settings = json.loads((out / f"{name}-{battery}" / RUN).read_text())["identity"]["settings"]
            assert settings["protocol"] == ("first-token" if name.startswith("pythia") else "multi-token")
            assert settings["phases"] == ["real", "controls", "paraphrase"]


def test_every_published_figure_stands_beside_the_run_s_own(document, out):
    for checkpoint in CHECKPOINTS:
        row = _rows(document)[checkpoint.name, "core50"]
        if row["status"] != "done":
            continue
        scores = json.loads((out / f"{checkpoint.name}-core50" / SCORES).read_text())
        groups = {g["group"]: g["jaccard"] for g in scores["paraphrase_groups"]}
        headline = {name: score["value"] for name, score in scores["scores"].items()}
        families = {f: e["value"] for f, e in scores["families"].items()}
        assert [f["figure"] for f in row["figures"]] == list(checkpoint.figures)
        for figure in row["figures"]:
            kind, _, what = figure["figure"].rpartition(":")
            expected = {"": headline, "family": families, "paraphrase": groups}[kind].get(what)
            assert figure["value"] == expected
            assert figure["paper"] == checkpoint.figures[figure["figure"]]
            if expected is None:
                assert figure["difference"] is None
                assert figure["status"].startswith("undefined: ")
            else:
                assert figure["difference"] == pytest.approx(expected - figure["paper"])
                if figure["low"] is not None:
                    assert figure["paper_in_interval"] == (figure["low"] <= figure["paper"] <= figure["high"])


def test_checkpoints_that_are_not_there_are_named_and_the_rest_is_measured(document):
    rows = _rows(document)
    assert {name for (name, _), row in rows.items() if row["status"] == "missing"} == {
        c.name for c in CHECKPOINTS
    } - set(LAID_OUT)
    assert "no folder" in rows["pythia-1b", "core50"]["error"]
    assert all(rows[name, "core50"]["status"] == "done" for name in LAID_OUT)
    assert not complete(document)


def test_the_held_out_battery_is_run_where_the_paper_ran_it(document):
    held = {name for name, battery in _rows(document) if battery == "heldout54"}
    assert held == {"distilgpt2", "gpt2", "gpt2-medium"}


def test_patterns_stand_beside_the_paper_s(document):
    figures = {figure["figure"]: figure for figure in document["patterns"]["figures"]}
    assert document["patterns"]["status"] == "ok"
    assert set(figures) == {
        *(f"information:{name}" for name in INFORMATION), "tree:training", "tree:held_out", "held_out:logic",
        "held_out:compute",
    }  # fmt: skip
    assert figures["tree:training"]["n"] == 150
    assert figures["tree:held_out"]["n"] == 162
    assert figures["tree:training"]["paper"] == 0.98


def test_it_is_said_that_instances_and_here_models_are_others(document):
    assert document["notices"][0] == OTHER_INSTANCES
    assert "gpt2 has 3 blocks here, the paper's has 12: another model" in document["notices"]
    json.dumps(document, allow_nan=False)


def test_again_it_reads_what_is_finished(models_dir, out, document, monkeypatch):
    def never(*_, **__):
        raise AssertionError("scored again")

    monkeypatch.setattr(run_module, "_score_shards", never)
    again = reproduce(chosen(["gpt2"]), out, open_model, models_dir=models_dir, held_out=True)
    assert again["checkpoints"] == [row for row in document["checkpoints"] if row["name"] == "gpt2"]


def test_stopped_in_the_second_model_it_goes_on_there(models_dir, tmp_path, monkeypatch, document):
    """The first is read, the second resumed."""
    two = chosen(["distilgpt2", "gpt2"])
    opened = []

    def stopping(source):
        opened.append(source)
        if len(opened) == 2:
            raise KeyboardInterrupt
        return open_model(source)

    with pytest.raises(KeyboardInterrupt):
        reproduce(two, tmp_path, stopping, models_dir=models_dir)
    again = reproduce(two, tmp_path, open_model, models_dir=models_dir)
    for row in again["checkpoints"]:
        assert row["figures"] == _rows(document)[row["name"], "core50"]["figures"]


def test_one_that_fails_is_named_and_the_next_is_run(models_dir, tmp_path):
    def breaking(source):
        if source.endswith("distilgpt2"):
            raise RuntimeError("not enough memory:\n you tried to allocate 9 GB")
        return open_model(source)

    found = reproduce(chosen(["distilgpt2", "gpt2"]), tmp_path, breaking, models_dir=models_dir)
    assert [row["status"] for row in found["checkpoints"]] == ["failed", "done"]
    assert found["checkpoints"][0]["error"] == "not enough memory: you tried to allocate 9 GB"
    assert found["patterns"] == {"status": "undefined: they need distilgpt2, gpt2-medium", "figures": []}


def test_an_unknown_checkpoint_gets_the_nearest_name(tmp_path):
    with pytest.raises(LmassayError, match="bad-request: .* 'pythia-70' — did you mean pythia-70m"):
        chosen(["pythia-70"])


def test_models_dir_must_be_a_folder(tmp_path):
    with pytest.raises(LmassayError, match="bad-request: .* is no folder"):
        reproduce(CHECKPOINTS, tmp_path / "out", open_model, models_dir=tmp_path / "nowhere")


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["xray", "reproduce", *map(str, arguments)])
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def test_the_command_prints_what_there_is_and_exits_with_3(models_dir, out, document, capsys):
    code, printed, _ = _run(
        capsys, "--models-dir", models_dir, "--out", out, "--only", "distilgpt2", "--only", "pythia-1b"
    )
    assert code == 3
    assert "note: the paper publishes its templates" in printed
    assert "distilgpt2 on core50, multi-token (2 blocks" in printed
    assert "missing: pythia-1b on core50: no folder" in printed
    assert "Traceback" not in printed


def test_only_the_named_ones_and_exit_0(models_dir, out, document, capsys):
    code, printed, _ = _run(
        capsys, "--models-dir", models_dir, "--out", out, "--only", "pythia-70m", "--only", "gpt2", "--json"
    )
    found = json.loads(printed)
    assert code == 0
    assert [row["name"] for row in found["checkpoints"]] == ["gpt2", "pythia-70m"]
    assert found["checkpoints"][0]["figures"] == _rows(document)["gpt2", "core50"]["figures"]


def test_without_the_hub_each_is_said_to_need_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, printed, _ = _run(capsys, "--out", tmp_path / "out", "--only", "gpt2")
    assert code == 3
    assert "failed: gpt2 on core50: network-unavailable: openai-community/gpt2" in printed
