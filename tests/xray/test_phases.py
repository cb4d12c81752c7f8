"""All phases in one run: what the folder holds, what is computed again from it, and what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile

import jsonschema
import polars as pl
import pytest
from plain_passes import BATTERY, wide_model

from lmassay.cli.finished import rescored_of
from lmassay.errors import LmassayError
from lmassay.storage.bundle import content_hash, verify_bundle, write_bundle
from lmassay.storage.rescore import rescore_run
from lmassay.storage.runs import ABLATIONS, GEOMETRY, LABELS, OPTIONS, PATCHES, RUN, SCORES
from lmassay.storage.schema import schema
from lmassay.xray.batteries import load_battery
from lmassay.xray.compare import compare_runs
from lmassay.xray.phases import LATER, PHASES
from lmassay.xray.run import Settings, rescored, run_xray
from lmassay.xray.task import Battery

TABLES = {"patching": PATCHES, "ablation": ABLATIONS, "geometry": GEOMETRY}
WHOLE = Battery("few", "1", BATTERY.tasks, load_battery("core50").paraphrases[:2])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of every phase."""
    model = wide_model("gpt2", dtype="float32")
    out = tmp_path_factory.mktemp("all") / "run"
    stages = []
    result = run_xray(
        lambda: model, WHOLE, out, Settings(phases=("all",)), progress=lambda stage, *_: stages.append(stage)
    )
    assert list(dict.fromkeys(stages)) == ["scoring", "patching", "ablation", "geometry"]
    return result


@pytest.fixture
def copy(run, tmp_path):
    """The run again, to be damaged."""
    return shutil.copytree(run.path, tmp_path / "copy")


def _evidence(document):
    return {(r["signal"], r["control"]) for r in document["evidence"]}


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_phases_have_the_names_of_their_tables():
    assert {name: phase.TABLE for name, phase in LATER.items()} == TABLES
    assert PHASES == ("real", "controls", "paraphrase", "patching", "ablation", "geometry")


@pytest.mark.tiny
def test_all_phases_leave_their_tables_figures_and_rows_in_one_folder(run):
    assert {p.name for p in run.path.iterdir()} == {RUN, SCORES, OPTIONS, LABELS, *TABLES.values(), ".lock"}
    record = json.loads((run.path / RUN).read_text())
    assert record["identity"]["settings"]["phases"] == list(PHASES)
    assert list(record["tables"]) == [OPTIONS, LABELS, *TABLES.values()]
    assert {f"{name}_s" for name in TABLES} <= set(record["timings"])
    assert list(run.scores["phases"]) == list(TABLES)
    for name in TABLES:
        assert any(score.startswith(f"{name}_") for score in run.scores["scores"])
    assert {("patching_mean_flip", c) for c in ("random_label", "matched_token")} <= _evidence(run.scores)
    assert {("ablation_j", c) for c in ("random_label", "matched_token")} <= _evidence(run.scores)
    assert ("geometry_probe", "tfidf") in _evidence(run.scores)


@pytest.mark.tiny
def test_both_files_are_what_the_schemas_say(run):
    for name, file in (("run", RUN), ("scores", SCORES)):
        jsonschema.Draft202012Validator(schema(name)).validate(json.loads((run.path / file).read_text()))


@pytest.mark.tiny
def test_every_phase_comes_out_again_without_a_model(run):
    before = (run.path / SCORES).read_bytes()
    assert rescore_run(run.path, rescored) == (run.scores, None)
    assert (run.path / SCORES).read_bytes() == before


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("scores", "patching_flip", "value"), 0.9),
        (("scores", "ablation_j", "value"), 0.9),
        (("phases", "ablation", "components"), []),
        (("phases", "patching", "cells"), []),
    ],
)
def test_a_changed_figure_of_a_phase_is_named_and_put_right(copy, path, value):
    before = (copy / SCORES).read_bytes()
    document = json.loads(before)
    at = document
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    (copy / SCORES).write_text(json.dumps(document))
    assert rescore_run(copy, rescored)[1] == ".".join(path)
    assert (copy / SCORES).read_bytes() == before


@pytest.mark.tiny
@pytest.mark.parametrize("name", TABLES.values())
def test_an_altered_or_missing_table_is_refused_in_one_line_and_the_scores_left(copy, name):
    before = (copy / SCORES).read_bytes()
    table = pl.read_parquet(copy / name)
    table.reverse().write_parquet(copy / name)
    for change, said in (
        (lambda: None, f"{name} is not the table this run wrote"),
        ((copy / name).unlink, f"lacks {name}"),
    ):
        change()
        with pytest.raises(LmassayError, match=f"bad-run-folder: .*{said}") as refused:
            rescore_run(copy, rescored)
        assert "\n" not in str(refused.value)
    with pytest.raises(LmassayError, match=f"lacks {name}"):
        write_bundle(copy, copy.parent / "out.tar.gz")
    assert (copy / SCORES).read_bytes() == before


