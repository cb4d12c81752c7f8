"""What a run writes is explained: every score, column, count and flag."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from made import random_battery
from plain_passes import BATTERY, wide_model

from lmassay.xray.ablation import KINDS
from lmassay.xray.batteries import load_battery
from lmassay.xray.phases import LATER
from lmassay.xray.run import PRIORS, Settings, run_xray
from lmassay.xray.scores import compute_scores
from lmassay.xray.tables import labels_frame, options_frame
from lmassay.xray.task import FAMILY_GROUPS, Battery

ROOT = Path(__file__).parents[2]


def _named(page):
    """Everything in backticks on a page."""
    return set(re.findall(r"`([^`\n]+)`", (ROOT / "docs" / page).read_text()))


@pytest.fixture(scope="module")
def scored():
    return random_battery()


@pytest.fixture(scope="module")
def scores(scored):
    return compute_scores(scored, seed=0)


def test_every_score_is_explained(scores):
    assert set(scores.scores) <= _named("scores.md")


def test_every_column_is_explained(scored, scores):
    document = scores.to_dict()
    columns = {*options_frame(scored).columns, *labels_frame(scored, scores).columns, *document["tasks"][0]}
    fields = {*document, *document["counts"], *next(iter(document["scores"].values()))}
    assert columns | fields <= _named("run-folder.md")


def test_every_flag_is_explained():
    sources = "".join(path.read_text() for path in (ROOT / "src" / "lmassay" / "xray").rglob("*.py"))
    words = re.findall(r'(?:flags(?:\.add\(| \|= \{)|frozenset\(\{|flags = \{|return \()"([a-z_]+)"', sources)
    flags = set(words) - set(FAMILY_GROUPS)
    assert len(flags) >= 7
    assert flags <= _named("run-folder.md")


@pytest.fixture(scope="module")
def phases(tmp_path_factory):
    """A run of every phase."""
    model = wide_model("gpt2", dtype="float32")
    battery = Battery("few", "1", BATTERY.tasks, load_battery("core50").paraphrases[:1])
    return run_xray(lambda: model, battery, tmp_path_factory.mktemp("all") / "run", Settings(phases=("all",)))


def _fields(details):
    """Names of the tables of a phase and of their rows."""
    return {*details, *(name for rows in details.values() for row in rows for name in row)}


@pytest.mark.tiny
def test_every_score_signal_and_control_of_every_phase_is_explained(phases):
    assert set(phases.scores["scores"]) <= _named("scores.md")
    named = _named("scores.md") | _named("geometry.md")
    for row in phases.scores["evidence"]:
        assert {row["signal"], row["control"]} <= named


@pytest.mark.tiny
@pytest.mark.parametrize("name", LATER)
def test_every_column_and_detail_of_every_phase_is_explained(phases, name):
    columns = set(pl.read_parquet(phases.path / LATER[name].TABLE).columns)
    details = _fields(phases.scores["phases"][name])
    if name == "geometry":
        # Figures at a depth go by their titles.
        details -= {key for key, value in phases.scores["phases"][name]["by_depth"][0].items() if type(value) is dict}
    assert len(columns) > 8
    assert columns | details | {LATER[name].TABLE} <= _named("run-folder.md")


def test_every_figure_of_the_causal_phases_is_explained_on_their_page():
    page, scores = _named("causal-phases.md"), _named("scores.md")
    mine = {name for name in scores if name.startswith(("patching_", "ablation_"))}
    assert len(mine) == 18
    assert mine <= page


def test_every_kind_of_edit_is_explained():
    assert {"phases", "ablation", "heads", "prior"} <= _named("run-folder.md") & set(Settings().identity())
    assert {*KINDS, *PRIORS} <= _named("run-folder.md")
    assert {*KINDS, *LATER} <= _named("causal-phases.md")
