"""Linear probes on splits that keep a template's tasks together, with the choice among candidates nested inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.xray.scored import Floats, Ints

FOLDS = 5
#: Fewest templates of a class: one to train on, one to choose by and one to test on.
FEWEST_TEMPLATES = 3
#: Share of tasks in the test half of the single split.
SINGLE_TEST = 0.3
#: Inverse strength of the ridge penalty on standardised residuals, scikit-learn's default.
C = 1.0
#: Strengths the TF-IDF baseline may choose among, as the probe may among depths: its rows are short and one strength
#: chosen for it could starve it.
TFIDF_C = (1.0, 10.0, 100.0, 1000.0)
#: Single letters, digits and signs are words here: they are what most prompts differ in.
TFIDF_TOKEN = r"(?u)\w+|[^\w\s]"

#: ``features(train, held)``: matrices fitted on the rows of `train` only.
Features = Callable[["NDArray[np.bool_]", "NDArray[np.bool_]"], tuple["Floats", "Floats"]]


def split_by_template(y: Ints, templates: Sequence[str], seed: int) -> Ints | str:
    """(n,) the fold of each task, a template in one fold only and both classes in all; or why that cannot be had.

    Parameters
    ----------
    y : (n,) int64
        Classes 0 and 1.
    seed : int
        Of the order in which templates are dealt.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    template = np.asarray(templates, np.str_)
    by_class = [len(set(template[y == c].tolist())) for c in (0, 1)]
    if not all(by_class):
        return "one class"
    if min(by_class) < FEWEST_TEMPLATES:
        return f"a class has under {FEWEST_TEMPLATES} templates"
    n_folds = min(FOLDS, *by_class)
    fold = np.empty(len(y), np.int64)
    splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed % 2**32)
    for index, (_, test) in enumerate(splitter.split(y, y, template)):
        fold[test] = index
    trained = [set(y[(fold != a) & (fold != b)].tolist()) for a, b in combinations(range(n_folds), 2)]
    if any(len(classes) < 2 for classes in trained):
        return "templates hold both classes, and no split keeps them whole"
    return fold


def shuffled_labels(y: Ints, templates: Sequence[str], rng: np.random.Generator, draws: int) -> Ints:
    """(draws, n) labels that change hands between templates, one label a template."""
    units = [f"{c}\x1f{t}" for c, t in zip(y.tolist(), templates, strict=True)]
    _, first, unit_of = np.unique(units, return_index=True, return_inverse=True)
    return np.stack([rng.permutation(y[first])[unit_of] for _ in range(draws)])


