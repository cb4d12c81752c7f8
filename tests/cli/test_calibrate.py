"""``lmassay xray calibrate``: what it prints, and the exit status of a missed goal."""

from __future__ import annotations

import json

import pytest

from lmassay.cli import main


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    out = capsys.readouterr()
    return stop.value.code, out.out, out.err


@pytest.mark.parametrize("wrong", [("--positives", "-1"), ("--workers", "0"), ("--seed", "-2")])
def test_a_wrong_number_is_refused_in_one_line(capsys, tmp_path, wrong):
    code, out, err = _run(capsys, "xray", "calibrate", "--out", tmp_path / "c", *wrong)
    assert (code, out) == (2, "")
    assert err.startswith("error[bad-request]")
    assert len(err.splitlines()) == 1


@pytest.mark.tiny
def test_it_prints_the_rates_and_a_missed_goal_is_exit_status_four(capsys, tmp_path):
    """One model without skill meets the goal; the same result marked as a flagged one misses it."""
    few = ("--positives", 0, "--negatives", 1, "--shuffled", 0, "--apart", 0, "--out", tmp_path / "c")
    code, out, _ = _run(capsys, "xray", "calibrate", *few)
    assert code == 0
    assert "untrained" in out
    assert "negatives flagged" in out
    path = tmp_path / "c" / "models" / "untrained-0000.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"survives": True, "psi_excess_p": 0.001}))
    # One of one is above .05, with a lower limit of .025: above, and no miss yet.
    code, out, _ = _run(capsys, "xray", "calibrate", *few, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["goal"]["survives: negatives flagged"]["verdict"] == "above, within limits"


@pytest.mark.tiny
def test_a_skilled_model_that_is_not_detected_is_a_missed_goal(capsys, tmp_path):
    out = tmp_path / "c"
    few = ("--positives", 0, "--negatives", 1, "--shuffled", 0, "--apart", 0, "--out", out)
    _run(capsys, "xray", "calibrate", *few)
    result = json.loads((out / "models" / "untrained-0000.json").read_text())
    undetected = result | {"kind": "logic", "held_out_accuracy": 1.0, "steps": 50}
    # The run is made to ask for the one skilled model whose result stands there already.
    (out / "models" / "logic-0000.json").write_text(json.dumps(undetected))
    record = json.loads((out / "run.json").read_text())
    record["identity"] |= {"positives": 1, "negatives": 0}
    (out / "run.json").write_text(json.dumps(record))
    code, said, _ = _run(capsys, "xray", "calibrate", "--positives", 1, "--negatives", 0, *few[4:])
    assert code == 4
    assert "missed" in said