def _forged(copy, name, table):
    """Another table in the run, with every digest made to fit."""
    table.write_parquet(copy / name)
    record = json.loads((copy / RUN).read_text())
    record["tables"][name] = _digest(copy / name)
    (copy / RUN).write_text(json.dumps(record))


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (PATCHES, lambda t: t.with_columns(pl.col("logprob") + 1), "scores differ from logprob - neutral"),
        (ABLATIONS, lambda t: t.with_columns(pl.col("logprob") + 1), "scores differ from logprob - neutral"),
        (PATCHES, lambda t: t.drop("source_index"), "source_index"),
        (ABLATIONS, lambda t: t.drop("n_won"), "n_won"),
        (GEOMETRY, lambda t: t.drop("value"), "value"),
    ],
)
def test_a_table_that_is_no_table_of_its_phase_is_named_though_all_digests_hold(copy, name, change, said):
    _forged(copy, name, change(pl.read_parquet(copy / name)))
    with pytest.raises(LmassayError, match=f"bad-run-folder: .*{name}: .*{said}") as refused:
        rescore_run(copy, rescored)
    assert "\n" not in str(refused.value)


@pytest.mark.tiny
def test_a_bundle_holds_every_table_and_verifies(run, tmp_path):
    packed = tmp_path / "run.tar.gz"
    write_bundle(run.path, packed)
    with tarfile.open(packed) as archive:
        assert {*TABLES.values(), OPTIONS, LABELS, RUN, SCORES} < set(archive.getnames())
    assert verify_bundle(packed, rescored_of) == content_hash(run.path)


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (PATCHES, lambda t: t.with_columns(pl.col("score", "logprob") - pl.col("option") * 9), "comes out differently"),
        (ABLATIONS, lambda t: t.with_columns(n_won=pl.lit(1, pl.Int32)), "comes out differently"),
        (PATCHES, lambda t: t.head(5), "malformed|differently"),
        (ABLATIONS, lambda t: t.head(5), "malformed|differently"),
        (PATCHES, lambda t: t.filter(pl.col("option") == 0), "malformed"),
    ],
)
def test_a_bundle_whose_phase_does_not_come_out_of_its_table_does_not_verify(copy, name, change, said):
    _forged(copy, name, change(pl.read_parquet(copy / name)))
    write_bundle(copy, copy.parent / "run.tar.gz")
    with pytest.raises(LmassayError, match=f"does not verify: .*({said})") as refused:
        verify_bundle(copy.parent / "run.tar.gz", rescored_of)
    assert "\n" not in str(refused.value)


@pytest.mark.tiny
def test_runs_with_the_same_phases_stand_side_by_side_and_others_are_refused(run, tmp_path):
    other = wide_model("llama", dtype="float32")
    second = run_xray(lambda: other, WHOLE, tmp_path / "llama", Settings(phases=("all",)))
    table = compare_runs([run.path, second.path])
    assert table["convention"]["phases"] == list(PHASES)
    assert [cell["value"] for cell in table["scores"]["real_win"]] == [
        r.scores["scores"]["real_win"]["value"] for r in (run, second)
    ]
    without = run_xray(lambda: other, WHOLE, tmp_path / "plain", Settings())
    with pytest.raises(LmassayError, match="runs-not-comparable: .* differ in phases"):
        compare_runs([run.path, without.path])


@pytest.mark.tiny
def test_a_run_without_a_phase_has_neither_its_table_nor_its_figures(tmp_path):
    model = wide_model("gpt2", dtype="float32")
    result = run_xray(lambda: model, WHOLE, tmp_path / "run", Settings(phases=("real", "patching")))
    assert {p.name for p in result.path.iterdir()} == {RUN, SCORES, OPTIONS, LABELS, PATCHES, ".lock"}
    assert list(result.scores["phases"]) == ["patching"]
    assert not any(name.startswith(("ablation_", "geometry_")) for name in result.scores["scores"])


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"phases": ("real", "controls", "paraphrase")}, "phases"),
        ({"ablation": "zero"}, "ablation"),
        ({"heads": True}, "heads"),
        ({"prior": "clean"}, "prior"),
    ],
)
def test_a_folder_of_other_phases_or_edits_is_refused_by_name(run, changed, field):
    model = wide_model("gpt2", dtype="float32")
    with pytest.raises(LmassayError, match=rf"run-folder-mismatch.*settings\.{field}"):
        run_xray(lambda: model, WHOLE, run.path, Settings(**{"phases": PHASES, **changed}))


def test_all_is_every_phase_in_order():
    assert Settings(phases=("all",)).phases == PHASES
    assert Settings(phases=("all", "real")).identity()["phases"] == list(PHASES)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"phases": ("real", "pathing")}, "unknown phase 'pathing' — .*patching"),
        ({"phases": ("real", "ablations")}, "unknown phase 'ablations' — .*ablation"),
        ({"ablation": "means"}, "unknown ablation 'means' — .*mean"),
        ({"prior": "edit"}, "unknown prior 'edit' — .*edited"),
        ({"phases": ("patching",)}, "without the real phase"),
        ({"heads": True}, "--heads is of the ablation phase — add ablation to --phases"),
        ({"phases": ("real", "patching"), "heads": True}, "--heads is of the ablation phase"),
    ],
)
def test_what_is_no_phase_or_edit_is_refused_with_the_nearest_name(settings, said):
    with pytest.raises(LmassayError, match=f"bad-request: .*{said}"):
        Settings(**settings)