def logistic(x: Floats, labels: Ints, c: float = C) -> tuple[Floats, Floats]:
    """Ridge-penalised logistic regressions of several label sets on one matrix, fitted together.

    Scikit-learn's objective (mean log-loss + |w|^2 / (2 c n), intercept free). A run has thousands of these fits, so
    all label sets go through one L-BFGS, in the matrix's singular directions scaled by the curvature's upper bound
    x'x / 4 + penalty (Böhning and Lindsay, Ann. Inst. Stat. Math. 40, 1988), where few steps are enough.

    Parameters
    ----------
    x : (n, d) float64
    labels : (n_sets, n) int64
        Classes 0 and 1. One class only (a shuffle can do that) is what the probe then predicts.

    Returns
    -------
    (d, n_sets) weights and (n_sets,) intercepts.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    n, sets = len(x), len(labels)
    _, singular, directions = np.linalg.svd(x, full_matrices=False)
    scale = 1 / np.sqrt(singular**2 / (4 * n) + 1 / (c * n))
    basis = directions.T * scale
    # The intercept's curvature is at most 1/4, and it has no penalty.
    z = np.hstack([x @ basis, np.full((n, 1), 2.0)])
    ridge = np.append(scale**2 / (c * n), 0.0)[:, None]
    target = labels.T.astype(np.float64)

    def loss(flat: Floats) -> tuple[float, Floats]:
        w = flat.reshape(-1, sets)
        logits = z @ w
        value = (np.logaddexp(0, logits) - target * logits).sum() / n + (ridge * w**2).sum() / 2
        return float(value), (z.T @ ((expit(logits) - target) / n) + ridge * w).ravel()

    options = {"maxiter": 5000, "maxfun": 10000, "maxcor": 20, "gtol": 1e-5, "ftol": 0.0}
    found = minimize(loss, np.zeros(z.shape[1] * sets), jac=True, method="L-BFGS-B", options=options)
    w = found.x.reshape(-1, sets)
    return basis @ w[:-1], 2 * w[-1]


def predicted(features: Features, labels: Ints, train: Any, held: Any, c: float = C) -> Ints:
    """(n_sets, n_held) classes of the held rows, from probes of the training rows."""
    x, x_held = features(train, held)
    weights, intercepts = logistic(x, labels[:, train], c)
    return np.asarray((x_held @ weights + intercepts > 0).T, np.int64)


def standardised(states: Floats) -> Features:
    """Residuals (n, d_model) scaled by the training rows' mean and spread."""

    def features(train: NDArray[np.bool_], held: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        mean, spread = states[train].mean(0), states[train].std(0)
        # A dimension that does not vary over the training rows says nothing about them, whatever it does elsewhere.
        varies = spread > 10 * np.finfo(np.float64).eps * np.abs(mean)
        scale = np.where(varies, spread, 1.0)
        x, x_held = (np.where(varies, (states[rows] - mean) / scale, 0.0) for rows in (train, held))
        return x, x_held

    return features


def tfidf(prompts: Sequence[str]) -> Features:
    """Words and pairs of words of the prompts, weighted by the training prompts' document frequencies."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    text = np.asarray(prompts, dtype=object)

    def features(train: NDArray[np.bool_], held: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        vectoriser = TfidfVectorizer(ngram_range=(1, 2), token_pattern=TFIDF_TOKEN)
        x = vectoriser.fit_transform(text[train]).toarray()
        return x, vectoriser.transform(text[held]).toarray()

    return features


def majority(y: Ints, fold: Ints) -> NDArray[np.bool_]:
    """(n,) whether a task is of the class that most tasks outside its fold are of; in a tie, of class 0."""
    outside = np.bincount(fold, y == 1), np.bincount(fold)
    more = 2 * (y.sum() - outside[0]) > len(y) - outside[1]
    return np.asarray(more[fold] == (y == 1))


@dataclass(frozen=True, slots=True)
class Held:
    """What a candidate (a depth, a strength) gives on tasks it was not trained on.

    Attributes
    ----------
    right : (n_sets, n) bool
        Whether a task is predicted rightly by a probe that saw all folds but its own.
    inner : (n_sets, n_folds) float64
        Accuracy on the tasks outside a fold, each predicted by a probe that saw neither that fold nor the task's own:
        what a choice for that fold may go by.
    """

    right: NDArray[np.bool_]
    inner: Floats


def held_out(features: Features, labels: Ints, fold: Ints, c: float = C) -> Held:
    """Cross-validate one candidate for several label sets; `labels` (n_sets, n), `fold` (n,)."""
    n_folds = int(fold.max()) + 1
    right = np.zeros(labels.shape, np.bool_)
    for a in range(n_folds):
        held = fold == a
        right[:, held] = predicted(features, labels, ~held, held, c) == labels[:, held]
    hits = np.zeros((len(labels), n_folds))
    for a, b in combinations(range(n_folds), 2):
        # The probe without folds a and b is one of b's inner probes, tested on a, and one of a's, tested on b.
        held = (fold == a) | (fold == b)
        found = predicted(features, labels, ~held, held, c) == labels[:, held]
        hits[:, b] += found[:, fold[held] == a].sum(1)
        hits[:, a] += found[:, fold[held] == b].sum(1)
    outside = len(fold) - np.bincount(fold, minlength=n_folds)
    return Held(right, hits / outside)


def nested(candidates: Sequence[Held], fold: Ints) -> tuple[NDArray[np.bool_], Ints]:
    """Choose a candidate for each fold by its inner accuracy, the earliest of equals.

    Returns
    -------
    (n_sets, n) whether a task is predicted rightly by the candidate chosen for its fold, and (n_sets, n) which it is.
    """
    choice = np.stack([h.inner for h in candidates]).argmax(0)[:, fold]
    right = np.stack([h.right for h in candidates])
    return np.take_along_axis(right, choice[None], 0)[0], np.asarray(choice, np.int64)


def single_split(y: Ints, seed: int) -> NDArray[np.bool_] | None:
    """(n,) the test tasks of one 70/30 split by class, templates not regarded; None where a class is too small."""
    from sklearn.model_selection import train_test_split

    if min(np.bincount(y, minlength=2)) < 2:
        return None
    test = np.zeros(len(y), np.bool_)
    test[train_test_split(np.arange(len(y)), test_size=SINGLE_TEST, stratify=y, random_state=seed % 2**32)[1]] = True
    return test
