"""A decision tree of depth three for PSI > 0: told in text, and held against always answering the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.measures.intervals import CHANGE, SHARE, Estimate, Range, mean_estimate, undefined
from lmassay.seeds import generator
from lmassay.xray.features import FEATURES, NAMES, Rows

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

DEPTH = 3
#: The tree's features: all, or none that is computed from wins as the target itself is.
TREES = {"all": tuple(FEATURES), "without_wins": tuple(name for name, wins in FEATURES.items() if not wins)}
CLASSES = ("PSI <= 0", "PSI > 0")
LUCK_DRAWS = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A tree with what it reads.

    Attributes
    ----------
    names : tuple of str
        Columns; a family is one column of zeros and ones.
    levels : tuple of str
        Families of the training rows; any other has a zero in each of their columns.
    """

    tree: DecisionTreeClassifier
    names: tuple[str, ...]
    features: tuple[str, ...]
    levels: tuple[str, ...]

    def correct(self, rows: Rows) -> NDArray[np.bool_]:
        """(n,) whether the tree says rightly if PSI > 0."""
        return np.asarray(self.tree.predict(_matrix(rows, self.features, self.levels)) == rows.target)

    def text(self) -> str:
        """The tree in words."""
        from sklearn.tree import export_text

        return str(export_text(self.tree, feature_names=list(self.names), class_names=list(CLASSES))).rstrip()

    def nodes(self) -> list[dict[str, Any]]:
        """A row per node, the root first: its split, its children's places, its training rows and its answer."""
        inner = self.tree.tree_
        found = []
        for i in range(inner.node_count):
            leaf = inner.children_left[i] < 0
            n = int(inner.n_node_samples[i])
            share = float(inner.value[i][0][1] / inner.value[i][0].sum())
            found.append(
                {
                    "feature": None if leaf else self.names[inner.feature[i]],
                    "threshold": None if leaf else float(inner.threshold[i]),
                    "left": None if leaf else int(inner.children_left[i]),
                    "right": None if leaf else int(inner.children_right[i]),
                    "n": n,
                    "n_positive": round(share * n),
                    "answer": CLASSES[int(share > 0.5)],
                }
            )
        return found


def fit(rows: Rows, features: Sequence[str]) -> Fitted:
    """A tree on every given feature that has a value in each row; the target must have both classes."""
    usable = tuple(name for name in features if rows.known(name).all())
    levels = tuple(sorted(set(rows.columns[NAMES]))) if NAMES in usable else ()
    names = tuple(
        column for name in usable for column in ([f"{NAMES}={level}" for level in levels] if name == NAMES else [name])
    )
    return Fitted(_grown(_matrix(rows, usable, levels), rows.target), names, usable, levels)


def _grown(matrix: Floats, target: NDArray[np.bool_]) -> DecisionTreeClassifier:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=DEPTH, criterion="gini", random_state=0).fit(matrix, target)


def _matrix(rows: Rows, features: Sequence[str], levels: Sequence[str]) -> Floats:
    """(n, n_columns), a family as zeros and ones."""
    columns = []
    for name in features:
        if name == NAMES:
            columns += [[value == level for value in rows.columns[name]] for level in levels]
        else:
            columns.append(rows.columns[name])
    return np.array(columns, np.float64).reshape(len(columns), len(rows)).T


def luck(fitted: Fitted, training: Rows, held_out: Rows, at_least: float, seed: int) -> float:
    """How often a tree grown on PSI dealt anew over the training rows is right on `at_least` of the held-out ones."""
    matrix = _matrix(training, fitted.features, fitted.levels)
    there = _matrix(held_out, fitted.features, fitted.levels)
    rng = generator(seed, "tree", "permutation null")
    hits = 0
    for _ in range(LUCK_DRAWS):
        shuffled = _grown(matrix, rng.permutation(training.target))
        hits += bool((shuffled.predict(there) == held_out.target).mean() >= at_least)
    return (1 + hits) / (LUCK_DRAWS + 1)


def described(name: str, training: Rows, held_out: Rows, seed: int) -> tuple[dict[str, Any], Fitted | None]:
    """What is told of a tree (text, nodes, accuracies), and the tree itself where the training rows allow one."""
    left_out = {
        feature: f"{int((~training.known(feature)).sum())} of {len(training)} rows have no value"
        for feature in TREES[name]
        if not training.known(feature).all()
    }
    reason = training.one_class
    if reason is None and len(left_out) == len(TREES[name]):
        reason = "no feature has a value in every row"
    fitted = None if reason is not None else fit(training, TREES[name])
    told: dict[str, Any] = {
        "status": "ok" if fitted is not None else f"undefined: {reason}",
        "text": None if fitted is None else fitted.text(),
        "nodes": [] if fitted is None else fitted.nodes(),
        "features": [] if fitted is None else list(fitted.features),
        "left_out": left_out,
    }
    for which, rows in (("training", training), ("held_out", held_out)):
        told[which] = _accuracies(fitted, rows, which, seed)
    return told, fitted


def _accuracies(fitted: Fitted | None, rows: Rows, which: str, seed: int) -> dict[str, Any]:
    """Accuracy, the majority rate of the same rows, and the one above the other."""
    titles = {
        "accuracy": f"accuracy on the {which.replace('_', '-')} rows",
        "majority": "share of the commoner side of the same rows",
        "above_majority": "accuracy above that share",
    }
    missing = None
    if fitted is None:
        missing = "no tree"
    elif not len(rows):
        missing = f"no {which.replace('_', '-')} run"
    elif not all(rows.known(name).all() for name in fitted.features):
        missing = "a held-out row lacks a feature of the tree"
    if missing is not None or fitted is None:
        return {key: undefined(title, str(missing), len(rows)).to_dict() for key, title in titles.items()}
    correct = fitted.correct(rows).astype(np.float64)
    common = (rows.target == (rows.target.mean() > 0.5)).astype(np.float64)
    resampling = rows.resampling(seed, f"tree/{which}")

    def over(key: str, values: Floats, within: Range = SHARE) -> Estimate:
        return mean_estimate(values, resampling, title=titles[key], within=within)

    return {
        "accuracy": over("accuracy", correct).to_dict(),
        "majority": over("majority", common).to_dict(),
        "above_majority": over("above_majority", correct - common, CHANGE).to_dict(),
    }
