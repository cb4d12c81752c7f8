"""How training rows and the rows a method is scored on differ in form: a feature that tells the split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.audit.features import FORMAT, Feature
from lmassay.cot.audit.inputs import TRAIN, Audited, is_ood

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Families that an in-distribution set should share with the training rows.
FORM = (FORMAT, "size", "position")
#: Characters from the end whose words are compared.
TAIL = 100
#: Words compared: the ones in most rows.
WORDS = 100
SPREAD = "distance from the training rows' median of "


def compared(features: Sequence[Feature], data: Audited, split: str) -> list[Feature]:
    """Features whose change between the training rows and a split is looked at.

    A set meant to be out of distribution may have other lengths; its format should be the same all the same.
    """
    if split not in data.evaluation:
        return []
    wanted = (FORMAT,) if is_ood(split) else FORM
    return [f for f in features if f.seen == "visible" and f.family in wanted]


def spread(feature: Feature, data: Audited) -> Feature:
    """How far a size lies from the training rows' median, in ranks: two sets may share a centre and not their range."""
    known = np.sort(feature.values[data.rows(TRAIN)])
    known = known[~np.isnan(known)]
    at = np.searchsorted(known, feature.values, side="left") + np.searchsorted(known, feature.values, side="right")
    away = np.where(np.isnan(feature.values), np.nan, np.abs(at / (2 * max(len(known), 1)) - 0.5))
    return Feature(SPREAD + feature.name, feature.seen, feature.family, away)


@dataclass(frozen=True, slots=True)
class Vanished:
    """A word near the end of texts, for training rows against all others.

    Attributes
    ----------
    word : str
    train, rest : float
        Share of rows with the word near their end.
    positive, negative : float
        The same of the training rows, by label.
    p : float
        That no row of the rest has it by chance, from the rows that the questions are worth; 1 where one has it.
    """

    word: str
    train: float
    rest: float
    positive: float
    negative: float
    p: float


def words_near_the_end(data: Audited, reading: Sequence[str]) -> list[Vanished]:
    """The `WORDS` words most rows have near their end, each with a test of training rows against all others."""
    if not data.evaluation:
        return []
    tails = [frozenset(w for w in _words(t[-TAIL:])) for t in reading]
    train, rest = data.rows(TRAIN), np.concatenate([data.rows(s) for s in data.evaluation])
    # Half of the weight for each side, or a large training set would choose all words.
    weight: Counter[str] = Counter()
    for rows in (train, rest):
        for r in rows.tolist():
            for w in tails[r]:
                weight[w] += round(1e6 / len(rows))
    found = []
    for word in sorted(weight, key=lambda w: (-weight[w], w))[:WORDS]:
        has = [np.array([word in tails[r] for r in rows.tolist()], np.float64) for rows in (train, rest)]
        alike = alike_in_question(np.concatenate(has), np.concatenate([data.groups[train], data.groups[rest]]))
        worth = [effective_rows(data.groups[rows], alike) for rows in (train, rest)]
        p = none_by_chance(has[0].mean() * worth[0], worth[0], worth[1]) if not has[1].any() else 1.0
        y = data.y[train]
        by_label = [float(has[0][y == c].mean()) if (y == c).any() else float("nan") for c in (1, 0)]
        found.append(Vanished(word, float(has[0].mean()), float(has[1].mean()), by_label[0], by_label[1], p))
    return found


def none_by_chance(holders: float, rows: float, others: float) -> float:
    """Chance that all of `holders` fall among `rows` and none among `others`, when dealt out blindly.

    Fisher's exact test, one-sided, of a table with an empty cell; by gamma functions, so numbers need not be whole.
    """
    from scipy.special import gammaln

    log = gammaln(rows + 1) - gammaln(rows - holders + 1) - gammaln(rows + others + 1)
    return float(min(1.0, np.exp(log + gammaln(rows + others - holders + 1))))


def _words(tail: str) -> list[str]:
    # The first one may be cut.
    return ["".join(c for c in w if c.isalpha()).casefold() for w in tail.split()[1:]]


def alike_in_question(has: Floats, groups: Ints) -> float:
    """Intraclass correlation of (n,) 0/1 values by question, from the analysis of variance; at least 0."""
    _, code = np.unique(groups, return_inverse=True)
    sizes = np.bincount(code).astype(np.float64)
    n, k = float(len(has)), len(sizes)
    if k < 2 or n <= k:
        return 0.0
    means = np.bincount(code, has) / sizes
    between = float((sizes * (means - has.mean()) ** 2).sum()) / (k - 1)
    inside = float((np.bincount(code, has**2) - sizes * means**2).sum()) / (n - k)
    size = (n - float((sizes**2).sum()) / n) / (k - 1)
    whole = between + (size - 1) * inside
    return max(0.0, (between - inside) / whole) if whole > 0 else 0.0


def effective_rows(groups: Ints, correlation: float) -> float:
    """Rows that n rows in questions are worth: n over Kish's design effect 1 + (m - 1)·ICC.

    m is the mean size of the question a row is in; Kish 1965, *Survey Sampling*.
    """
    sizes = np.unique(groups, return_counts=True)[1].astype(np.float64)
    n = float(sizes.sum())
    return n / (1 + (float((sizes**2).sum()) / n - 1) * correlation)
