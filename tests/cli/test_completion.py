"""Shell completion, asked as bash and zsh ask: by the environment, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import get_args

import pytest
import typer

from lmassay.cli import app, completion
from lmassay.storage.fetch import BUNDLED

#: The entry point under the name that a shell knows it by; the modules it loaded are written to the standard error.
PROGRAM = "import sys; sys.argv[0] = 'lmassay'; from lmassay.cli import main; main()"
WATCHED = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
"""


def _ask(environment, cwd, program=PROGRAM):
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )


def _bash(line, cwd, program=PROGRAM):
    """What bash would offer at the end of the line."""
    words = line.split(" ")
    asked = {"_LMASSAY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return _ask(asked, cwd, program).stdout.split()


def _zsh(line, cwd):
    asked = {"_LMASSAY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    return _ask(asked, cwd).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two runs in runs/, one here, and folders that are none."""
    path = tmp_path_factory.mktemp("here")
    for name in ("runs/first", "runs/second", "mine"):
        (path / name).mkdir(parents=True)
        (path / name / "run.json").write_text("{}")
    (path / "runs" / "notes").mkdir()
    (path / "data").mkdir()
    return path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("lmassay xr", ["xray"]),
        ("lmassay xray calib", ["calibrate"]),
        ("lmassay xray run smol", ["smollm2-135m"]),
        ("lmassay xray run smollm2-135m --prot", ["--protocol"]),
        ("lmassay xray run smollm2-135m --protocol first", ["first-token", "first-distinct-token"]),
        ("lmassay xray run smollm2-135m --battery ", ["core50", "heldout54", "balanced:"]),
        ("lmassay xray run smollm2-135m --phases real,pat", ["real,patching"]),
        ("lmassay cot run author", ["authority_hint"]),
        ("lmassay cot run authority_hint --method tf", ["tfidf", "tfidf_all"]),
        ("lmassay cot run authority_hint --method mon", ["monitor"]),
        ("lmassay cot analyse ", ["answer_entropy", "compression"]),
        ("lmassay cot activations user_preference --model gem", ["gemma3-270m"]),
        ("lmassay cot activations user_preference --over-length le", ["left-truncate"]),
        ("lmassay xray run smollm2-135m --over-length le", []),
        ("lmassay show ru", ["runs/first", "runs/second"]),
        ("lmassay show ./runs/s", ["./runs/second"]),
        ("lmassay xray compare runs/first m", ["mine"]),
        # Nothing of ours begins so: the shell completes a file.
        ("lmassay xray run ./models/", []),
        ("lmassay show runs/notes/", []),
    ],
)
def test_bash_is_offered_what_fits(line, offered, folder):
    assert _bash(line, folder) == offered


def test_zsh_is_offered_values_with_what_they_are(folder):
    said = _zsh("lmassay cot show atypical_l", folder)
    assert re.search(r'"atypical_length":".*…"', said)
    assert "atypical_answer" not in said
    assert said.count("\n") == 1


def test_zsh_is_handed_over_to_files_where_nothing_fits(folder):
    assert _zsh("lmassay xray run ./models/", folder).strip() == "_files"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_a_shell_reads_calls_back_by_the_same_name(shell, folder):
    script = _ask({"_LMASSAY_COMPLETE": f"source_{shell}"}, folder).stdout
    assert f"_LMASSAY_COMPLETE=complete_{shell}" in script


def test_installing_writes_the_script_and_tells_the_shell_to_read_it(tmp_path):
    asked = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    program = PROGRAM.replace("main()", "main(['--install-completion', 'bash'])")
    assert "installed" in _ask(asked, tmp_path, program).stdout
    assert "_LMASSAY_COMPLETE=complete_bash" in (tmp_path / ".bash_completions" / "lmassay.sh").read_text()
    assert ".bash_completions/lmassay.sh" in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize(
    "line", ["lmassay xray run ", "lmassay xray run x --battery ", "lmassay cot run ", "lmassay cot run x --method "]
)
def test_a_key_press_loads_no_model_library(line, folder):
    words = line.split(" ")
    asked = {"_LMASSAY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    loaded = set(_ask(asked, folder, WATCHED + PROGRAM).stderr.split())
    assert "lmassay.cli" in loaded
    assert not loaded & {"torch", "transformers", "polars", "sklearn", "scipy", "altair"}


def test_a_broken_package_offers_nothing_and_says_nothing():
    def broken(incomplete):
        raise RuntimeError("someone else's fault")

    assert completion._complete(broken)(None, "") == []


def test_a_folder_of_very_many_entries_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(completion, "ENTRIES", 3)
    for i in range(6):
        (tmp_path / "runs" / f"r{i}").mkdir(parents=True)
        (tmp_path / "runs" / f"r{i}" / "run.json").write_text("{}")
    assert len(completion.run_folders("runs/")) == 3


def _parameters(command, path=()):
    for name, child in getattr(command, "commands", {}).items():
        yield from _parameters(child, (*path, name))
    for parameter in command.params:
        yield command.name, parameter.name


def test_every_offer_is_of_a_parameter_that_some_command_has():
    known = set(_parameters(typer.main.get_command(app)))
    for key in completion.OFFERS:
        command, _, name = key.rpartition(".")
        assert any(n == name and command in ("", c) for c, n in known), key


def test_fixed_values_are_those_the_program_takes():
    from lmassay.cot.build.registry import BUILDERS
    from lmassay.cot.load import VALIDATIONS
    from lmassay.cot.task import LAYOUTS, REGIMES
    from lmassay.xray import ablation, batteries, options, phases, run

    taken = {
        "protocol": get_args(options.Protocol),
        "engine": run.ENGINES,
        "depths": run.DEPTHS,
        "over_length": run.OVER_LENGTH,
        "ablation": ablation.KINDS,
        "prior": run.PRIORS,
        "layout": LAYOUTS,
        "regime": REGIMES,
        "validation": VALIDATIONS,
    }
    for name, values in taken.items():
        assert {o.value for o in completion.OFFERS[name]("")} == set(values), name
    assert [o.value for o in completion.batteries("")] == [n.removesuffix("N") for n in batteries.battery_names()]
    assert set(completion.PHASES) == {*phases.PHASES, phases.ALL}
    assert {o.value for o in completion.OFFERS["analyse.task"]("")} <= set(BUILDERS)
    assert [o.value for o in completion.models("")] == list(BUNDLED)
