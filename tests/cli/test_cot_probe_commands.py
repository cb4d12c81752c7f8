"""From texts to what a probe used, by commands alone: activations, run with options, a cap, the leaderboard, show."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lmassay.cli import main
from lmassay.storage.activations import ActivationStore

sys.path.insert(0, str(Path(__file__).parent.parent / "cot"))
from made_extraction import write_data, write_reader

pytestmark = pytest.mark.tiny


@pytest.fixture(scope="module")
def command():
    def run(*words, capsys):
        with pytest.raises(SystemExit) as stop:
            main(["cot", *map(str, words)])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    data, reader = write_data(root / "data.jsonl", n=60), write_reader(root / "reader")
    with pytest.raises(SystemExit) as stop:
        main(["cot", "activations", "1", "--model", str(reader), "--source", str(data), "--blocks", "0,2",
              "--token-blocks", "2", "--over-length", "skip", "--out", str(root / "acts")])  # fmt: skip
    assert not stop.value.code
    return data, root / "acts", reader


def test_a_probe_is_run_capped_compared_and_shown(command, place, tmp_path, capsys):
    data, acts, reader = place
    runs = []
    for method, *options in (("linear", "blocks=2", "poolings=mean,max"), ("attention", "epochs=2", "seeds=2")):
        runs.append(tmp_path / method)
        words = ["run", "1", "--source", data, "--method", method, "--activations", acts, "--train-cap", "20"]
        words += [w for o in options for w in ("--option", o)]
        status, out, err = command(*words, "--out", runs[-1], capsys=capsys)
        assert not status, err
        assert "train_cap=20" in out
        identity = json.loads((runs[-1] / "run.json").read_text())["identity"]
        assert identity["settings"]["train_cap"] == 20
        assert set(identity["method"]["options"]) == {o.partition("=")[0] for o in options}
    status, out, _ = command("leaderboard", *runs, "--json", capsys=capsys)
    assert not status
    labels = {r["row"] for r in json.loads(out)["rows"]}
    assert any(one.startswith("linear (") and "train_cap=20, blocks=2, poolings=mean+max)" in one for one in labels)
    assert "length (train_cap=20)" in labels
    key = ActivationStore(acts).examples().filter(split="test", status="ok")["key"][0]
    for run in runs:
        words = ("show", "1", key, "--source", data, "--probe", run, "--model", reader, "--top", "3")
        status, out, err = command(*words, capsys=capsys)
        assert not status, err
        assert "Tokens by size of contribution" in out
        status, out, _ = command(*words, "--json", capsys=capsys)
        seen = json.loads(out)
        assert len(seen["tokens"]) == 3
        assert seen["n_tokens"] > 3
        assert seen["reader"] == "reader"
        assert {"score", "threshold", "reader"} <= set(seen)
    status, _, err = command("show", "1", key, "--source", data, "--probe", runs[0], capsys=capsys)
    assert status == 2
    assert "say with --model where the reader is" in err
    status, _, err = command("show", "1", key, "--probe", runs[0], "--model", reader, capsys=capsys)
    assert status == 2
    assert "add --source FILE" in err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--method", "linear"], "lmassay cot activations"),
        (["--method", "linear", "--activations", "nowhere"], "nowhere"),
        (["--method", "linear", "--activations", "ACTS", "--option", "block=2"], "did you mean blocks?"),
        (["--method", "linear", "--activations", "ACTS", "--option", "blocks=last"], "a list with commas"),
        (["--method", "attention", "--activations", "ACTS", "--option", "block=0"], "do not have every token's state"),
        (["--method", "tfidf", "--activations", "ACTS"], "reads no activations"),
        (["--method", "tfidf", "--train-cap", "0"], "a cap of 0 training rows"),
    ],
)
def test_what_does_not_fit_is_one_line(command, place, tmp_path, more, said, capsys):
    data, acts, _ = place
    words = [acts if w == "ACTS" else w for w in more]
    status, _, err = command("run", "1", "--source", data, *words, "--out", tmp_path / "run", capsys=capsys)
    assert status == (3 if said == "nowhere" else 2)
    assert said in err
    assert err.strip().splitlines()[-1].startswith("error[")
