"""The text baseline against scikit-learn used plainly."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from made_examples import examples, made
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold

from lmassay.examples import VisibleExamples, texts
from lmassay.methods.method import Validation
from lmassay.methods.tfidf import TERMS, Tfidf, TfidfAll, TfidfFeatures
from lmassay.methods.trivial import Length


def _fit(method, data):
    x, y, groups = data
    method.fit(x, y, groups, Validation(x[:0], y[:0], groups[:0]), 0)
    return method


@pytest.fixture(scope="module")
def data():
    return made(200, 15)


def test_features_equal_tfidf_vectorizer(data):
    plain = TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=10_000, sublinear_tf=True)
    expected = plain.fit_transform(texts(data[0], "cot"))
    mine = TfidfFeatures("cot")
    found = mine.fit_transform(data[0])
    assert mine.names == list(plain.get_feature_names_out())
    assert abs(found - expected).max() < 1e-12
    more = made(50, seed=9)[0]
    assert abs(mine.transform(more) - plain.transform(texts(more, "cot"))).max() < 1e-12


def test_c_is_the_one_a_plain_loop_over_grouped_folds_finds(data):
    x, y, groups = data
    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=10_000, sublinear_tf=True)
    features = vectors.fit_transform(texts(x, "cot"))
    figures = {}
    for c in (0.01, 0.1, 1.0, 10.0, 100.0):
        areas = []
        for train, held in GroupKFold(5).split(features, groups=groups):
            model = LogisticRegression(C=c, class_weight="balanced", max_iter=1000).fit(features[train], y[train])
            areas.append(roc_auc_score(y[held], model.decision_function(features[held])))
        figures[c] = np.mean(areas)
    best = max(figures.values())
    chosen = min(c for c, v in figures.items() if v == best)
    mine = _fit(Tfidf(), data)
    assert mine.choices["C"] == chosen
    assert mine.choices["fold_auroc"] == {str(c): pytest.approx(v, abs=1e-6) for c, v in figures.items()}
    plain = LogisticRegression(C=chosen, class_weight="balanced", max_iter=1000).fit(features, y)
    assert mine.score(x) == pytest.approx(plain.decision_function(features), abs=1e-6)


def test_regression_is_ridge_with_the_alpha_of_least_error():
    x, _, groups = made(120)
    y = np.array([len(t.split()) for t in texts(x, "cot")], np.float64) / 10
    mine = _fit(Tfidf("regression"), (x, y, groups))
    features = TfidfFeatures("cot").fit_transform(x)
    figures = {}
    for alpha in (0.01, 0.1, 1.0, 10.0, 100.0):
        errors = []
        for train, held in GroupKFold(5).split(y, groups=groups):
            guess = Ridge(alpha=alpha).fit(features[train], y[train]).predict(features[held])
            errors.append(((guess - y[held]) ** 2).mean())
        figures[alpha] = np.mean(errors)
    assert mine.choices["alpha"] == min(figures, key=figures.get)
    plain = Ridge(alpha=mine.choices["alpha"]).fit(features, y)
    assert mine.score(x) == pytest.approx(plain.predict(features), abs=1e-8)


def test_the_prompt_has_a_namespace_of_its_own():
    x = examples(["same words here", "same words here", "other words", "other words"], prompt=["yes no"] * 4)
    y, groups = np.array([1.0, 0, 1, 0]), np.arange(4)
    mine = _fit(TfidfAll(), (x, y, groups))
    assert [name for _, name, _ in mine.terms].count("no") == 1
    shared = examples(["yes no", "yes no", "no", "no"], prompt=["yes no"] * 4)
    assert [name for _, name, _ in _fit(TfidfAll(), (shared, y, groups)).terms].count("no") == 2
    assert [name for _, name, _ in _fit(Tfidf(), (shared, y, groups)).terms].count("no") == 1


def test_the_heaviest_words_of_either_sign_are_kept_with_a_plain_heads_weights(data):
    mine = _fit(TfidfAll(), data)
    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=10_000, sublinear_tf=True)
    features = vectors.fit_transform(texts(data[0], "cot"))
    plain = LogisticRegression(C=_fit(Tfidf(), data).choices["C"], class_weight="balanced", max_iter=1000)
    weights = dict(zip(vectors.get_feature_names_out(), plain.fit(features, data[1]).coef_[0], strict=True))
    kept = _fit(Tfidf(), data).choices["terms"]
    assert {where for where, _, _ in kept} == {"cot"}
    assert [w for _, _, w in kept] == pytest.approx([weights[term] for _, term, _ in kept], abs=1e-3)
    for sign in (1, -1):
        side = [abs(w) for _, _, w in kept if sign * w > 0]
        largest = sorted((sign * w for w in weights.values() if sign * w > 0), reverse=True)[:TERMS]
        assert side == pytest.approx(largest, abs=1e-3)
    assert len(mine.choices["terms"]) <= 2 * TERMS


def test_order_of_rows_changes_no_score(data):
    x, y, groups = data
    order = np.random.default_rng(4).permutation(len(y))
    plain, shuffled = _fit(Tfidf(), data), _fit(Tfidf(), (x.take(order), y[order], groups[order]))
    assert shuffled.choices["C"] == plain.choices["C"]
    assert shuffled.score(x) == pytest.approx(plain.score(x), abs=1e-3)


def test_white_space_changes_no_score(data):
    mine = _fit(Tfidf(), data)
    spaced = examples([t.replace(" ", " \n\t ") for t in texts(data[0], "cot")])
    assert (mine.score(spaced) == mine.score(data[0])).all()


def test_kept_and_loaded_it_scores_the_same(data):
    mine = _fit(Tfidf(), data)
    assert (pickle.loads(pickle.dumps(mine)).score(data[0]) == mine.score(data[0])).all()


def test_too_few_questions_to_choose_take_the_default():
    x, y, _ = made(20)
    mine = _fit(Tfidf(), (x, y, np.zeros(20, np.int64)))
    assert mine.choices["C"] == 1.0


def test_texts_without_a_word_all_score_alike():
    x = VisibleExamples(np.arange(4), examples(["", "", "?", "!"]).columns)
    mine = _fit(Tfidf(), (x, np.array([0.0, 1, 0, 1]), np.arange(4)))
    assert set(mine.score(x).tolist()) == {0.0}


def test_a_text_of_fifty_megabytes_is_read():
    x, y, groups = made(40)
    mine = _fit(Tfidf(), (x, y, groups))
    long = "wait so the answer is 42. " * 2_000_000
    assert np.isfinite(mine.score(examples([long, "wait"]))).all()
    assert np.isfinite(_fit(Length(), (x, y, groups)).score(examples(["x" * 50_000_000]))).all()
