"""Linear probe, mean difference and LDA: against scikit-learn and plain formulas, on made states."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_states import example, fitted, made, pooled
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lmassay.errors import LmassayError
from lmassay.methods.held_activations import HeldActivations
from lmassay.methods.lda import Lda
from lmassay.methods.linear import ALPHAS, STRENGTHS, Linear
from lmassay.methods.mean_difference import MeanDifference
from lmassay.methods.method import Validation
from lmassay.methods.probe import load_probe

PROBES = (Linear, MeanDifference, Lda)
CELLS = [(b, p) for b in (0, 1, 2) for p in ("last", "mean", "max")]


@pytest.fixture(scope="module")
def data():
    return made()


class Counting(HeldActivations):
    """Notes what is read."""

    def pooled(self, keys, block, pooling):
        self.__dict__.setdefault("reads", []).append((block, pooling, len(keys)))
        return super().pooled(keys, block, pooling)


def test_block_pooling_and_c_are_those_of_scikit_learn_tried_one_by_one(data):
    store, (x, y, groups), validation, (x_test, y_test, _) = data
    found = fitted(Linear, store, (x, y, groups), validation)
    figures = {}
    for block, pooling in CELLS:
        states = StandardScaler().fit_transform(pooled(store, x, block, pooling))
        by_c = {}
        for c in STRENGTHS:
            head = LogisticRegression(C=c, class_weight="balanced", max_iter=1000)
            folds = [
                roc_auc_score(y[held], head.fit(states[rest], y[rest]).decision_function(states[held]))
                for rest, held in GroupKFold(5).split(y, groups=groups)
            ]
            by_c[c] = np.mean(folds)
        c = next(c for c in STRENGTHS if by_c[c] == max(by_c.values()))
        model = make_pipeline(StandardScaler(), LogisticRegression(C=c, class_weight="balanced", max_iter=1000))
        model.fit(pooled(store, x, block, pooling), y)
        on_validation = roc_auc_score(
            validation.y, model.decision_function(pooled(store, validation.X, block, pooling))
        )
        figures[block, pooling] = on_validation, c, model
    best = max(figures, key=lambda cell: figures[cell][0])
    _, c, model = figures[best]
    assert (found.choices["block"], found.choices["pooling"], found.choices["C"]) == (*best, c)
    assert found.choices["chosen_on"] == "validation"
    for cell, (value, _, _) in figures.items():
        assert found.choices["grid"][f"{cell[0]}.{cell[1]}"]["validation"] == pytest.approx(value, abs=1e-3)
    expected = model.decision_function(pooled(store, x_test, *best))
    np.testing.assert_allclose(found.score(x_test), expected, atol=2e-3)
    assert roc_auc_score(y_test, found.score(x_test)) > 0.9


def test_the_block_with_the_signal_is_chosen(data):
    store, train, validation, _ = data
    for cls in PROBES:
        assert fitted(cls, store, train, validation).choices["block"] == 1


def test_the_pooling_that_shows_the_signal_is_chosen():
    store, train, validation, _ = made(200, where="last", strength=2.5, tokens=(12, 20))
    assert fitted(Linear, store, train, validation).choices["pooling"] == "last"


def test_ridge_regression_is_scikit_learn_s():
    store, (x, y, groups), validation, (x_test, y_test, _) = made(regression=True)
    found = fitted(Linear, store, (x, y, groups), validation, kind="regression", blocks=(1,), poolings=("mean",))
    assert found.choices["alpha"] in ALPHAS
    model = make_pipeline(StandardScaler(), Ridge(alpha=found.choices["alpha"]))
    model.fit(pooled(store, x, 1, "mean"), y)
    np.testing.assert_allclose(found.score(x_test), model.predict(pooled(store, x_test, 1, "mean")), atol=1e-6)
    assert np.corrcoef(found.score(x_test), y_test)[0, 1] > 0.8


def test_lda_is_scikit_learn_s_by_another_solver(data):
    store, (x, y, groups), validation, (x_test, _, _) = data
    found = fitted(Lda, store, (x, y, groups), validation, blocks=(1,), poolings=("max",))
    oracle = make_pipeline(
        StandardScaler(), LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", priors=[0.5, 0.5])
    )
    oracle.fit(pooled(store, x, 1, "max"), y)
    np.testing.assert_allclose(
        found.score(x_test), oracle.decision_function(pooled(store, x_test, 1, "max")), atol=1e-6
    )


def test_the_mean_difference_is_what_it_says(data):
    store, (x, y, groups), validation, (x_test, _, _) = data
    found = fitted(MeanDifference, store, (x, y, groups), validation, blocks=(1,), poolings=("mean",))
    train = pooled(store, x, 1, "mean")
    centre, spread = train.mean(0), train.std(0)
    total = {0.0: np.zeros(train.shape[1]), 1.0: np.zeros(train.shape[1])}
    for row, label in zip(train, y, strict=True):
        total[label] += (row - centre) / spread
    positive, negative = total[1.0] / (y == 1).sum(), total[0.0] / (y == 0).sum()
    by_hand = [
        sum(
            (p - n) * ((v - c) / s - (p + n) / 2)
            for v, c, s, p, n in zip(row, centre, spread, positive, negative, strict=True)
        )
        for row in pooled(store, x_test, 1, "mean")
    ]
    np.testing.assert_allclose(found.score(x_test), by_hand, atol=1e-5)


@pytest.mark.parametrize("cls", PROBES)
def test_every_block_and_pooling_is_read_once(cls, data):
    held, train, validation, _ = data
    store = Counting("counted", held.held)
    fitted(cls, store, train, validation)
    assert sorted(store.reads) == sorted((b, p, len(train[0]) + len(validation.X)) for b, p in CELLS)


@pytest.mark.parametrize("cls", PROBES)
def test_held_out_rows_move_no_fitted_parameter(cls, data):
    """I-69: a scaler fitted before the split."""
    held, train, validation, (x_test, _, _) = data
    before = fitted(cls, held, train, validation, blocks=(1,), poolings=("mean",)).learnt()
    others = {x.key for x in [*validation.X, *x_test]}
    far = {k: {b: s + 1e6 * (k in others) for b, s in of.items()} for k, of in held.held.items()}
    after = fitted(cls, HeldActivations("far", far), train, validation, blocks=(1,), poolings=("mean",)).learnt()
    assert before[0] == after[0]
    for name, array in before[1].items():
        assert (array == after[1][name]).all()


@settings(deadline=None, max_examples=4)
@given(st.permutations(range(60)))
def test_the_order_of_rows_changes_nothing(order):
    store, (x, y, groups), validation, (x_test, _, _) = made(60)
    at = np.array(order)
    for cls in (MeanDifference, Lda, Linear):
        before = fitted(cls, store, (x, y, groups), validation, blocks=(1,), poolings=("mean",)).score(x_test)
        mixed = [x[i] for i in at], y[at], groups[at]
        after = fitted(cls, store, mixed, validation, blocks=(1,), poolings=("mean",)).score(x_test)
        np.testing.assert_allclose(after, before, atol=1e-3)


def test_a_row_without_activations_abstains_and_others_do_not_notice(data):
    held, train, validation, (x_test, _, _) = data
    found = fitted(Lda, held, train, validation)
    before = found.score(x_test)
    mixed = [x_test[0], example(5), x_test[1]]
    score = found.score(mixed)
    assert np.isnan(score[1])
    assert score[[0, 2]].tolist() == before[:2].tolist()


def test_training_rows_without_activations_are_left_out_and_counted(data):
    store, (x, y, groups), validation, (x_test, _, _) = data
    some = {k: v for k, v in store.held.items() if k not in {e.key for e in x[::3]}}
    found = fitted(Linear, HeldActivations("some", some), (x, y, groups), validation)
    kept = np.arange(len(x)) % 3 != 0
    alone = fitted(
        Linear, store, ([e for e, k in zip(x, kept, strict=True) if k], y[kept], groups[kept]), validation, blocks=(1,)
    )
    assert (found.choices["n_train"], found.choices["n_train_without_activations"]) == (80, 40)
    np.testing.assert_allclose(found.score(x_test), alone.score(x_test), atol=1e-9)


def test_one_class_with_activations_is_refused_saying_how_many_have_none(data):
    store, (x, y, groups), validation, _ = data
    positive = {e.key for e, label in zip(x, y, strict=True) if label == 1}
    some = {k: v for k, v in store.held.items() if k in positive or k >= 100_000}
    with pytest.raises(LmassayError, match=r"60 of 120 training rows have no activations.*one class"):
        fitted(Linear, HeldActivations("some", some), (x, y, groups), validation)


@pytest.mark.parametrize("cls", PROBES)
def test_states_that_are_no_numbers_are_refused_in_training_and_abstained_from_in_scoring(cls, data):
    store, train, validation, (x_test, _, _) = data
    found = fitted(cls, store, train, validation, blocks=(1,), poolings=("mean",))
    bad = {k: {b: s.copy() for b, s in of.items()} for k, of in store.held.items()}
    bad[x_test[3].key][1][0, 2] = np.nan
    found.activations = HeldActivations("made reader", bad)
    assert np.flatnonzero(np.isnan(found.score(x_test))).tolist() == [3]
    bad[train[0][4].key][1][0, 2] = np.inf
    with pytest.raises(LmassayError, match=rf"example {train[0][4].key} at block 1 hold NaN or infinity \(1 such\)"):
        fitted(cls, HeldActivations("bad", bad), train, validation, blocks=(1,), poolings=("mean",))


def test_where_validation_has_one_class_the_folds_decide(data):
    store, train, validation, _ = data
    one = Validation(validation.X, np.ones(len(validation.y)), validation.groups)
    found = fitted(Linear, store, train, one)
    assert found.choices["chosen_on"].startswith("folds of the training rows")
    grid = found.choices["grid"]
    assert all(set(cell) == {"folds"} for cell in grid.values())
    assert grid[f"{found.choices['block']}.{found.choices['pooling']}"] == max(grid.values(), key=lambda c: c["folds"])
    assert fitted(MeanDifference, store, train, one).choices["chosen_on"].startswith("nothing: no figure is defined")


def test_fewer_questions_than_folds_and_a_fold_of_one_class_are_no_error(data):
    """I-71: folds that hold one class."""
    store, (x, y, groups), validation, _ = data
    two = fitted(Linear, store, (x, y, groups % 2), validation)
    assert two.choices["C"] in STRENGTHS
    alone = fitted(Linear, store, (x, y, groups * 0), validation)
    assert alone.choices["C"] == 1.0
    # Two questions, a class each: whichever is held out, one class is left to learn from.
    parted = fitted(Linear, store, (x, y, y.astype(np.int64)), validation)
    assert parted.choices["C"] == 1.0


def test_what_the_activations_lack_is_named(data):
    store, train, validation, _ = data
    with pytest.raises(LmassayError, match=r"do not have block 7; they have 0, 1, 2"):
        fitted(Linear, store, train, validation, blocks=(1, 7))
    last = replace(store, poolings=("last",))
    with pytest.raises(LmassayError, match=r"do not have pooling 'mean'; they have last"):
        fitted(Linear, last, train, validation, poolings=("mean",))
    assert fitted(Linear, last, train, validation).choices["pooling"] == "last"
    with pytest.raises(LmassayError, match=r"reads activations and was given none"):
        fitted(Linear, None, train, validation)


@pytest.mark.parametrize("cls", PROBES)
def test_a_probe_is_kept_without_pickle_and_without_its_activations(cls, data, tmp_path):
    store, train, validation, (x_test, _, _) = data
    found = fitted(cls, store, train, validation, blocks=(0, 1))
    found.save(tmp_path / "kept")
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["probe.json", "probe.safetensors"]
    for again in (cls.load(tmp_path / "kept", store), load_probe(tmp_path / "kept", store)):
        assert type(again) is cls
        assert again.score(x_test).tolist() == found.score(x_test).tolist()
        assert again.settings() == found.settings()
        assert again.choices == json.loads(json.dumps(found.choices))
    pickled = pickle.dumps(found)
    assert len(pickled) < 20_000
    restored = pickle.loads(pickled)
    assert restored.activations is None
    restored.activations = store
    assert restored.score(x_test).tolist() == found.score(x_test).tolist()


def test_a_kept_probe_that_was_altered_is_not_loaded(data, tmp_path):
    store, train, validation, _ = data
    fitted(Linear, store, train, validation, blocks=(1,)).save(tmp_path)
    with pytest.raises(LmassayError, match=r"holds the method linear, not lda"):
        Lda.load(tmp_path)
    arrays = tmp_path / "probe.safetensors"
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:-4] + b"\x00\x00\x00\x01")
    with pytest.raises(LmassayError, match=r"bad-run-folder.*was cut short or altered"):
        load_probe(tmp_path)
    arrays.write_bytes(whole)
    about = json.loads((tmp_path / "probe.json").read_text())
    (tmp_path / "probe.json").write_text(json.dumps({**about, "version": 99}))
    with pytest.raises(LmassayError, match=r"kept in format 99"):
        load_probe(tmp_path)
    with pytest.raises(LmassayError, match=r"holds no probe"):
        load_probe(tmp_path / "nowhere")


def test_an_unfitted_probe_says_so(data, tmp_path):
    store, _, _, (x_test, _, _) = data
    for do in (lambda p: p.score(x_test), lambda p: p.save(tmp_path), lambda p: p.contributions(x_test[0])):
        probe = Linear()
        probe.activations = store
        with pytest.raises(LmassayError, match="has not been fitted"):
            do(probe)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_contributions_are_shares_of_the_score(pooling, data):
    store, train, validation, (x_test, _, _) = data
    found = fitted(Linear, store, train, validation, blocks=(1,), poolings=(pooling,))
    for x, score in zip(x_test[:10], found.score(x_test[:10]), strict=True):
        shares = found.contributions(x)
        assert len(shares.values) == len(store.held[x.key][1])
        assert shares.score == pytest.approx(score)
        assert shares.values.sum() + shares.rest == pytest.approx(score, abs=1e-6)


def test_for_the_last_token_s_state_every_token_is_projected(data):
    store, train, validation, (x_test, _, _) = data
    found = fitted(Linear, store, train, validation, blocks=(1,), poolings=("last",))
    seen = found.contributions(x_test[0])
    assert seen.rest is None
    assert seen.values[-1] + found.learnt()[0]["intercept"] == pytest.approx(seen.score, abs=1e-6)


def test_what_tokens_contributed_needs_their_states(data):
    store, train, validation, (x_test, _, _) = data

    class Pooled(HeldActivations):
        token_blocks = (0,)

    found = fitted(Linear, Pooled("pooled", store.held), train, validation, blocks=(1,))
    with pytest.raises(LmassayError, match=r"states of block 1 were not kept \(kept: 0\).*--token-blocks 1"):
        found.contributions(x_test[0])
    with pytest.raises(LmassayError, match=r"have none of example 5"):
        found.contributions(example(5))


def test_a_component_that_never_changes_does_not_matter(data):
    held, train, validation, (x_test, _, _) = data
    keys = [x.key for x in x_test]
    still = {k: {b: np.c_[s, np.full(len(s), 0.1, np.float32)] for b, s in of.items()} for k, of in held.held.items()}
    moved = {
        k: {b: s + np.r_[np.zeros(6), 0.5 * (k in keys)].astype(np.float32) for b, s in of.items()}
        for k, of in still.items()
    }
    for cls in PROBES:
        found = fitted(cls, HeldActivations("still", still), train, validation, blocks=(1,), poolings=("mean",))
        before = found.score(x_test)
        found.activations = HeldActivations("moved", moved)
        np.testing.assert_allclose(found.score(x_test), before, atol=1e-5)
