"""The head finds the features that were planted, and its scores are those of sklearn on plain pooled features."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_examples import examples
from safetensors.torch import save_file
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from lmassay.errors import LmassayError
from lmassay.methods.held_activations import HeldActivations
from lmassay.methods.method import Validation
from lmassay.methods.probe import load_probe
from lmassay.methods.sae import Sae
from lmassay.methods.sae_features import class_difference, largest, ranked_features
from lmassay.methods.sae_shown import largest_examples
from lmassay.testing import check_method

WIDTH, FEATURES, BLOCK = 16, 12, 3
#: Higher in the positives by their largest value, and by their mean.
BY_MAX, BY_MEAN = 5, 8
DIRECTIONS = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)))[0][:FEATURES]


def saved(folder, directions=DIRECTIONS, hook=f"blocks.{BLOCK}.hook_resid_post", **more):
    """An autoencoder whose features are the coefficients of these directions of length 1, at right angles."""
    n, width = directions.shape
    folder.mkdir(parents=True, exist_ok=True)
    about = {"model_name": "reader", "hook_name": hook, "prepend_bos": True}
    config = {"architecture": "standard", "d_in": width, "d_sae": n, "apply_b_dec_to_input": True, "metadata": about}
    (folder / "cfg.json").write_text(json.dumps(config | more))
    d = torch.from_numpy(directions.astype(np.float32)).contiguous()
    tensors = {"W_enc": d.T.contiguous(), "W_dec": d, "b_enc": torch.zeros(n), "b_dec": torch.zeros(width)}
    save_file(tensors, folder / "sae_weights.safetensors")
    return str(folder)


class Made:
    """Examples whose features are known, because they were made from them."""

    def __init__(self, n=80, seed=0, by_max=2.0, by_mean=0.0, blocks=(BLOCK,)):
        rng = np.random.default_rng(seed)
        self.y = rng.permutation(np.arange(n) % 2).astype(np.float64)
        self.groups = rng.integers(0, 10, n).astype(np.int64)
        self.x = examples([f"text {i}" for i in range(n)], keys=rng.permutation(n) + 1000 * (seed + 1))
        self.features = {}
        for key, label in zip(self.x.keys.tolist(), self.y, strict=True):
            tokens = rng.exponential(1.0, (int(rng.integers(4, 20)), FEATURES)) * (rng.random(FEATURES) < 0.7)
            if label:
                tokens[int(rng.integers(len(tokens))), BY_MAX] += by_max * (1 + rng.random())
                tokens[:, BY_MEAN] += by_mean * rng.random()
            self.features[key] = tokens
        held = {
            key: {
                b: (f @ DIRECTIONS if b == BLOCK else rng.normal(size=(len(f), WIDTH))).astype(np.float32)
                for b in blocks
            }
            for key, f in self.features.items()
        }
        ids = {key: np.arange(len(f), dtype=np.int32) + 100 for key, f in self.features.items()}
        self.store = HeldActivations("reader", held, ids)

    def pooled(self, how):
        return np.array([getattr(self.features[key], how)(0) for key in self.x.keys.tolist()])

    @property
    def validation(self):
        return Validation(self.x, self.y, self.groups)


def together(*parts):
    held = {key: of for made in parts for key, of in made.store.held.items()}
    return HeldActivations("reader", held, {k: v for made in parts for k, v in made.store.ids.items()})


def fitted(folder, train, chosen_on=None, kind="binary", **options):
    chosen_on = chosen_on or Made(seed=1)
    made = Sae(kind, sae=saved(folder), **options)
    made.activations = together(train, chosen_on)
    made.fit(train.x, train.y, train.groups, chosen_on.validation, 0)
    return made


def _oracle(train, test, how, k, strength):
    """sklearn on the coefficients the states were made from."""
    a, b = train.pooled(how), test.pooled(how)
    difference = a[train.y == 1].mean(0) - a[train.y == 0].mean(0)
    some = np.argsort(-np.abs(difference), kind="stable")[:k]
    mean, scale = a[:, some].mean(0), a[:, some].std(0)
    head = LogisticRegression(C=strength, class_weight="balanced", max_iter=5000)
    head.fit((a[:, some] - mean) / scale, train.y)
    return head.decision_function((b[:, some] - mean) / scale), some


@pytest.mark.parametrize("how", ["max", "mean"])
def test_scores_are_those_of_sklearn_on_the_planted_coefficients(how, tmp_path):
    train, test = Made(by_mean=0.7), Made(seed=2, by_mean=0.7)
    made = fitted(tmp_path, train, features=(4,), poolings=(how,))
    made.activations = together(train, test)
    wanted, some = _oracle(train, test, how, 4, made.choices["C"])
    np.testing.assert_allclose(made.score(test.x), wanted, atol=2e-3)
    assert next(f.index for f in made.top_features()) == (BY_MAX if how == "max" else BY_MEAN)
    assert {f.index for f in made.top_features()} == set(some.tolist())


def test_pooling_and_number_of_features_are_those_best_on_the_validation_rows(tmp_path):
    train, chosen_on = Made(), Made(seed=1)
    made = fitted(
        tmp_path,
        train,
        chosen_on,
        features=(1, 4),
    )
    name = f"{tmp_path.name}@{BLOCK}"
    figures = made.choices["validation_auroc"]
    assert list(figures) == [f"{name} {how} {k}" for how in ("max", "mean") for k in (1, 4)]
    for label, figure in figures.items():
        how, k = label.split()[1:]
        alone = fitted(tmp_path, train, chosen_on, features=(int(k),), poolings=(how,))
        wanted, _ = _oracle(train, chosen_on, how, int(k), alone.choices["C"])
        assert figure == pytest.approx(roc_auc_score(chosen_on.y, wanted), abs=5e-3)
    best = max(figures.values())
    assert figures[f"{name} {made.choices['pooling']} {made.choices['features']}"] == best
    # What shows at one token only is lost in a mean.
    assert made.choices["pooling"] == "max"


def test_of_several_autoencoders_the_one_that_tells_is_chosen(tmp_path):
    noise = np.linalg.qr(np.random.default_rng(5).normal(size=(WIDTH, WIDTH)))[0]
    train, chosen_on = Made(blocks=(BLOCK, 7)), Made(seed=1, blocks=(BLOCK, 7))
    both = saved(tmp_path / "a", noise, hook=None), saved(tmp_path / "b")
    made = Sae(sae=both, block=(7, BLOCK), features=(4,), min_explained=-1e9)
    made.activations = together(train, chosen_on)
    made.fit(train.x, train.y, train.groups, chosen_on.validation, 0)
    assert (made.choices["sae"], made.choices["block"]) == ("b", BLOCK)
    assert set(made.choices["explained"]) == {"a@7", f"b@{BLOCK}"}
    assert made.choices["explained"][f"b@{BLOCK}"]["value"] == pytest.approx(1, abs=1e-6)


def test_two_folders_of_one_name_are_two_autoencoders(tmp_path):
    # The first has the directions in another order, one of them lost: less is told by it.
    poor = saved(tmp_path / "a" / "l0", np.delete(DIRECTIONS, BY_MAX, axis=0))
    train, chosen_on = Made(), Made(seed=1)
    made = Sae(sae=(poor, saved(tmp_path / "b" / "l0")), features=(3,), poolings=("max",), min_explained=0.1)
    made.activations = together(train, chosen_on)
    made.fit(train.x, train.y, train.groups, chosen_on.validation, 0)
    assert list(made.choices["validation_auroc"]) == [f"l0@{BLOCK} max 3", f"l0@{BLOCK}#1 max 3"]
    assert made.top_features()[0].index == BY_MAX
    assert made.top_features()[0].difference > 1


def test_validation_rows_of_one_class_choose_nothing(tmp_path):
    chosen_on = Made(seed=1)
    chosen_on.y = np.ones_like(chosen_on.y)
    made = fitted(
        tmp_path,
        Made(),
        chosen_on,
        features=(
            2,
            5,
        ),
    )
    assert set(made.choices["validation_auroc"].values()) == {None}
    assert made.choices["chosen_on"].startswith("nothing")
    assert (made.choices["pooling"], made.choices["features"]) == ("max", 2)


def test_a_number_is_told_by_ridge_on_the_features_that_move_with_it(tmp_path):
    train, test = Made(), Made(seed=2)
    for made in (train, test):
        made.y = made.pooled("max")[:, BY_MAX] * 2 - 1
    made = fitted(tmp_path, train, test, kind="regression", features=(3,), poolings=("max",))
    a, b = train.pooled("max"), test.pooled("max")
    covariance = ((a - a.mean(0)) * (train.y - train.y.mean())[:, None]).mean(0)
    some = np.argsort(-np.abs(covariance))[:3]
    assert some[0] == BY_MAX
    mean, scale = a[:, some].mean(0), a[:, some].std(0)
    head = Ridge(alpha=made.choices["alpha"]).fit((a[:, some] - mean) / scale, train.y)
    np.testing.assert_allclose(made.score(test.x), head.predict((b[:, some] - mean) / scale), atol=2e-3)


@pytest.mark.parametrize("how", ["max", "mean"])
def test_contributions_of_tokens_add_up_to_the_score_but_for_a_constant(how, tmp_path):
    train = Made(by_mean=0.7)
    made = fitted(tmp_path, train, features=(5,), poolings=(how,))
    scores = made.score(train.x)
    rest = []
    for example, score in zip(train.x, scores, strict=True):
        found = made.contributions(example)
        assert found.values.shape == (len(train.features[example.key]),)
        assert found.score == pytest.approx(score)
        assert found.values.sum() + found.rest == pytest.approx(score)
        rest.append(found.rest)
        by_feature = made.feature_contributions(example)
        assert by_feature.shape == (len(found.values), 5)
        np.testing.assert_allclose(by_feature.sum(1), found.values, atol=1e-9)
    np.testing.assert_allclose(rest, rest[0], atol=1e-5)


def test_contributions_name_the_features_that_weigh_most_in_the_example(tmp_path):
    train = Made()
    made = fitted(tmp_path, train, features=(3,), poolings=("max",))
    example = train.x[int(np.argmax(train.pooled("max")[:, BY_MAX]))]
    (first, *_) = made.contributions(example).notes
    assert first.startswith(f"feature {BY_MAX} adds +")


def test_the_token_that_was_planted_is_the_one_shown(tmp_path):
    train = Made()
    made = fitted(tmp_path, train, features=(3,), poolings=("max",))
    best = made.top_features()[0]
    assert best.index == BY_MAX
    assert best.weight > 0
    pooled = train.pooled("max")
    assert best.difference == pytest.approx(
        pooled[train.y == 1, BY_MAX].mean() - pooled[train.y == 0, BY_MAX].mean(), abs=1e-4
    )
    order = train.x.keys[np.argsort(-pooled[:, BY_MAX], kind="stable")]
    assert [o.key for o in best.occurrences] == order[:5].tolist()
    for found in best.occurrences:
        column = train.features[found.key][:, BY_MAX]
        assert found.token == column.argmax()
        assert found.token_id == 100 + column.argmax()
        assert found.value == pytest.approx(column.max(), abs=1e-4)


def test_an_example_without_states_is_abstained_on_and_not_learnt_from(tmp_path):
    train, chosen_on = Made(), Made(seed=1)
    held = dict(together(train, chosen_on).held)
    del held[int(train.x.keys[0])]
    made = Sae(sae=saved(tmp_path), features=(4,))
    made.activations = HeldActivations("reader", held)
    made.fit(train.x, train.y, train.groups, chosen_on.validation, 0)
    assert made.choices["n_train_without_activations"] == 1
    held[int(train.x.keys[1])] = {BLOCK: np.full((3, WIDTH), np.nan, np.float32)}
    made.activations = HeldActivations("reader", held)
    scores = made.score(train.x)
    assert np.isnan(scores).tolist() == [True, True] + [False] * (len(train.x) - 2)
    for example in train.x[:2]:
        with pytest.raises(LmassayError, match="NaN|have none"):
            made.contributions(example)
    with pytest.raises(LmassayError, match="NaN or infinity"):
        made.fit(train.x, train.y, train.groups, chosen_on.validation, 0)
    kept = np.arange(1, len(train.x))
    again = Sae(sae=saved(tmp_path), features=(4,))
    again.activations = together(train, chosen_on)
    again.fit(train.x.take(kept), train.y[kept], train.groups[kept], chosen_on.validation, 0)
    np.testing.assert_allclose(again.score(train.x)[2:], scores[2:], atol=1e-6)


def test_a_class_whose_examples_all_lack_states_is_refused(tmp_path):
    train = Made()
    made = Sae(sae=saved(tmp_path))
    held = {key: train.store.held[key] for key in train.x.keys[train.y == 1].tolist()}
    made.activations = HeldActivations("reader", held)
    with pytest.raises(LmassayError, match="one class"):
        made.fit(train.x, train.y, train.groups, train.validation, 0)


def _refused(match, folder=None, *, train=None, **options):
    train = train or Made()
    made = Sae(**({"sae": folder} if folder else {}) | options)
    made.activations = train.store
    with pytest.raises(LmassayError, match=match) as caught:
        made.fit(train.x, train.y, train.groups, train.validation, 0)
    assert caught.value.code == "bad-request"
    return str(caught.value)


def test_an_autoencoder_of_another_width_is_refused_with_both_shapes(tmp_path):
    message = _refused("width", saved(tmp_path, DIRECTIONS[:, :10]))
    assert "10 → 12" in message
    assert "width 10" in message
    assert "width 16" in message


def test_an_autoencoder_that_does_not_give_the_states_back_is_refused_with_the_figure(tmp_path):
    train = Made()
    other = np.linalg.qr(np.random.default_rng(9).normal(size=(WIDTH, WIDTH)))[0][:4]
    message = _refused(r"explains -?\d\.\d{3} of the variance", saved(tmp_path, other), train=train)
    states = np.concatenate([s for of in train.store.held.values() for s in of.values()]).astype(np.float64)
    back = np.maximum(states @ other.T, 0) @ other
    wanted = 1 - ((states - back) ** 2).sum() / ((states - states.mean(0)) ** 2).sum()
    found = float(message.split("explains ")[1].split()[0])
    # A sample of 64 of the 80 examples.
    assert found == pytest.approx(wanted, abs=0.1)
    assert "min_explained" in message


def test_requests_that_do_not_fit_say_what_to_do(tmp_path):
    _refused(r"--option sae=DIR")
    _refused("block 3 .*not 5", saved(tmp_path / "a"), block=5)
    _refused("does not state which block", saved(tmp_path / "b", hook=None))
    _refused("at block 9", saved(tmp_path / "c", hook=None), block=9)
    for options, match in (
        ({"features": (4, 0)}, "positive"),
        ({"features": ()}, "positive"),
        ({"poolings": ("last",)}, "no pooling 'last'"),
        ({"poolings": ()}, "no pooling"),
        ({"per_example": 0}, "per_example"),
        ({"sae": ("a", "b"), "block": 1}, "1 blocks were named for 2"),
    ):
        with pytest.raises(LmassayError, match=match):
            Sae(**options)


def test_a_pickled_method_leaves_the_autoencoder_in_its_file_and_refuses_another(tmp_path):
    train = Made()
    made = fitted(tmp_path, train, features=(4,))
    before, store = made.score(train.x), made.activations
    kept = pickle.dumps(made)
    assert len(kept) < 30_000
    again = pickle.loads(kept)
    again.activations = store
    np.testing.assert_array_equal(again.score(train.x), before)
    saved(tmp_path, DIRECTIONS[::-1])
    again = pickle.loads(kept)
    again.activations = store
    with pytest.raises(LmassayError, match="another than the one fitted on"):
        again.score(train.x)


def test_a_kept_method_scores_and_shows_the_same(tmp_path):
    train = Made()
    made = fitted(tmp_path / "sae", train, features=(4,))
    made.save(tmp_path / "kept")
    again = load_probe(tmp_path / "kept", made.activations)
    np.testing.assert_array_equal(again.score(train.x), made.score(train.x))
    assert again.top_features() == made.top_features()
    first, second = (m.contributions(train.x[3]) for m in (made, again))
    np.testing.assert_array_equal(first.values, second.values)
    assert (first.score, first.rest, first.notes) == (second.score, second.rest, second.notes)
    with pytest.raises(LmassayError, match="not been fitted"):
        Sae(sae=saved(tmp_path / "sae")).save(tmp_path / "none")


@pytest.mark.slow
def test_it_keeps_the_contract_of_a_method(tmp_path):
    folder = saved(tmp_path / "sae", np.concatenate([np.eye(8), -np.eye(8)]), hook=None)
    # One candidate: there are hundreds of fits in a check.
    options = {"sae": (folder,), "block": (1,), "features": (8,)}
    assert check_method("sae", "binary", options | {"poolings": ("max",)})
    assert check_method("sae", "regression", options | {"poolings": ("mean",), "per_example": 6})


def test_settings_follow_what_the_file_holds_and_not_where_it_is(tmp_path):
    one, same = Sae(sae=saved(tmp_path / "a")), Sae(sae=saved(tmp_path / "b"))
    other = Sae(sae=saved(tmp_path / "c", DIRECTIONS[::-1]))
    assert one.settings() == same.settings() != other.settings()
    assert one.settings() != Sae(sae=saved(tmp_path / "a"), per_example=7).settings()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), keep=st.integers(1, 40))
def test_the_largest_values_are_kept_with_their_places(seed, keep):
    rng = np.random.default_rng(seed)
    pooled = rng.permutation(30).astype(np.float32) * (rng.random(30) < 0.6)
    values, places = largest(torch.from_numpy(pooled), keep)
    wanted = [i for i in np.argsort(-pooled) if pooled[i] > 0][:keep]
    assert sorted(wanted) == places.tolist()
    assert pooled[places].tolist() == values.tolist()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_rows_changes_no_difference_and_no_rank(seed):
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 4, (20, 9)).astype(np.float32)
    y = rng.permutation(np.arange(20) % 2).astype(np.float64)
    found = class_difference(csr_array(dense), y, "binary")
    exact = dense.astype(np.float64)
    np.testing.assert_allclose(found, exact[y == 1].mean(0) - exact[y == 0].mean(0), atol=1e-12)
    order = rng.permutation(20)
    np.testing.assert_allclose(class_difference(csr_array(dense[order]), y[order], "binary"), found, atol=1e-12)
    ranked = ranked_features(np.array([0.0, -2.0, 1.0, 2.0, 0.0]))
    assert ranked.tolist() == [1, 3, 2]


def test_an_example_that_stands_twice_is_shown_once():
    rows = csr_array(np.array([[3.0, 0], [3.0, 0], [5.0, 0], [0, 1.0]], np.float32))
    assert largest_examples(rows, np.array([4, 4, 2, 9])) == [[2, 4], [9]]
