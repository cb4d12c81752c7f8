"""The calibration as a whole: units, resume, the summary, and a quick version with known results."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from lmassay.errors import LmassayError
from lmassay.xray.calibrate.measured import ModelResult
from lmassay.xray.calibrate.run import (
    APART,
    BATTERIES,
    MODELS,
    NEGATIVES,
    RESULT,
    SHUFFLED,
    Counts,
    run_calibration,
    summary,
    units_of,
)
from lmassay.xray.calibrate.skills import GROUPS
from lmassay.xray.in_memory import score_battery
from lmassay.xray.run import Settings, run_xray

ROWS = ("random_label", "matched_token", "semantics_break", "prompt_swap", "expectation under no skill")


def _result(kind, index, *, p=0.5, survives=False, held_out=None, psi=-0.1):
    return ModelResult(
        kind=kind, index=index, group="both", battery_seed=0, n_tasks=168, held_out_accuracy=held_out, steps=None,
        psi_excess=0.0, psi_excess_p=p, survives=survives, rows=dict.fromkeys(ROWS, "undecided"), xray_score=0.0, psi=psi,
        psi_logic=None, psi_compute=None, real_win=0.5, final_accuracy=0.25,
    )  # fmt: skip


def test_units_hold_every_model_asked_for_once():
    counts = Counts()
    models = [(unit.kind, index) for unit in units_of(counts) for index in unit.indices]
    assert len(models) == len(set(models)) == 102 + 400 + 24 + 64
    per_kind = Counter(kind for kind, _ in models)
    assert sum(per_kind[group] for group in GROUPS) == 102
    assert all(per_kind[group] >= 20 for group in GROUPS)
    assert sum(per_kind[kind] for kind in NEGATIVES) == 400
    assert (per_kind[SHUFFLED], *(per_kind[kind] for kind in APART)) == (24, 40, 24)


def test_more_models_change_none_of_the_fewer():
    few, many = units_of(Counts(12, 60, 6, 5)), units_of(Counts())
    seeds = {(u.kind, i): (u.seed_of(i), u.battery_seed) for u in many for i in u.indices}
    for unit in few:
        for index in unit.indices:
            assert seeds[unit.kind, index] == (unit.seed_of(index), unit.battery_seed)


def test_seeds_share_no_battery():
    batteries = [{unit.battery_seed for unit in units_of(Counts(seed=seed))} for seed in (0, 1)]
    assert not batteries[0] & batteries[1]
    assert all(1 < len(mine) <= BATTERIES for mine in batteries)


@pytest.mark.parametrize(
    "wrong", [{"positives": -1}, {"seed": -1}, dict.fromkeys(("positives", "negatives", "shuffled", "apart"), 0)]
)
def test_a_calibration_of_nothing_is_refused(wrong):
    with pytest.raises(LmassayError, match="bad-request"):
        Counts(**wrong)


def test_a_model_that_never_learnt_is_no_positive_and_is_counted():
    models = [_result("both", 0, p=0.001, survives=True, held_out=0.96), _result("both", 1, p=0.9, held_out=0.5)]
    document = summary(Counts(), models)
    assert document["pooled"]["positives"]["survives"]["n"] == 1
    assert document["n_unskilled"] == 1
    assert document["goal"]["survives: positives detected"]["verdict"] == "met"


def test_models_reported_apart_are_in_no_goal():
    models = [_result("mentions", i, p=0.001, survives=True) for i in range(50)] + [_result("untrained", 0)]
    document = summary(Counts(), models)
    assert document["pooled"]["negatives"]["survives"]["n"] == 1
    assert document["kinds"]["apart"]["mentions"]["survives"]["value"] == 1.0


def test_each_figure_flags_by_its_own_rule():
    base = _result("untrained", 0)
    survived = {**base.rows, "expectation under no skill": "survives"}
    for flagged, name in (
        (replace(base, psi_excess_p=0.0499), "psi_excess_p"),
        (replace(base, survives=True), "survives"),
        (replace(base, rows=survived), "psi_row"),
        (replace(base, xray_score=1.0), "xray_score"),
        (replace(base, psi=0.01), "psi"),
    ):
        rates = summary(Counts(), [flagged])["kinds"]["negatives"]["untrained"]
        assert {figure for figure in document_figures() if rates[figure]["value"]} == {name}
    exactly = summary(Counts(), [replace(base, psi_excess_p=0.05)])["kinds"]["negatives"]["untrained"]
    assert exactly["psi_excess_p"]["value"] == 0


def document_figures():
    return summary(Counts(), [])["figures"]


@pytest.mark.tiny
def test_a_model_measured_in_memory_has_the_scores_of_a_run_folder(tmp_path, tiny_model):
    from lmassay.xray.batteries import load_battery

    model, battery, settings = tiny_model("gpt2"), load_battery("balanced:4"), Settings(seed=3)
    folder = run_xray(lambda: model, battery, tmp_path / "run", settings).scores
    found = score_battery(model, battery, settings).to_dict()
    for part in ("scores", "evidence", "families", "survives_its_controls", "tasks"):
        assert json.loads(json.dumps(found[part])) == folder[part]


@pytest.mark.tiny
def test_finished_models_are_not_made_again_and_lost_ones_are_the_same_again(tmp_path):
    counts = Counts(positives=0, negatives=6, shuffled=0, apart=1)
    first = run_calibration(counts, tmp_path)
    kept, lost = (tmp_path / MODELS / name for name in ("untrained-0000.json", "option_length-0000.json"))
    assert json.loads(lost.read_text())["kind"] == "option_length"
    marked = json.loads(kept.read_text()) | {"psi": 0.123}
    kept.write_text(json.dumps(marked))
    lost.unlink()
    # A file cut short counts as lost.
    (tmp_path / MODELS / "frequent_word-0000.json").write_text('{"kind": "frequ')
    (tmp_path / RESULT).unlink()
    again = run_calibration(counts, tmp_path)
    changed = [(a["kind"], a["index"]) for a, b in zip(first["models"], again["models"], strict=True) if a != b]
    # The marked one was taken as it stood; the lost one came out equal.
    assert changed == [("untrained", 0)]
    with pytest.raises(LmassayError, match="run-folder-mismatch"):
        run_calibration(replace(counts, seed=1), tmp_path)


@pytest.mark.tiny
@pytest.mark.slow
def test_a_quick_calibration_finds_the_skilled_and_only_them(tmp_path):
    """Five skilled models, fifty without skill: fixed seeds, fixed expectations."""
    document = run_calibration(Counts(positives=5, negatives=48, shuffled=2, apart=2), tmp_path, workers=2)
    assert document["n_unskilled"] == 0
    assert document["pooled"]["positives"]["survives"]["value"] == 1
    assert document["pooled"]["positives"]["psi_excess_p"]["value"] == 1
    assert document["pooled"]["negatives"]["survives"]["value"] == 0
    # An exact p-value flags 5 % of them by construction: two or three of fifty, give or take as many.
    assert document["pooled"]["negatives"]["psi_excess_p"]["value"] <= 0.16
    half = document["kinds"]["negatives"]["half_right"]
    # What is not held against the prompt's own controls is deceived by a preference that is right half of the time.
    assert half["xray_score"]["value"] == 1
    assert half["psi"]["value"] == 1
    assert half["survives"]["value"] == half["psi_excess_p"]["value"] == 0
