"""What can be wrong with activations, each by command: one line that says what and what to do, and nothing half done."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lmassay.cli import main
from lmassay.storage.activations import ActivationStore

sys.path.insert(0, str(Path(__file__).parent.parent / "cot"))
from made_extraction import WORDS, write_data, write_reader

from made_saes import _saved

pytestmark = pytest.mark.tiny
#: The pooled probes read their states alike.
PROBES = ("linear", "attention")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Another number of threads changes last bits, and a tiny model is too small to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def command(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(w) for w in words])
    return stop.value.code


@pytest.fixture
def refused(capsys):
    """Run a command that fails; the one line it ends with, and its exit status."""

    def run(*words):
        status = command(*words)
        printed = capsys.readouterr().err.strip().splitlines()
        assert printed, "nothing was said"
        assert printed[-1].startswith("error["), printed[-1]
        assert not any("Traceback" in line for line in printed)
        return status, printed[-1]

    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    data, reader = write_data(root / "data.jsonl", n=60), write_reader(root / "reader")
    assert not command(*extraction(data, reader, root / "acts"))
    return data, reader, root / "acts"


def extraction(data, reader, out, *more, task="1"):
    words = ["cot", "activations", task, "--model", reader, "--source", data, "--blocks", "0,2", "--token-blocks", "2"]
    return [*words, "--out", out, *more]


def evaluation(data, acts, out, method="linear", *more, task="1"):
    words = ["cot", "run", task, "--source", data, "--method", method, "--activations", acts, "--out", out]
    return [*words, *(["--option", "epochs=2"] if method == "attention" else []), *more]


@pytest.fixture
def copied(place, tmp_path):
    shutil.copytree(place[2], tmp_path / "acts")
    return tmp_path / "acts"


@pytest.mark.parametrize("harm", ["cut", "altered", "gone"])
def test_a_shard_that_was_harmed_is_named(place, copied, tmp_path, refused, harm):
    shard = sorted((copied / "shards").iterdir())[0]
    whole = shard.read_bytes()
    if harm == "gone":
        shard.unlink()
    else:
        shard.write_bytes(whole[:-9] if harm == "cut" else whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    status, said = refused(*evaluation(place[0], copied, tmp_path / "run"))
    assert status == 3
    assert "error[activations-broken]" in said
    assert shard.name in said


def test_an_index_of_another_reader_s_activations_does_not_fit_the_shards(place, copied, tmp_path, refused):
    other = write_reader(tmp_path / "other", "llama_tied")
    assert not command(*extraction(place[0], other, tmp_path / "other acts"))
    shutil.copy(tmp_path / "other acts" / "index.json", copied / "index.json")
    status, said = refused(*evaluation(place[0], copied, tmp_path / "run"))
    assert status == 3
    assert "error[activations-broken]" in said


def test_a_folder_of_another_reader_s_activations_is_not_gone_on_with(place, copied, tmp_path, refused):
    other = write_reader(tmp_path / "other", "llama_tied")
    status, said = refused(*extraction(place[0], other, copied))
    assert status == 2
    assert "error[run-folder-mismatch]" in said
    assert "holds a run with model.weights = " in said


def test_activations_of_other_data_are_refused(place, tmp_path, refused):
    other = write_data(tmp_path / "other.jsonl", n=20)
    status, said = refused(*evaluation(other, place[2], tmp_path / "run"))
    assert status == 2
    assert "error[run-folder-mismatch]" in said
    assert "sha256" in said


def write_conversations(path, silent):
    """Own data of task 2; of every split the first `silent` rows are conversations in which the subject says nothing."""
    rows = []
    for split, n in (("train", 40), ("validation", 20), ("test", 20), ("ood_test", 12)):
        for i in range(n):
            turns = [{"role": "user", "content": f"Is {i} odd?"}]
            if i >= silent:
                said = " ".join(WORDS[(i * j + j) % len(WORDS)] for j in range(1, 3 + i % 9))
                turns.append({"role": "assistant", "content": said})
            rows.append(
                {"example_id": f"{split}-{i}", "split": split, "question_id": f"{split}-{i // 2}", "label": i % 2,
                 "message": turns}
            )  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def silent(place, tmp_path_factory):
    root = tmp_path_factory.mktemp("silent")
    data = write_conversations(root / "talk.jsonl", silent=3)
    assert not command(*extraction(data, place[1], root / "acts", "--tokens", "cot", task="2"))
    return data, root / "acts"


@pytest.mark.parametrize("method", PROBES)
def test_rows_without_a_token_are_abstained_from_by_probes(silent, tmp_path, method):
    data, acts = silent
    assert ActivationStore(acts).index["counts"]["splits"]["test"] == {"ok": 17, "no_tokens": 3}
    assert not command(*evaluation(data, acts, tmp_path / "run", method, task="2"))
    document = json.loads((tmp_path / "run" / "scores.json").read_text())
    counts = document["counts"]["test"]
    assert (counts["n_total"], counts["n_scored"], counts["n_undecided"]) == (20, 17, 3)
    assert "train: 3 of 40 usable rows have no activations and are not learnt from" in document["notices"]


def test_texts_of_which_none_has_a_token_are_refused_before_anything_is_made(place, tmp_path, refused):
    data = write_conversations(tmp_path / "talk.jsonl", silent=99)
    status, said = refused(*extraction(data, place[1], tmp_path / "acts", "--tokens", "cot", task="2"))
    assert status == 2
    assert "no example has a token to keep" in said
    assert not (tmp_path / "acts" / "shards").exists()


def put_nan(acts, keys):
    """NaN in place of every state of some examples, hashes mended: what a store made elsewhere may hold."""
    index = json.loads((acts / "index.json").read_text())
    store = ActivationStore(acts)
    at = {int(k): (int(s), int(r)) for k, s, r in store.examples().select("key", "shard", "row").rows()}
    for number, entry in enumerate(index["shards"]):
        path = acts / "shards" / entry["file"]
        data = bytearray(path.read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        lengths = np.frombuffer(data, np.int64, offset=start + header["lengths"]["data_offsets"][0],
                                count=header["lengths"]["shape"][0])  # fmt: skip
        ends = np.cumsum(lengths)
        for shard, row in (at[k] for k in keys if at[k][0] == number):
            assert shard == number
            for name, about in header.items():
                if not name.startswith("block."):
                    continue
                size = {"F32": 4, "BF16": 2}[about["dtype"]] * about["shape"][1]
                first, last = (ends[row] - lengths[row], ends[row]) if name.endswith("tokens") else (row, row + 1)
                own = slice(
                    start + about["data_offsets"][0] + first * size, start + about["data_offsets"][0] + last * size
                )
                data[own] = (
                    b"\xff\x7f" * ((own.stop - own.start) // 2)
                    if size == 2 * about["shape"][1]
                    else (np.full((last - first) * about["shape"][1], np.nan, np.float32).tobytes())
                )
        path.write_bytes(bytes(data))
        entry["sha256"] = hashlib.sha256(data).hexdigest()
    (acts / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("method", PROBES)
def test_activations_that_are_no_numbers_are_refused_in_training_and_abstained_from_in_scoring(
    place, copied, tmp_path, refused, method
):
    keys = {name: ActivationStore(copied).examples().filter(split=name)["key"].to_list() for name in ("train", "test")}
    put_nan(copied, keys["test"][:2])
    assert not command(*evaluation(place[0], copied, tmp_path / "run", method))
    counts = json.loads((tmp_path / "run" / "scores.json").read_text())["counts"]["test"]
    assert (counts["n_scored"], counts["n_undecided"]) == (28, 2)
    put_nan(copied, keys["train"][:1])
    status, said = refused(*evaluation(place[0], copied, tmp_path / "again", method))
    assert status == 2
    assert f"the activations of example {keys['train'][0]}" in said
    assert "NaN" in said


def test_a_reader_whose_weights_are_no_numbers_is_refused_before_anything_is_made(place, tmp_path, refused):
    from transformers import AutoModelForCausalLM

    shutil.copytree(place[1], tmp_path / "reader")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "reader")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    model.save_pretrained(tmp_path / "reader")
    status, said = refused(*extraction(place[0], tmp_path / "reader", tmp_path / "acts"))
    assert status in (2, 3)
    assert "NaN" in said or "nan" in said
    assert not list((tmp_path / "acts").glob("shards/[0-9]*"))


def few_questions(source, path, n):
    """The same data with the training rows of at most `n` questions; labels go by question."""
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    for row in rows:
        if row["split"] == "train":
            number = int(row["example_id"].partition("-")[2]) % n
            row |= {"question_id": f"train-{number}", "label": ("yes", "no")[number % 2]}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("n", "method"), [(2, "linear"), (2, "attention"), (3, "lda"), (3, "mean_difference")])
def test_fewer_questions_than_folds_and_folds_of_one_class_are_no_error(place, tmp_path, method, n):
    """Every question has one class: of two questions each fold has one, and none can be kept back."""
    data = few_questions(place[0], tmp_path / "few.jsonl", n)
    assert not command(*extraction(data, place[1], tmp_path / "acts"))
    assert not command(*evaluation(data, tmp_path / "acts", tmp_path / "run", method))
    counts = json.loads((tmp_path / "run" / "scores.json").read_text())["counts"]["test"]
    assert counts["n_scored"] == counts["n_total"] == 30


def test_training_rows_of_one_class_are_refused(place, tmp_path, refused):
    data = few_questions(place[0], tmp_path / "few.jsonl", 1)
    status, said = refused(*evaluation(data, place[2], tmp_path / "run"))
    assert status == 2
    assert "one class" in said


def test_an_autoencoder_of_another_width_is_refused_with_both_shapes(place, tmp_path, refused):
    rng = np.random.default_rng(0)
    arrays = {
        "W_enc": rng.normal(size=(24, 40)),
        "b_enc": np.zeros(40),
        "W_dec": rng.normal(size=(40, 24)),
        "b_dec": np.zeros(24),
    }
    config = {
        "architecture": "standard",
        "d_in": 24,
        "d_sae": 40,
        "hook_name": "blocks.2.hook_resid_post",
        "dtype": "float32",
    }
    _saved(tmp_path / "sae", config, "sae_weights.safetensors", arrays)
    words = evaluation(place[0], place[2], tmp_path / "run", "sae", "--option", f"sae={tmp_path / 'sae'}")
    status, said = refused(*words)
    assert status == 2
    assert "24 → 40" in said
    assert "32" in said


@pytest.mark.parametrize(
    ("package", "extra", "words"),
    [
        ("ray", "ray", ["EXTRACT", "--executor", "ray"]),
        ("sae_lens", "sae", ["models", "train-sae", "smollm2-135m", "--text", "DATA", "--block", "1", "--out", "OUT"]),
        ("inspect_ai", "monitors", ["cot", "run", "1", "--source", "DATA", "--method", "monitor", "--monitor-model", "mockllm/x"]),
    ],
)  # fmt: skip
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    place, tmp_path, refused, monkeypatch, package, extra, words
):
    found = importlib.util.find_spec
    hidden = lambda name, *a: None if name == package else found(name, *a)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    for module in ("lmassay.models.saes.train", "lmassay.cot.monitors.extra"):
        monkeypatch.setattr(f"{module}.find_spec", hidden)
    out = tmp_path / "out"
    if words[0] == "EXTRACT":
        words = [*extraction(place[0], place[1], out), *words[1:]]
    status, said = refused(*({"DATA": place[0], "OUT": out}.get(str(w), w) for w in words))
    assert status == 2
    assert f"pip install 'lmassay[{extra}]'" in said


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install 'lmassay[ray]'")
def test_a_ray_that_does_not_answer_is_said(place, tmp_path, refused):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    where = f"127.0.0.1:{port}"
    status, said = refused(*extraction(place[0], place[1], tmp_path / "acts", "--executor", "ray", "--address", where))
    assert status == 3
    assert "error[executor-lost]" in said
    assert f"no Ray answers at {where}" in said
