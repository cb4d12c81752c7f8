"""What a cot run writes is explained: every score, column, count, key and method."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from made_cot import made_data

from lmassay.cot.evaluate import evaluate
from lmassay.cot.figures import TITLES
from lmassay.cot.predictions import ABSTAINED, CHOOSING, NOT_FINITE, SCHEMA
from lmassay.methods.method import Method
from lmassay.methods.registry import BUILT_IN, load_method

DOCS = Path(__file__).parents[2] / "docs"


def _named(page):
    return set(re.findall(r"`([^`\n]+)`", (DOCS / page).read_text()))


class Letters(Method):
    id = "letters"

    def fit(self, X, y, groups, validation, seed):
        pass

    def score(self, X):
        return np.array([float(len(x.text("cot"))) for x in X])


@pytest.fixture(scope="module")
def documents():
    kinds = (("binary", ("ood_test",)), ("interventional", ("ood_test",)), ("regression", ("ood_1", "ood_2")))
    return [evaluate(made_data(kind, n=40, ood=ood), Letters).document for kind, ood in kinds]


def test_every_score_is_explained(documents):
    written = {name.partition(".")[2] for d in documents for name in d["scores"]}
    assert written == set(TITLES)
    assert written <= _named("cot-evaluation.md")


def test_every_column_count_and_key_is_explained(documents):
    keys = {*SCHEMA, ABSTAINED, CHOOSING, NOT_FINITE}
    for d in documents:
        keys |= {*d, *d["counts"]["test"]} - {"schema_version", "suite", "identity"}
    assert keys <= _named("cot-evaluation.md")


def test_every_method_is_explained_and_has_a_title():
    assert set(BUILT_IN) <= _named("cot-evaluation.md")
    assert all(load_method(name).title for name in BUILT_IN)
