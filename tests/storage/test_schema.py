"""What the files of a run folder look like to another program."""

from __future__ import annotations

import copy
import json
import re

import jsonschema
import pytest

from lmassay.models.open import open_model
from lmassay.storage.runs import RUN, SCORES, claimed
from lmassay.storage.schema import NAMES, schema
from lmassay.xray.batteries import load_battery
from lmassay.xray.run import Settings, run_xray
from lmassay.xray.task import Battery
from outside_runs import outside_run
from tiny_models import tiny_hf, tiny_tokenizer


def _valid(name, document):
    jsonschema.Draft202012Validator(schema(name)).validate(document)


def _read(path, name):
    return json.loads((path / name).read_text())


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    return outside_run(tmp_path_factory.mktemp("outside") / "run")


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_are_themselves_valid(name):
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_an_unknown_schema_is_named():
    with pytest.raises(KeyError, match="no schema 'patches'"):
        schema("patches")


@pytest.mark.parametrize("depths", ["paper", "distinct"])
def test_a_run_made_of_outside_scores_is_valid(tmp_path, depths):
    run = outside_run(tmp_path / "run", depths=depths)
    _valid("run", _read(run, RUN))
    _valid("scores", _read(run, SCORES))


@pytest.mark.tiny
@pytest.mark.parametrize("phases", [("real",), ("real", "controls", "paraphrase")])
def test_a_run_on_a_model_is_valid(tmp_path, phases):
    whole = load_battery("heldout54")
    battery = Battery("few", "1", whole.tasks[::9], load_battery("core50").paraphrases[:1])
    model = open_model(tiny_hf("gpt2"), tokenizer=tiny_tokenizer())
    run_xray(lambda: model, battery, tmp_path / "run", Settings(phases=phases))
    _valid("run", _read(tmp_path / "run", RUN))
    _valid("scores", _read(tmp_path / "run", SCORES))


def test_a_run_that_has_only_begun_is_valid(tmp_path, outside):
    with claimed(tmp_path) as folder:
        folder.bind(_read(outside, RUN)["identity"], command="", model=_read(outside, RUN)["model"])
    _valid("run", _read(tmp_path, RUN))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["scores"]["psi"].update(value=None), "does not match '^undefined: '"),
        (lambda d: d["scores"]["psi"].pop("n"), "'n' is a required property"),
        (lambda d: d["evidence"][0].update(verdict="proven"), "'proven' does not match"),
        (lambda d: d["evidence"][0].update(p=1.5), "1.5 is greater than the maximum"),
        (lambda d: d["counts"].pop("n_error"), "'n_error' is a required property"),
        (lambda d: d["tasks"][0].update({"class": "known"}), "'known' is not one of"),
        (lambda d: d.update(extra=1), "Additional properties are not allowed"),
    ],
)
def test_a_document_that_breaks_the_contract_is_refused(outside, change, said):
    document = copy.deepcopy(_read(outside, SCORES))
    change(document)
    with pytest.raises(jsonschema.ValidationError, match=re.escape(said)):
        _valid("scores", document)


def test_a_done_run_without_the_digests_of_its_tables_is_refused(outside):
    record = _read(outside, RUN)
    del record["tables"]
    with pytest.raises(jsonschema.ValidationError, match="'tables' is a required property"):
        _valid("run", record)
