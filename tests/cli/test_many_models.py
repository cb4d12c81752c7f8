"""`lmassay xray run` with several models: each a run of its own, the same as alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lmassay.cli import main
from lmassay.storage.runs import read_scores

sys.path.insert(0, str(Path(__file__).parent.parent / "cot"))
from made_extraction import write_reader

pytestmark = pytest.mark.tiny


@pytest.fixture
def command(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main(["xray", "run", *map(str, words)])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return run


def test_each_model_is_a_run_of_its_own_and_equals_the_run_alone(command, tmp_path):
    one, other = (write_reader(tmp_path / name, name) for name in ("llama", "gpt2"))
    rest = ("--battery", "balanced:4", "--phases", "real,controls")
    status, out, _ = command(one, other, *rest, "--out", tmp_path / "both", "--json")
    assert status == 0
    together = json.loads(out)
    assert len(list((tmp_path / "both").iterdir())) == 2
    for model, scores in zip((one, other), together, strict=True):
        assert command(model, *rest, "--out", tmp_path / f"alone-{model.name}")[0] == 0
        assert read_scores(tmp_path / f"alone-{model.name}")["scores"] == scores["scores"]
    status, out, _ = command(one, other, *rest, "--out", tmp_path / "both")
    assert status == 0
    assert out.count("run folder:") == 2


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("gpt2", "--executor", "slurm"), "slurm"),
        (("gpt2", "--workers", "2"), "--workers is of a Ray"),
        (("a/model", "b/model"), "share a run folder"),
    ],
)
def test_a_wrong_request_is_one_line_before_a_model_is_opened(command, more, named):
    status, _, err = command(*more)
    assert status == 2
    assert named in err
