"""`lmassay cot activations`, `merge-activations` and `show --tokens`: what is made, printed and refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from lmassay.cli import main
from lmassay.storage.activations import ActivationStore

sys.path.insert(0, str(Path(__file__).parent.parent / "cot"))
from made_extraction import write_data, write_reader

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Another number of threads changes last bits, and a tiny model is too small to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    return write_data(root / "data.jsonl", long=1, empty=1), write_reader(root / "reader")


@pytest.fixture
def command(place, capsys):
    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main(["cot", *map(str, words)])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return run


def extract(command, place, out, *more):
    data, reader = place
    words = ("activations", "1", "--model", reader, "--source", data, "--blocks", "0,2", "--out", out)
    return command(*words, "--over-length", "skip", *more)


def test_what_was_read_kept_skipped_and_lost_is_printed(command, place, tmp_path):
    status, out, _ = extract(command, place, tmp_path / "out", "--token-blocks", "2", "--max-cot-tokens", "12")
    assert status == 0
    store = ActivationStore(tmp_path / "out")
    counts = store.index["counts"]
    assert f"{counts['tokens']['read']:,} tokens read, {counts['tokens']['kept']:,} kept" in out
    assert f"examples lost {counts['tokens']['shortened']:,} tokens to --max-cot-tokens" in out
    assert "minutes per million tokens" in out
    assert store.token_blocks == (2,)
    status, out, _ = extract(command, place, tmp_path / "out", "--token-blocks", "2", "--max-cot-tokens", "12")
    assert status == 0
    assert "1 of 1 shards were already there" in out


def test_token_states_are_of_all_blocks_by_default_and_of_none_when_asked(command, place, tmp_path):
    for more, blocks in (((), (0, 2)), (("--token-blocks", "none"), ()), (("--tokens", "last"), ())):
        out = tmp_path / "-".join(["out", *more])
        assert extract(command, place, out, *more)[0] == 0
        assert ActivationStore(out).token_blocks == blocks


def test_shares_are_made_and_merged(command, place, tmp_path):
    for i in (1, 2):
        status, out, _ = extract(command, place, tmp_path / f"part{i}", "--shard", f"{i}/2")
        assert status == 0
        # The data is one shard, so that the second share is empty and the first is the whole.
        assert ("merge-activations" in out) == (i == 2)
    status, out, _ = command("merge-activations", tmp_path / "all", tmp_path / "part1", tmp_path / "part2", "--json")
    assert status == 0
    assert json.loads(out)["finished"]
    assert ActivationStore(tmp_path / "all").fingerprint == ActivationStore(tmp_path / "part1").fingerprint


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--blocks", "0;2"), "0;2"),
        (("--token-blocks", "1"), "block 1"),
        (("--tokens", "every"), "known: all"),
        (("--shard", "0/2"), "counted from 1"),
        (("--storage", "int4"), "int4"),
        (("--executor", "slurm"), "slurm"),
        (("--address", "auto"), "--executor ray"),
        (("--train-cap", "0"), "cap"),
    ],
)
def test_a_wrong_request_is_one_line(command, place, tmp_path, more, named):
    status, _, err = extract(command, place, tmp_path / "out", *more)
    assert status == 2
    assert named in err
    assert err.strip().splitlines()[-1].startswith("error[bad-request]")


def test_show_tokens_prints_what_a_reader_gets(command, place):
    data, reader = place
    status, out, _ = command("show", "1", "train:3", "--source", data, "--tokens", "--model", reader)
    assert status == 0
    assert "[prompt]" in out
    assert "[scaffold]" in out
    assert "[cot]" in out
    status, out, _ = command("show", "1", "train:3", "--source", data, "--tokens", "--model", reader, "--json")
    shown = json.loads(out)["tokens"]
    assert {t["segment"] for t in shown} == {"prompt", "cot", None}
    assert all(t["kept"] == (t["segment"] is not None) for t in shown)


def test_show_tokens_wants_a_reader(command, place):
    status, _, err = command("show", "1", "test:0", "--source", place[0], "--tokens")
    assert status == 2
    assert "--model" in err
