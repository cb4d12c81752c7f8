"""What a run writes is explained: every score, column, count and flag."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made import random_battery

from lmassay.xray.scores import compute_scores
from lmassay.xray.tables import labels_frame, options_frame
from lmassay.xray.task import FAMILY_GROUPS

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
