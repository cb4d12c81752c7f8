"""Patterns over runs: ranking, trees, conjectures and confounds against plain recomputations."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from lmassay.errors import LmassayError
from lmassay.storage.runs import SCORES
from lmassay.xray.batteries import load_battery
from lmassay.xray.compare import compare_runs
from lmassay.xray.conjectures import ACCURATE, OBSERVED, SCALE, WEAKENED
from lmassay.xray.features import FEATURES, rows_of
from lmassay.xray.finished import read_finished
from lmassay.xray.patterns import confound, patterns_over
from lmassay.xray.tree import TREES, fit
from made_runs import MODELS, changed, made_run, rewrite_scores

BATTERIES = ("core50", "heldout54")
FROM_WINS = {"n_real_win_layers", "stability_bonus", "j_real", "j_rl", "j_mt", "j_sb", "final_correct"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [made_run(folder, model, battery) for battery in BATTERIES for model in MODELS]


@pytest.fixture(scope="module")
def runs(folders):
    return [read_finished(folder) for folder in folders]


@pytest.fixture(scope="module")
def patterns(runs):
    return patterns_over(runs)


@pytest.fixture
def copied(folders, tmp_path):
    """The runs in a folder of their own, to be changed."""
    return [shutil.copytree(folder, tmp_path / folder.name) for folder in folders]


def _edit_scores(run, change):
    document = json.loads((run / SCORES).read_text())
    change(document)
    rewrite_scores(run, document)


def _conjecture(patterns, name):
    return next(c for c in patterns["conjectures"] if c["name"] == name)


# Rows


def test_each_model_and_task_is_one_row(patterns):
    assert patterns["rows"]["training"]["n"] == 150
    assert patterns["rows"]["held_out"]["n"] == 162
    assert patterns["rows"]["held_out"]["battery"] == "heldout54"


def test_a_task_is_positive_where_the_answer_wins_at_more_depths_than_either_control(runs):
    rows = rows_of(runs)
    expected = [
        real > max(random, matched)
        for real, random, matched in zip(*(rows.columns[name] for name in ("j_real", "j_rl", "j_mt")), strict=True)
    ]
    assert rows.target.tolist() == expected


def test_n_blocks_is_the_run_s(runs):
    rows = rows_of(runs)
    assert sorted(set(rows.columns["n_blocks"])) == [4, 6, 9]


def test_the_features_are_those_of_the_protocol_and_the_ones_computed_from_wins_are_marked():
    assert {name for name, wins in FEATURES.items() if wins} == FROM_WINS
    assert set(TREES["without_wins"]) == {"family", "answer_n_tokens", "prompt_n_tokens", "n_blocks"}


def test_order_of_runs_and_of_tasks_changes_nothing(runs, patterns, copied):
    for folder in copied:
        _edit_scores(folder, lambda d: d["tasks"].reverse())
    again = patterns_over([read_finished(folder) for folder in reversed(copied)])
    for part in ("mutual_information", "trees", "conjectures"):
        assert again[part] == patterns[part]


def test_a_model_measured_twice_on_a_battery_counts_once(runs, patterns):
    again = patterns_over([*runs, runs[1]])
    assert again["rows"] == patterns["rows"]
    assert again["trees"] == patterns["trees"]
    assert any("the same model on core50" in notice for notice in again["notices"])


# Mutual information


def _plain_bins(name, values):
    """Quartile bins by counting edges, value by value."""
    if name == "family" or len(set(values)) <= 4:
        return [str(v) for v in values]
    edges = sorted(set(np.quantile(np.array(values, float), [0.25, 0.5, 0.75])))
    return [sum(float(v) > edge for edge in edges) for v in values]


def test_plug_in_is_scikit_learn_s_on_the_bins(runs, patterns):
    rows = rows_of([run for run in runs if run.battery == "core50"])
    ranking = patterns["mutual_information"]["training"]
    assert {row["feature"] for row in ranking} == set(FEATURES)
    for row in ranking:
        bins = _plain_bins(row["feature"], rows.columns[row["feature"]])
        assert row["plug_in"] == pytest.approx(mutual_info_score(bins, rows.target), abs=1e-12)
        assert row["n_bins"] == len(set(bins))
        assert row["n"] == 150


def test_features_are_ranked_by_the_plug_in(patterns):
    for ranking in patterns["mutual_information"].values():
        assert all(a["plug_in"] >= b["plug_in"] for a, b in pairwise(ranking))


def test_each_figure_stands_between_its_bounds_and_its_null_is_near_the_bias(patterns):
    for row in patterns["mutual_information"]["training"]:
        assert row["low"] <= row["corrected"] <= row["high"]
        assert row["null_mean"] == pytest.approx((row["n_bins"] - 1) / 300, abs=2.5e-3)
        assert row["corrected"] < row["plug_in"]


def test_what_makes_psi_is_above_its_null_and_what_has_no_part_in_it_is_not(patterns):
    p = {row["feature"]: row["p"] for row in patterns["mutual_information"]["training"]}
    assert p["j_real"] < 1e-3
    assert p["j_sb"] > 0.01


# Trees


def _walk(nodes, row):
    node = nodes[0]
    while node["feature"] is not None:
        name, _, level = node["feature"].partition("=")
        value = float(row[name] == level) if level else float(row[name])
        node = nodes[node["left"] if np.float32(value) <= node["threshold"] else node["right"]]
    return node["answer"] == "PSI > 0"


@pytest.mark.parametrize("name", list(TREES))
@pytest.mark.parametrize("which", ["training", "held_out"])
def test_accuracy_is_that_of_walking_the_printed_nodes(runs, patterns, name, which):
    tree = patterns["trees"][name]
    battery = {"training": "core50", "held_out": "heldout54"}[which]
    right = total = positive = 0
    for run in runs:
        if run.battery != battery:
            continue
        for task in run.tasks:
            truth = task["j_real"] > max(task["j_rl"], task["j_mt"])
            right += _walk(tree["nodes"], task | {"n_blocks": run.n_blocks}) == truth
            positive += truth
            total += 1
    assert tree[which]["accuracy"]["n"] == total
    assert tree[which]["accuracy"]["value"] == pytest.approx(right / total)
    assert tree[which]["majority"]["value"] == pytest.approx(max(positive, total - positive) / total)
    difference = tree[which]["accuracy"]["value"] - tree[which]["majority"]["value"]
    assert tree[which]["above_majority"]["value"] == pytest.approx(difference)


@pytest.mark.parametrize("name", list(TREES))
def test_a_tree_is_three_levels_deep_and_reads_only_its_features(patterns, name):
    tree = patterns["trees"][name]
    levels = {line.index("|---") // 4 for line in tree["text"].splitlines()}
    assert max(levels) == 3
    split = {node["feature"].partition("=")[0] for node in tree["nodes"] if node["feature"]}
    assert split <= set(TREES[name])
    assert tree["nodes"][0]["n"] == 150
    assert not (name == "without_wins" and split & FROM_WINS)


def test_a_family_of_the_held_out_battery_alone_is_no_column(runs):
    rows = rows_of([run for run in runs if run.battery == "core50"])
    fitted = fit(rows, TREES["without_wins"])
    assert "family=binder_tracking" in fitted.names
    assert not any("logical_constraint" in name for name in fitted.names)


# Conjectures


def _set_family(run, family, value):
    _edit_scores(run, lambda d: d["families"][family].update(value=value))


@pytest.mark.parametrize(("values", "verdict"), [((-0.1, 0.0, 0.2), OBSERVED), ((-0.1, -0.1, 0.2), WEAKENED), ((0.3, 0.0, 0.2), WEAKENED)])  # fmt: skip
def test_scale_is_observed_only_where_psi_rises_at_every_step(copied, values, verdict):
    for folder, value in zip(copied[3:], values, strict=True):
        _set_family(folder, "binder_tracking", value)
    found = _conjecture(patterns_over([read_finished(folder) for folder in copied]), "C_scale_binder")
    assert found["verdict"] == verdict
    assert found["chance"] == pytest.approx(1 / 6)
    assert "1 time in 6" in found["chance_of"]


def test_models_are_ordered_by_parameters_and_not_by_their_place_on_the_line(copied):
    for folder, value in zip(copied[3:], (-0.1, 0.0, 0.2), strict=True):
        _set_family(folder, "binder_tracking", value)
    runs = [read_finished(folder) for folder in (copied[5], copied[3], copied[4])]
    assert _conjecture(patterns_over(runs), "C_scale_binder")["verdict"] == OBSERVED


def test_two_models_of_one_size_leave_scale_undefined(copied):
    changed(copied[4], lambda r: r["model"].update(n_parameters=1_000_000))
    found = patterns_over([read_finished(folder) for folder in copied])
    for name in SCALE:
        conjecture = _conjecture(found, name)
        assert conjecture["verdict"] == "undefined: middle and small have the same number of parameters"
        assert conjecture["chance"] is None


def test_a_family_that_cannot_be_decided_leaves_its_scale_undefined(copied):
    _edit_scores(
        copied[3],
        lambda d: d["families"]["proof_closure"].update(value=None, status="undefined: shared first token"),
    )
    found = patterns_over([read_finished(folder) for folder in copied])
    assert _conjecture(found, "C_scale_proof")["verdict"] == "undefined: small: shared first token"
    assert _conjecture(found, "C2")["verdict"] == "undefined: shared first token"
    assert not _conjecture(found, "C_scale_binder")["verdict"].startswith("undefined")


def test_the_gap_is_the_mean_over_families_of_the_mean_over_models(runs, patterns):
    held = [run for run in runs if run.battery == "heldout54"]
    means = {
        family: np.mean([task["psi"] for run in held for task in run.tasks if task["family"] == family])
        for family in load_battery("heldout54").families
    }
    compute = ("arithmetic_transform", "algebra_simplification")
    gap = np.mean([v for f, v in means.items() if f not in compute]) - np.mean([means[f] for f in compute])
    found = _conjecture(patterns, "C2")
    assert found["value"] == pytest.approx(gap)
    assert found["verdict"] == (OBSERVED if gap > 0 else WEAKENED)
    assert found["low"] < gap < found["high"]
    assert found["n"] == 162


def test_the_tree_s_conjecture_turns_on_its_held_out_accuracy(patterns):
    found, accuracy = _conjecture(patterns, "C_tree"), patterns["trees"]["all"]["held_out"]["accuracy"]
    assert (found["value"], found["low"], found["high"]) == (accuracy["value"], accuracy["low"], accuracy["high"])
    assert found["verdict"] == (OBSERVED if accuracy["value"] >= ACCURATE else WEAKENED)
    assert found["chance"] < 0.05


def test_the_leader_leads_only_where_it_beats_every_other_feature(patterns):
    ranking = {row["feature"]: row["plug_in"] for row in patterns["mutual_information"]["held_out"]}
    mine = ranking.pop("n_real_win_layers")
    found = _conjecture(patterns, "C1")
    assert found["verdict"] == (OBSERVED if mine > max(ranking.values()) else WEAKENED)
    assert found["chance"] == pytest.approx(1 / 11)


def test_with_one_model_the_leader_is_another_feature_under_its_name(runs):
    found = _conjecture(patterns_over([run for run in runs if run.model == "large"]), "C1")
    assert found["verdict"] == "undefined: with one number of blocks j_real is the same feature"


# Confounds


def test_the_dominant_confound_is_the_control_furthest_above_the_real_label(runs):
    for run in runs:
        gaps = {r["control"]: r["difference"] for r in run.document["evidence"] if r["signal"] == "real_win"}
        found = confound(run)
        if min(gaps.values()) < 0:
            assert found["controls"] == [min(gaps, key=gaps.get)]
            assert found["difference"] == min(gaps.values())
        else:
            assert found["status"].startswith("none: ")


def _gaps(run, **gaps):
    def change(document):
        for row in document["evidence"]:
            row["difference"] = gaps.get(row["control"], 0.1)

    _edit_scores(run, change)
    return confound(read_finished(run))


def test_controls_that_are_level_are_both_named(copied):
    found = _gaps(copied[0], random_label=-0.16, matched_token=-0.16, semantics_break=-0.04)
    assert found["controls"] == ["random_label", "matched_token"]
    assert _gaps(copied[0], prompt_swap=-0.2)["controls"] == ["prompt_swap"]


def test_a_level_control_is_no_confound(copied):
    assert _gaps(copied[0], random_label=0.0)["status"].startswith("none: ")


# What is not there


def test_without_held_out_runs_what_needs_them_is_undefined(runs):
    found = patterns_over([run for run in runs if run.battery == "core50"])
    assert all(c["verdict"].startswith("undefined: ") for c in found["conjectures"])
    assert found["trees"]["all"]["held_out"]["accuracy"]["status"] == "undefined: no held-out run"
    assert found["trees"]["all"]["training"]["accuracy"]["value"] > 0.9
    assert {row["status"] for row in found["mutual_information"]["held_out"]} == {"undefined: no row"}


def test_without_training_runs_there_is_no_tree(runs):
    found = patterns_over([run for run in runs if run.battery == "heldout54"])
    assert found["trees"]["all"]["status"] == "undefined: no row"
    assert _conjecture(found, "C_tree")["verdict"] == "undefined: no row"
    assert _conjecture(found, "C2")["value"] is not None


def test_a_phase_not_run_is_a_named_status_and_the_feature_is_left_out(tmp_path):
    made = [
        made_run(tmp_path, model, battery, variants=("real",)) for battery in BATTERIES for model in ("small", "large")
    ]
    found = patterns_over([read_finished(run) for run in made])
    row = next(r for r in found["mutual_information"]["training"] if r["feature"] == "j_sb")
    assert row["plug_in"] is None
    assert row["status"] == "undefined: no row has a value"
    assert found["trees"]["all"]["left_out"] == {"j_sb": "100 of 100 rows have no value"}
    assert "j_sb" not in found["trees"]["all"]["features"]
    assert "j_sb: 100 of 100 rows have no value" in found["notices"]
    assert found["confounds"][0]["not_measured"] == ["semantics_break", "prompt_swap"]


@pytest.mark.parametrize("above", [True, False])
def test_a_constant_target_leaves_tree_and_information_undefined(copied, above):
    for folder in copied:
        _edit_scores(folder, lambda d: [task.update(psi=0.5 if above else 0.0) for task in d["tasks"]])
    found = patterns_over([read_finished(folder) for folder in copied])
    status = f"undefined: PSI is above zero in {'all' if above else 'none of the'} rows"
    assert found["trees"]["all"]["status"] == status
    assert found["trees"]["all"]["training"]["accuracy"]["value"] is None
    assert {row["status"] for row in found["mutual_information"]["training"]} == {status}
    assert _conjecture(found, "C_tree")["verdict"] == status
    assert _conjecture(found, "C1")["verdict"] == status


def test_unknown_parameters_and_blocks_are_said(copied):
    for folder in copied:
        changed(folder, lambda r: r["model"].update(n_parameters=None, n_blocks=None))
    found = patterns_over([read_finished(folder) for folder in copied])
    assert _conjecture(found, "C_scale_binder")["verdict"] == "undefined: parameters of small are not known"
    assert "n_blocks" in found["trees"]["without_wins"]["left_out"]


# Comparing


def test_the_two_batteries_may_stand_side_by_side(folders):
    comparison = compare_runs(folders)
    assert [run["battery"] for run in comparison["runs"]] == ["core50"] * 3 + ["heldout54"] * 3
    assert set(comparison["convention"]["battery"]) == set(BATTERIES)
    json.dumps(comparison, allow_nan=False)


def test_a_third_battery_may_not(copied):
    changed(copied[1], lambda r: r["identity"]["battery"].update(name="balanced:40", sha256="0" * 64))
    for others in ([copied[0]], [copied[3]]):
        with pytest.raises(
            LmassayError, match=r"differ in battery: .* and balanced:40 — .* only core50 with heldout54"
        ):
            compare_runs([*others, copied[1]])


def test_two_contents_of_one_battery_s_name_are_refused_even_behind_the_other_battery(copied):
    changed(copied[4], lambda r: r["identity"]["battery"].update(sha256="0" * 64))
    with pytest.raises(LmassayError, match="differ in battery: heldout54 and heldout54"):
        compare_runs([copied[0], copied[3], copied[4]])


@pytest.mark.parametrize(("part", "field"), [("settings", "protocol"), ("convention", "dtype")])
def test_the_other_battery_does_not_excuse_another_convention(copied, part, field):
    changed(copied[3], lambda r: r["identity"][part].update({field: "other"}))
    with pytest.raises(LmassayError, match=f"differ in {field}"):
        compare_runs([copied[0], copied[3]])


def test_an_unfinished_run_is_one_line(copied):
    changed(copied[3], lambda r: r.update(status="interrupted"))
    with pytest.raises(LmassayError, match="bad-run-folder: .* the run is interrupted"):
        compare_runs([copied[0], copied[3]])
