"""The command as a process: its exit status, its one line on standard error, how soon it answers."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmassay import __version__
from lmassay.cli import main
from outside_runs import outside_run

TESTS = Path(__file__).parents[1]
MAIN = "from lmassay.cli import main; main()"
#: A run on a tiny model that waits, where told to, so that it can be stopped in the middle.
SLOW = f"""
import os, sys, time
sys.path[:0] = [{str(TESTS)!r}]
import lmassay.models.engines as engines, lmassay.models.open as opening, lmassay.xray.plan as plan
from tiny_models import tiny_hf, tiny_tokenizer
plan.SHARD_TOKENS = 48
score, open_model = engines.score, opening.open_model
def slow(*args, **named):
    time.sleep(float(os.environ.get("WAIT", 0)))
    return score(*args, **named)
engines.score = slow
opening.open_model = lambda *_, **__: open_model(tiny_hf("gpt2"), tokenizer=tiny_tokenizer())
from lmassay.cli import main
main()
"""


def _process(*arguments, code=MAIN, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


@pytest.fixture
def run(tmp_path):
    return outside_run(tmp_path / "run")


def test_help_answers_in_under_half_a_second():
    """Processor time of the quickest of five, so that a busy machine is no fault of ours."""

    def once():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = _process("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0
        assert all(
            command in done.stdout for command in ("xray", "models", "show", "rescore", "bundle", "cite", "demo")
        )
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < 0.5


def test_version():
    done = _process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lmassay {__version__}\n", "")


def test_an_error_is_one_line_on_standard_error_with_its_code_and_exit_status_two():
    done = _process("show", "nowhere\n[red]")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(r"error[bad-run-folder]: nowhere\n[red] is no readable run")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_debug_shows_the_traceback_wherever_it_stands(place):
    arguments = ["show", "nowhere"]
    arguments.insert(place, "--debug")
    done = _process(*arguments)
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "LmassayError: bad-run-folder" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("shwo", "x"), "no command 'shwo' — did you mean show?"),
        (("xray", "rnu"), "no command 'rnu' — did you mean run?"),
        (("models", "zzzz"), "known: check, fit-lens, list"),
        (("show",), "Missing argument"),
        (("rescore", "x", "--jsn"), "--jsn"),
    ],
)
def test_a_word_that_is_not_known_gets_the_nearest_one(arguments, said):
    done = _process(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error[bad-request]: ")
    assert said in done.stderr


def test_a_fault_of_ours_is_one_line_that_names_debug(capsys, monkeypatch, run):
    def broken(*_):
        raise RuntimeError("line one\nline two")

    monkeypatch.setattr("lmassay.storage.runs.read_scores", broken)
    with pytest.raises(SystemExit) as stop:
        main(["show", str(run)])
    error = capsys.readouterr().err
    assert stop.value.code == 3
    assert error == "error: RuntimeError: line one line two — a fault of lmassay; --debug shows where\n"
    with pytest.raises(RuntimeError):
        main(["--debug", "show", str(run)])


def test_nothing_but_json_is_printed_as_json(run):
    for command in ("show", "rescore"):
        done = _process(command, run, "--json", FORCE_COLOR="1")
        assert json.loads(done.stdout) == json.loads((run / "scores.json").read_text())
        assert done.stderr == ""


def test_output_into_a_file_has_no_escape_codes(run):
    done = _process("show", run, FORCE_COLOR="1", TERM="xterm-256color")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


def test_rescore_says_that_all_is_as_before_or_what_was_not(run):
    done = _process("rescore", run)
    assert done.returncode == 0
    assert "all scores are as before" in done.stdout
    document = json.loads((run / "scores.json").read_text())
    document["scores"]["psi"]["value"] = 0.5
    (run / "scores.json").write_text(json.dumps(document))
    done = _process("rescore", run, "--json")
    assert done.returncode == 4
    assert done.stderr == "scores.json was rewritten: scores.psi.value differed\n"
    assert _process("rescore", run).returncode == 0


def test_a_bundle_of_another_machine_verifies_and_a_changed_one_is_a_finding(run, tmp_path):
    packed = tmp_path / "run.tar.gz"
    assert _process("bundle", run, "-o", packed).returncode == 0
    done = _process("bundle", "--verify", packed)
    assert done.returncode == 0
    assert "hashes hold and all scores come out again" in done.stdout
    packed.write_bytes(packed.read_bytes()[:500])
    done = _process("bundle", "--verify", packed)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)


def test_a_bundle_that_cannot_be_written_is_exit_status_three(run, tmp_path):
    done = _process("bundle", run, "-o", tmp_path / "nowhere" / "run.tar.gz")
    assert done.returncode == 3
    assert done.stderr.startswith("error[disk-full]: could not write")


def test_a_reader_that_has_seen_enough_is_no_error(run):
    shown = subprocess.Popen(
        [sys.executable, "-c", MAIN, "show", str(run), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert shown.stdout is not None
    assert shown.stderr is not None
    shown.stdout.close()
    error = shown.stderr.read()
    shown.wait(60)
    shown.stderr.close()
    assert error == b""


@pytest.mark.tiny
@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_is_one_line_and_exit_status_three_and_the_same_command_goes_on(tmp_path):
    out, battery = tmp_path / "run", tmp_path / "sums.jsonl"
    rows = [
        {
            "id": f"t{i}",
            "family": "sums",
            "prompt": f"{i} plus 1 equals",
            "options": [str(i + 1), str(i + 2)],
            "answer": 0,
        }
        for i in range(12)
    ]
    battery.write_text("\n".join(map(json.dumps, rows)))
    arguments = ["xray", "run", "tiny", "--battery", str(battery), "--phases", "real", "--out", str(out)]
    command = [sys.executable, "-c", SLOW, *arguments]
    waiting = {**os.environ, "WAIT": "0.5"}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=waiting)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and len(list(out.glob("parts/*.parquet"))) < 2:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 3
    assert stdout == ""
    lines = [line for line in stderr.splitlines() if line and not line.startswith(("opening", "scoring"))]
    assert lines == ["error[interrupted]: stopped — run the same command again to go on where it stopped"]
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    again = _process(*arguments, code=SLOW)
    assert again.returncode == 0, again.stderr
    assert "units were already done" in again.stderr
    assert json.loads((out / "run.json").read_text())["status"] == "done"
