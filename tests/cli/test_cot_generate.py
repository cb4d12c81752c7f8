"""``lmassay cot generate`` on a tiny model: what is written, what a second run draws, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from lmassay.cli import main
from lmassay.cot.load import load_task
from tiny_models import tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
#: Thresholds at which a model of random weights gives examples.
EASY = (
    "rollouts=10", "sampling.max_tokens=30", "rule.least_rollouts=5", "rule.spread=1", "rule.bin=100", "rule.deviations=0.5",
)  # fmt: skip


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out = capsys.readouterr()
    return stop.value.code, out.out, out.err


def _command(out, *more, task="atypical_length", options=EASY):
    chosen = [word for option in options for word in ("--option", option)]
    return ("cot", "generate", task, "--model", "tiny", "--prompts", "q.jsonl", "--out", out, *chosen, *more)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A model that ends soon, and questions."""
    monkeypatch.chdir(tmp_path)
    hf = tiny_hf("llama")
    tokenizer = tiny_tokenizer()
    # Every tenth token ends a reply, so that random weights give replies of many lengths.
    hf.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(9, len(tokenizer), 10)]
    hf.save_pretrained("tiny")
    tokenizer.save_pretrained("tiny")
    rows = [{"question_id": f"q{i}", "prompt": f"Start with {i}.", "options": ["Yes", "No"]} for i in range(9)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_a_data_set_is_built_carded_and_read_and_nothing_is_drawn_twice(here, capsys):
    status, out, err = _run(capsys, *_command("a"))
    assert status == 0, err
    assert "rollouts: 90" in out
    frame = pl.read_parquet("a/data.parquet")
    data = load_task("atypical_length", source=here / "a" / "data.parquet")
    assert sum(len(s) for s in data.splits.values()) == frame.height > 0
    recipe = json.loads((here / "a" / "recipe.json").read_text())
    assert recipe["settings"]["rule.spread"] == 1
    card = (here / "a" / "README.md").read_text()
    assert "## Audit" in card
    for why, n in recipe["dropped"].items():
        assert f"| {n:,} | {why} |" in card
    assert frame.height + sum(recipe["dropped"].values()) == 90

    stored = (here / "a" / "rollouts" / "rollouts.jsonl").read_bytes()
    before = (here / "a" / "data.parquet").read_bytes()
    assert _run(capsys, *_command("a"))[0] == 0
    assert (here / "a" / "rollouts" / "rollouts.jsonl").read_bytes() == stored
    assert (here / "a" / "data.parquet").read_bytes() == before

    # Another task of the same subject takes the same rollouts.
    status, out, _ = _run(
        capsys, *_command("b", "--rollouts", "a/rollouts", task="answer_entropy",
                          options=("rollouts=10", "sampling.max_tokens=30", "most=1")),
    )  # fmt: skip
    assert (here / "a" / "rollouts" / "rollouts.jsonl").read_bytes() == stored
    assert status in (0, 3)


def test_a_folder_of_another_data_set_is_refused(here, capsys):
    assert _run(capsys, *_command("a"))[0] == 0
    status, _, err = _run(capsys, *_command("a", "--seed", "1"))
    assert status == 2
    assert "error[run-folder-mismatch]: a holds a data set with seed = 0, this one has 1" in err


def test_thresholds_that_exclude_everything_leave_a_card_with_the_reasons(here, capsys):
    status, out, err = _run(capsys, *_command("a", options=(*EASY[:3], "rule.spread=1000")))
    assert (status, out) == (3, "")
    assert "error[nothing-built]: no example of atypical_length qualified (" in err.splitlines()[-1]
    assert "lengths differ too little" in (here / "a" / "README.md").read_text()
    assert not (here / "a" / "data.parquet").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--option", "rulespread=1"), "no option 'rulespread'"),
        (("--option", "rollouts=many"), "option rollouts: 'many' does not do"),
        (("--option", "rollouts"), "is not NAME=VALUE"),
        (("--prompts", "none.jsonl"), "none.jsonl cannot be read"),
        (("--thinking", "a,b,c"), "thinking format 'a,b,c'"),
    ],
)
def test_a_request_that_is_wrong_is_one_line_and_leaves_no_data(here, capsys, more, said):
    status, out, err = _run(capsys, *_command("a", *more))
    assert (status, out) == (2, "")
    lines = [line for line in err.splitlines() if not line.startswith("opening ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (here / "a" / "data.parquet").exists()


def test_another_model_may_choose_the_sentences_and_is_in_the_recipe(here, capsys):
    tiny_hf("llama", seed=5, max_position_embeddings=8192).save_pretrained("reader")
    tiny_tokenizer().save_pretrained("reader")
    options = ("rollouts=20", "sampling.max_tokens=60", "shortest=6", "keep=1", "selectors=last_m,monitor",
               "monitor_tokens=3")  # fmt: skip
    words = _command("a", "--monitor-model", "reader", task="compression", options=options)
    status, out, err = _run(capsys, *words)
    recipe = json.loads((here / "a" / "recipe.json").read_text())
    assert recipe["monitor"]["name"] == "reader"
    assert recipe["monitor"]["fingerprint"] != recipe["subject"]["fingerprint"]
    assert "| monitor | reader |" in (here / "a" / "README.md").read_text()
    assert (status, "opening reader" in err) in ((0, True), (3, True)), out
    status, _, err = _run(capsys, *_command("b", "--monitor-model", "reader"))
    assert status == 2
    assert "no monitor is asked in atypical_length" in err


@pytest.mark.slow
def test_a_killed_build_goes_on_and_ends_as_an_uninterrupted_one(here, capsys):
    command = [sys.executable, "-c", "from lmassay.cli import main; main()", *map(str, _command("killed"))]
    store = here / "killed" / "rollouts" / "rollouts.jsonl"
    child = subprocess.Popen(command, cwd=here, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (store.exists() and store.stat().st_size > 2000) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not (here / "killed" / "data.parquet").exists()
    assert _run(capsys, *_command("killed"))[0] == 0
    assert _run(capsys, *_command("whole"))[0] == 0
    for name in ("data.parquet", "recipe.json", "README.md"):
        assert (here / "killed" / name).read_bytes() == (here / "whole" / name).read_bytes()
    samples = [line for line in store.read_bytes().splitlines() if b'"number"' in line]
    assert len(samples) == 90
