"""`tfidf` on task 1 (46,160 training texts) against scikit-learn used plainly on one core.

    python benchmarks/cot_tfidf.py [--every N] [--task ID]

Both do the same work: vocabulary and features of the training texts, five folds grouped by question for each of five C,
the final fit, and decision values of validation and test texts. The plain way is TfidfVectorizer and LogisticRegression
as one would write them down, one after another, with one thread; it too builds its matrix once for all C and folds. It
gets its texts as Python strings; ours begins at the store. Run it on a quiet machine: ours uses every core it is given.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from threadpoolctl import threadpool_limits

from lmassay.cot.load import load_task
from lmassay.examples import texts
from lmassay.methods.heads import STRENGTHS
from lmassay.methods.method import Validation
from lmassay.methods.ngrams import cores
from lmassay.methods.tfidf import MAX_FEATURES, Tfidf
from work import announce, peak_mb

SETTINGS = {"ngram_range": (1, 2), "min_df": 2, "max_features": MAX_FEATURES, "sublinear_tf": True}


def model(c: float) -> LogisticRegression:
    return LogisticRegression(C=c, class_weight="balanced", max_iter=1000)


def plain(
    train: list[str], y: np.ndarray, groups: np.ndarray, others: list[str]
) -> tuple[TfidfVectorizer, float, np.ndarray]:
    vectorizer = TfidfVectorizer(**SETTINGS)
    features = vectorizer.fit_transform(train)
    figures = {}
    for c in STRENGTHS:
        areas = []
        for fitted, held in GroupKFold(5).split(features, groups=groups):
            one = model(c).fit(features[fitted], y[fitted])
            areas.append(roc_auc_score(y[held], one.decision_function(features[held])))
        figures[c] = np.mean(areas)
    best = max(figures.values())
    chosen = min(c for c, v in figures.items() if v == best)
    return vectorizer, chosen, model(chosen).fit(features, y).decision_function(vectorizer.transform(others))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, help="take every Nth training text only")
    parser.add_argument("--task", default="1")
    arguments = parser.parse_args()
    announce()
    data = load_task(arguments.task)
    usable = np.flatnonzero(data["train"].usable)[:: arguments.every]
    x, y, groups = data["train"].examples.take(usable), data["train"].y[usable], data["train"].groups[usable]
    rest = [data[name] for name in ("validation", *data.test_splits)]
    nothing = Validation(x[:0], y[:0], groups[:0])

    start, work = time.perf_counter(), time.process_time()
    ours = Tfidf()
    ours.fit(x, y, groups, nothing, 0)
    found = np.concatenate([ours.score(split.examples) for split in rest])
    fast, little = time.perf_counter() - start, time.process_time() - work
    print(f"ours {fast:.1f} s on {cores()} cores ({little:.1f} s of one), peak {peak_mb():.0f} MB, "
          f"C = {ours.choices['C']}", flush=True)  # fmt: skip

    train, others = texts(x, "cot"), [t for split in rest for t in texts(split.examples, "cot")]
    with threadpool_limits(1):
        start, work = time.perf_counter(), time.process_time()
        vectorizer, chosen, expected = plain(train, y, groups, others)
        slow, much = time.perf_counter() - start, time.process_time() - work
    print(f"plain {slow:.1f} s on 1 core ({much:.1f} s of it), C = {chosen}: {slow / fast:.2f} times ours "
          f"({much / little:.2f} times by processor time)")  # fmt: skip

    names, theirs = ours.vocabulary, list(vectorizer.get_feature_names_out())
    differing = sorted(set(names) ^ set(theirs))
    if not differing:
        print(f"same vocabulary; largest difference of a decision value {np.abs(found - expected).max():.1e}")
        return
    # Of terms equally frequent at the limit the plain way keeps whichever its sort left first.
    same = TfidfVectorizer(**{**SETTINGS, "vocabulary": names})
    features = same.fit_transform(train)
    again = model(ours.choices["C"]).fit(features, y).decision_function(same.transform(others))
    print(f"{len(differing)} terms tied at the limit of {MAX_FEATURES} are kept by one side only: {differing}")
    print(f"with our choice among them the largest difference of a decision value is {np.abs(found - again).max():.1e}")


if __name__ == "__main__":
    main()
