"""A whole run on a tiny model: the folder it leaves, and what interruption cannot change."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from lmassay.errors import LmassayError
from lmassay.models.open import open_model
from lmassay.storage.rescore import rescore_run
from lmassay.storage.runs import LABELS, OPTIONS, RUN, SCORES
from lmassay.xray import run as run_module
from lmassay.xray.batteries import load_battery
from lmassay.xray.run import Settings, rescored, run_xray
from lmassay.xray.task import Battery, Task
from tiny_models import tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
#: Two tasks of each family.
TASKS = tuple(task for i, task in enumerate(load_battery("heldout54").tasks) if i % 9 < 2)
SMALL = Battery("small", "1", TASKS, load_battery("core50").paraphrases[:2])


@pytest.fixture(scope="module")
def model():
    return open_model(tiny_hf("llama"), tokenizer=tiny_tokenizer())


def _digests(folder):
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (OPTIONS, LABELS, SCORES)}


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    return run_xray(lambda: model, SMALL, out, Settings())


def test_a_run_leaves_all_its_files_and_no_parts(finished):
    assert {p.name for p in finished.path.iterdir()} == {RUN, SCORES, OPTIONS, LABELS, ".lock"}
    assert json.loads((finished.path / RUN).read_text())["status"] == "done"


def test_each_score_is_stored_once(finished):
    options = pl.read_parquet(finished.path / OPTIONS)
    keys = options.select("variant", "task_id", "option", "depth_index")
    assert keys.n_unique() == keys.height
    assert set(options["variant"]) == {"real", "semantics_break", "prompt_swap", "paraphrase"}
    np.testing.assert_allclose(options["score"], options["logprob"] - options["neutral"])


def test_lengths_are_those_of_the_joint_text(finished):
    """Prompt and answer tokens of a task add up to its prompt and answer tokenised as one text."""
    tokenizer = tiny_tokenizer()
    rows = {row["task_id"]: row for row in finished.scores["tasks"]}
    assert rows
    for task in SMALL.tasks:
        joint = tokenizer(f"{task.prompt} {task.options[task.answer]}")["input_ids"]
        row = rows[task.id]
        assert row["prompt_n_tokens"] + row["answer_n_tokens"] == len(joint)
        if "boundary_shift" not in row["flags"]:
            assert row["prompt_n_tokens"] == len(tokenizer(task.prompt)["input_ids"])


def test_rescore_without_a_model_gives_the_same_scores(finished):
    document, difference = rescore_run(finished.path, rescored)
    assert difference is None
    assert document == finished.scores


def test_the_same_command_again_reads_the_finished_run(model, finished, monkeypatch):
    monkeypatch.setattr(run_module, "_score_shards", None)
    again = run_xray(lambda: model, SMALL, finished.path, Settings())
    assert again.scores == finished.scores


def test_engines_and_batch_sizes_decide_alike(model, finished, tmp_path):
    plain = run_xray(lambda: model, SMALL, tmp_path / "plain", Settings(engine="plain"))
    small = run_xray(lambda: model, SMALL, tmp_path / "small", Settings(batch_tokens=16))
    for other in (plain, small):
        a, b = (pl.read_parquet(p / OPTIONS) for p in (finished.path, other.path))
        assert (a["score"] - b["score"]).abs().max() < 1e-4
        for field in ("scores", "families", "tasks"):
            assert json.dumps(other.scores[field]) == json.dumps(finished.scores[field])


def test_task_order_and_option_order_change_no_figure(model, finished, tmp_path):
    def turned(task: Task) -> Task:
        options = task.options[::-1]
        return Task(task.id, task.family, task.prompt, options, options.index(task.options[task.answer]), task.template)

    other = Battery("small", "1", tuple(turned(t) for t in reversed(SMALL.tasks)), SMALL.paraphrases)
    result = run_xray(lambda: model, other, tmp_path / "turned", Settings())
    for name, score in finished.scores["scores"].items():
        assert result.scores["scores"][name]["value"] == pytest.approx(score["value"], abs=1e-12), name
    assert [r["verdict"] for r in result.scores["evidence"]] == [r["verdict"] for r in finished.scores["evidence"]]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        (Settings(protocol="first-token"), "settings.protocol"),
        (Settings(depths="distinct"), "settings.depths"),
        (Settings(seed=1), "settings.seed"),
    ],
)
def test_a_folder_of_another_convention_is_refused_by_name(model, finished, changed, field):
    with pytest.raises(LmassayError, match=f"run-folder-mismatch.*{field}"):
        run_xray(lambda: model, SMALL, finished.path, changed)


def test_a_folder_of_another_battery_or_model_is_refused(model, finished):
    other = Battery("small", "1", SMALL.tasks[:-1], SMALL.paraphrases)
    with pytest.raises(LmassayError, match=r"mismatch.*battery\.sha256"):
        run_xray(lambda: model, other, finished.path, Settings())
    changed = open_model(tiny_hf("llama", seed=9), tokenizer=tiny_tokenizer())
    with pytest.raises(LmassayError, match=r"mismatch.*model\.weights"):
        run_xray(lambda: changed, SMALL, finished.path, Settings())


def test_an_unwritable_folder_fails_before_the_model_is_opened(tmp_path):
    (tmp_path / "file").write_text("")

    def never():
        raise AssertionError("the model was opened")

    with pytest.raises(LmassayError, match="out-folder-unwritable"):
        run_xray(never, SMALL, tmp_path / "file" / "run", Settings())


def test_phases_not_run_are_undefined_and_never_zero(model, tmp_path):
    result = run_xray(lambda: model, SMALL, tmp_path / "bare", Settings(phases=("real",)))
    for name in ("sb_win", "swap_win", "jaccard", "xray_score", "sb_gap_p"):
        assert result.scores["scores"][name]["value"] is None
        assert result.scores["scores"][name]["status"].startswith("undefined")
    assert not result.scores["survives_its_controls"]


def test_prompts_too_long_are_refused_or_counted(model, tmp_path):
    long = Task("long", "binder_tracking", "word " * 300 + "so", ("a", "b"), 0, "long")
    battery = Battery("long", "1", (*SMALL.tasks, long))
    with pytest.raises(LmassayError, match=r"prompt-too-long: 1 of 13 .*long"):
        run_xray(lambda: model, battery, tmp_path / "error", Settings(phases=("real",)))
    result = run_xray(lambda: model, battery, tmp_path / "skip", Settings(phases=("real",), over_length="skip"))
    counts = result.scores["counts"]
    assert (counts["n_total"], counts["n_scored"], counts["n_skipped"]) == (13, 12, 1)


def test_tied_options_are_counted_and_nobody_wins(tmp_path):
    """I-33: all options equal must never mean that the first one wins."""
    hf = tiny_hf("gpt2", tie_word_embeddings=False)
    hf.lm_head.weight.data.zero_()
    flat = open_model(hf, tokenizer=tiny_tokenizer())
    result = run_xray(lambda: flat, SMALL, tmp_path / "flat", Settings())
    assert result.scores["scores"]["real_win"]["value"] == 0
    assert result.scores["scores"]["final_accuracy"]["value"] == 0
    assert result.scores["counts"]["all_tied_tasks"] == len(SMALL.tasks)


def test_non_finite_logits_fail_with_a_code_and_keep_the_folder(model, tmp_path, monkeypatch):
    bad = open_model(tiny_hf("llama"), tokenizer=tiny_tokenizer())
    bad.anatomy.norm.weight.data[0] = float("nan")
    with pytest.raises(LmassayError, match="non-finite-logits"):
        run_xray(lambda: bad, SMALL, tmp_path / "nan", Settings())
    assert json.loads((tmp_path / "nan" / RUN).read_text())["status"] == "failed"
    assert not (tmp_path / "nan" / SCORES).exists()


@pytest.mark.parametrize(
    ("raised", "status"), [(KeyboardInterrupt(), "interrupted"), (LmassayError("disk-full", "a", "b"), "failed")]
)
def test_stopped_after_the_last_shard_it_says_so_and_goes_on(model, finished, tmp_path, monkeypatch, raised, status):
    def stop(*_, **__):
        raise raised

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "compute_scores", stop)
        with pytest.raises(type(raised)):
            run_xray(lambda: model, SMALL, tmp_path / "run", Settings())
    assert json.loads((tmp_path / "run" / RUN).read_text())["status"] == status
    result = run_xray(lambda: model, SMALL, tmp_path / "run", Settings())
    assert result.resumed_shards == result.n_shards
    assert _digests(result.path) == _digests(finished.path)


SCRIPT = """
import sys, time
sys.path.insert(0, sys.argv[2])
import lmassay.models.engines as engines, lmassay.xray.plan as plan
from pathlib import Path
from test_run import SMALL
from tiny_models import tiny_hf, tiny_tokenizer
from lmassay.models.open import open_model
from lmassay.xray.run import Settings, run_xray
plan.SHARD_TOKENS = 48
score = engines.score
def slow(*args, **named):
    time.sleep(0.05)
    return score(*args, **named)
engines.score = slow
model = open_model(tiny_hf("llama"), tokenizer=tiny_tokenizer())
print("ready", flush=True)
result = run_xray(lambda: model, SMALL, Path(sys.argv[1]), Settings())
print(result.resumed_shards, result.n_shards)
"""


def _start(out):
    here = Path(__file__).parent
    code = f"import sys; sys.path.insert(0, {str(here)!r})\n{SCRIPT}"
    return subprocess.Popen([sys.executable, "-c", code, str(out), str(here.parent)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_at_any_moment_and_run_again_equals_uninterrupted(tmp_path):
    """I-89: SIGKILL at several moments; what was done is not done again, and the files end byte for byte the same."""
    whole = _start(tmp_path / "whole")
    assert whole.wait(300) == 0
    resumed = 0
    for at, delay in enumerate((0.0, 0.3, 0.9, 1.8)):
        out = tmp_path / f"killed {at}"
        victim = _start(out)
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        time.sleep(delay)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        again = _start(out)
        text, _ = again.communicate(timeout=300)
        assert again.returncode == 0
        done, n_shards = map(int, text.split()[1:])
        resumed = max(resumed, done)
        assert n_shards > 8
        assert _digests(out) == _digests(tmp_path / "whole")
    assert resumed > 2
