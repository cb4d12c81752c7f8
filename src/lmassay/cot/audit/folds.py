"""Features learnt from the other questions of a split: categories by their rate, words by a linear classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay import seeds
from lmassay.cot.audit.features import Feature, Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmassay.cot.audit.inputs import Audited

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FOLDS = 5
#: Under this many questions nothing is learnt.
FEWEST = 10
#: Rows of a split that a classifier is fitted on at most; drawn by hash.
MOST_ROWS = 4000
#: A category with this many values or fewer is looked at value by value.
MOST_LEVELS = 60


def folds_of(groups: Ints, seed: int) -> Ints:
    """(n,) the fold of each row: whole questions, dealt out in the order of a hash."""
    names, code = np.unique(groups, return_inverse=True)
    order = sorted(range(len(names)), key=lambda i: seeds.digest(seed, str(names[i]), "audit folds"))
    dealt = np.empty(len(names), np.int64)
    dealt[order] = np.arange(len(names)) % FOLDS
    return dealt[code]


def by_category(
    data: Audited, name: str, seen: Seen, family: str, values: Sequence[str | None], seed: int
) -> Feature | None:
    """Each row's share of positives among the rows of other questions that have the same value.

    None where there are too many values, or fewer than two.
    """
    levels = sorted({v for v in values if v is not None})
    if not 2 <= len(levels) <= MOST_LEVELS:
        return None
    at = {v: i for i, v in enumerate(levels)}
    code = np.array([at[v] if v is not None else len(levels) for v in values], np.int64)
    if len(levels) == 2 and len(levels) not in code:
        return Feature(f"{name} is {levels[1]!r}", seen, family, code.astype(np.float64))
    found = np.full(len(data), np.nan)
    for split in data.splits:
        rows = _labelled(data, split)
        if not len(rows):
            continue
        fold, y = folds_of(data.groups[rows], seed), data.y[rows]
        for k in range(FOLDS):
            out = fold == k
            others = ~out
            if not others.any() or not out.any():
                continue
            base = y[others].mean()
            n = np.bincount(code[rows][others], minlength=len(levels) + 1)
            positive = np.bincount(code[rows][others], y[others], minlength=len(levels) + 1)
            # One row's worth of the base rate, so that a value not seen elsewhere says nothing.
            found[rows[out]] = ((positive + base) / (n + 1))[code[rows][out]] - base
    return Feature(name, seen, family, found, one_sided=True)


def by_words(data: Audited, name: str, family: str, texts: Sequence[str], seed: int) -> Feature:
    """A logistic regression on which words a text has, fitted on other questions of the same split."""
    found = np.full(len(data), np.nan)
    for split in data.splits:
        rows = _labelled(data, split)
        if len(rows) > MOST_ROWS:
            keys = [seeds.derive(seed, f"{split} {row}", "audit rows") for row in rows.tolist()]
            rows = np.sort(rows[np.argsort(keys)[:MOST_ROWS]])
        if len(np.unique(data.groups[rows])) >= FEWEST and len(np.unique(data.y[rows])) == 2:
            found[rows] = _scores([texts[r] for r in rows.tolist()], data.y[rows], folds_of(data.groups[rows], seed))
    return Feature(name, "visible", family, found, one_sided=True)


def _scores(texts: list[str], y: Floats, fold: Ints) -> Floats:
    from sklearn import config_context
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import LogisticRegression

    words = HashingVectorizer(n_features=2**12, norm="l2", alternate_sign=False, binary=True, token_pattern=r"(?u)\w+")
    matrix = words.transform([t.encode("utf-8", "replace").decode() for t in texts])
    found = np.full(len(y), np.nan)
    # For small fits most of the time would go into looking at the arguments.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for k in range(FOLDS):
            train, test = fold != k, fold == k
            if test.any() and len(np.unique(y[train])) == 2:
                fitted = LogisticRegression(C=1.0, solver="liblinear").fit(matrix[train], y[train])
                found[test] = fitted.decision_function(matrix[test])
    return found


def _labelled(data: Audited, split: str) -> Ints:
    rows = data.rows(split)
    return rows[~np.isnan(data.y[rows])]
