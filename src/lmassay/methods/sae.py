"""A linear head on a few features of a sparse autoencoder, pooled over tokens."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.measures.intervals import Estimate
from lmassay.methods.activations import Activations, asked_of, given, keys_of
from lmassay.methods.contributions import Contributions
from lmassay.methods.heads import LinearHead
from lmassay.methods.method import BINARY, Examples, Floats, Groups, Labels, Validation
from lmassay.methods.probe import Probe, not_fitted, one_example, training_rows
from lmassay.methods.registry import method
from lmassay.methods.sae_features import (
    MAX,
    POOLINGS,
    dense,
    finite_states,
    largest,
    pooled_features,
    pooled_rows,
)
from lmassay.methods.sae_head import SaeHead, candidate_heads, figure
from lmassay.methods.sae_shown import Feature, Occurrence, largest_examples, occurrence
from lmassay.models.saes.explained import LEAST, check_explained, check_width, explained
from lmassay.models.saes.formats import open_sae
from lmassay.seeds import derive, generator

if TYPE_CHECKING:
    from lmassay.models.saes.autoencoder import SparseAutoencoder

#: Examples, and tokens of each, on which an autoencoder is checked.
SAMPLED_EXAMPLES, SAMPLED_TOKENS = 64, 64
#: Features that the contributions of an example name.
NAMED = 5


@method
class Sae(Probe):
    """Features of a sparse autoencoder pooled over tokens, those that differ most between classes, a linear head.

    Parameters
    ----------
    sae : sequence of str
        Folders of autoencoders; of several, one is chosen on the validation rows.
    block : sequence of int
        The block each one reads; by default what its file states.
    poolings : sequence of str
        Of ``max`` and ``mean``.
    features : sequence of int
        How many features, by size of the difference between classes.
    per_example : int
        Largest pooled features kept of an example; memory is this times the number of examples.
    min_explained : float
        Fraction of the variance of the states that an autoencoder must explain.
    allow_pickle : bool
        Take the pickles of ``dictionary_learning``.
    """

    id = "sae"
    title = "features of a sparse autoencoder"
    chooses_on_validation = True
    abstains = "there are no finite activations of the example"

    def __init__(
        self,
        kind: str = BINARY,
        sae: tuple[str, ...] = (),
        block: tuple[int, ...] = (),
        poolings: tuple[str, ...] = POOLINGS,
        features: tuple[int, ...] = (16, 64, 256),
        per_example: int = 1024,
        min_explained: float = LEAST,
        allow_pickle: bool = False,
    ) -> None:
        super().__init__(kind)
        self.sae = _tupled(sae)
        self.block = _tupled(block)
        self.poolings = _tupled(poolings)
        self.features = _tupled(features)
        self.per_example, self.min_explained, self.allow_pickle = per_example, min_explained, allow_pickle
        if unknown := [p for p in self.poolings or ("",) if p not in POOLINGS]:
            raise LmassayError("bad-request", f"no pooling {unknown[0]!r} of features", f"known: {', '.join(POOLINGS)}")
        if not self.features or min(*self.features, per_example) < 1:
            raise LmassayError("bad-request", "features and per_example are positive whole numbers", "leave them out")
        if len(self.block) not in (0, len(self.sae)):
            raise LmassayError(
                "bad-request",
                f"{len(self.block)} blocks were named for {len(self.sae)} sparse autoencoders",
                "name one for each, or none where the files state it",
            )
        self._saes: list[SparseAutoencoder] | None = None
        self._digests: list[str] = []

    def settings(self) -> dict[str, Any]:
        """See `Method.settings`: what the files hold counts, not where they are."""
        self._opened()
        return self.options() | {"sae": self._digests, "block": [self._block(at) for at in range(len(self.sae))]}

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`; autoencoder, pooling and number of features are chosen on the validation rows.

        Raises
        ------
        LmassayError
            ``bad-request`` also for an autoencoder of another width or block, or one that does not give the states
            back; the errors of reading one.
        """
        store = given(self)
        keys, y, groups, left_out = training_rows(self, store, X, y, groups)
        held = keys_of(validation.X)
        checks, kept = {}, []
        candidates: list[tuple[str, SaeHead]] = []
        figures: dict[str, float | None] = {}
        for place, sae in enumerate(self._opened()):
            block = self._block(place)
            asked_of(store.token_blocks, block, "the states of every token at block", store)
            check_width(sae, store.width, store.model)
            name = f"{Path(sae.name).name}@{block}"
            # Releases call folders alike under different parents.
            name = f"{name}#{place}" if name in checks else name
            checks[name] = self._check(sae, store, keys, block, seed)
            rows, _ = pooled_rows(sae, store, keys, block, self.poolings, self.per_example, finite=True)
            tested, there = pooled_rows(sae, store, held, block, self.poolings, self.per_example)
            kept.append(rows)
            for pooling in self.poolings:
                for candidate in candidate_heads(place, pooling, rows[pooling], y, groups, self.kind, self.features):
                    label = f"{name} {pooling} {len(candidate.features)}"
                    guess = candidate.score(dense(tested[pooling][there], candidate.features))
                    figures[label] = figure(self.kind, validation.y[there], guess)
                    candidates.append((label, candidate))
        best = max((f for f in figures.values() if f is not None), default=None)
        # Of equals, or where there is nothing to choose on, the first: fewer features, the pooling named first.
        self._fitted = next((c for label, c in candidates if figures[label] == best), candidates[0][1])
        self._features = self._shown(kept[self._fitted.place][self._fitted.pooling], keys, store)
        sae = self._opened()[self._fitted.place]
        self.choices = {
            "reader": store.model,
            "sae": Path(sae.name).name,
            "block": self._block(self._fitted.place),
            "pooling": self._fitted.pooling,
            "features": len(self._fitted.features),
            "chosen_on": "nothing: no figure is defined, so the first is taken" if best is None else "validation",
            **self._fitted.head.choices,
            "n_train": len(y),
            "n_train_without_activations": left_out,
            ("validation_auroc" if self.kind == BINARY else "validation_negative_mse"): {
                k: None if f is None else round(f, 6) for k, f in figures.items()
            },
            "explained": {k: e.to_dict() for k, e in checks.items()},
            "layout": sae.layout,
            "activation": sae.activation.kind,
            "normalisation": sae.normalisation,
            "trained_on": sae.stated.model,
            "trained_with_bos": sae.stated.bos,
            "notes": list(sae.stated.notes),
        }

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        found = self._found()
        if not len(X):
            return np.zeros(0)
        keys, sae, block = keys_of(X), self._opened()[found.place], self._block(found.place)
        rows, there = pooled_rows(sae, given(self), keys, block, (found.pooling,), self.per_example)
        scores = np.full(len(keys), np.nan)
        scores[there] = found.score(dense(rows[found.pooling][there], found.features))
        return scores

    def contributions(self, example: VisibleExample) -> Contributions:
        """See `Contributing`. Mean pooling shares a feature among the tokens it is on at; under max pooling it is all
        the token's where it is largest.
        """
        by_feature = self.feature_contributions(example)
        score = float(self.score([example])[0])
        total = by_feature.sum(0)
        names = [f.index for f in self._features]
        named = [
            f"feature {names[at]} adds {total[at]:+.3f}"
            for at in np.argsort(-np.abs(total), kind="stable")[:NAMED].tolist()
            if total[at]
        ]
        what = "share of the score, through the autoencoder's features"
        values = by_feature.sum(1)
        return Contributions(values, score, score - float(values.sum()), what, tuple(named))

    def feature_contributions(self, example: VisibleExample) -> Floats:
        """(n_tokens, k) what each token adds to the score through each feature, in the order of `top_features`.

        Raises
        ------
        LmassayError
            ``bad-request`` where there are no finite activations of the example.
        """
        found, store = self._found(), given(self)
        one_example(self, store, example)
        values = self._values(example.key)
        if not len(values):
            raise LmassayError(
                "bad-request",
                f"the activations of example {example.key} hold NaN or infinity",
                "extract them again; float16 overflows where bfloat16 and float32 do not",
            )
        if found.pooling == MAX:
            shares = np.zeros_like(values)
            top = values.argmax(0), np.arange(values.shape[1])
            shares[top] = values[top]
        else:
            shares = values / len(values)
        added: Floats = (shares * found.slope)[:, found.order]
        return added

    def top_features(self) -> tuple[Feature, ...]:
        """The head's features, largest weight first, each with the training examples where it is largest."""
        self._found()
        return self._features

    def learnt(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Probe.learnt`; the autoencoder's weights stay in its own file."""
        found = self._found()
        values = {
            "place": found.place,
            "pooling": found.pooling,
            "intercept": found.head.intercept,
            "head": found.head.choices,
            "saes": self._digests,
            "features": [asdict(f) for f in self._features],
        }
        arrays = {"mean": found.mean, "scale": found.scale, "difference": found.difference}
        return values, {**arrays, "weights": found.head.weights, "features": found.features}

    def take_up(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """See `Probe.take_up`."""
        head = LinearHead(self.kind)
        head.weights, head.intercept, head.choices = arrays["weights"], float(values["intercept"]), values["head"]
        self._digests = list(values["saes"])
        self._fitted = SaeHead(
            int(values["place"]),
            str(values["pooling"]),
            arrays["features"],
            arrays["difference"],
            arrays["mean"],
            arrays["scale"],
            head,
        )
        self._features = tuple(
            Feature(**f | {"occurrences": tuple(Occurrence(**o) for o in f["occurrences"])}) for f in values["features"]
        )

    def __getstate__(self) -> dict[str, Any]:
        """Weights of autoencoders can be many times the head's, so they stay in their files."""
        return super().__getstate__() | {"_saes": None}

    def _found(self) -> SaeHead:
        if not hasattr(self, "_fitted"):
            raise not_fitted(self)
        return self._fitted

    def _opened(self) -> list[SparseAutoencoder]:
        """Autoencoders, read when first needed; one that changed since it was fitted on is refused."""
        if not self.sae:
            raise LmassayError(
                "bad-request",
                "method sae was given no sparse autoencoder",
                "name its folder: --option sae=DIR; `lmassay models train-sae` makes a small one",
            )
        if self._saes is None:
            saes = [open_sae(path, allow_pickle=self.allow_pickle) for path in self.sae]
            digests = [sae.sha256 for sae in saes]
            if self._digests and digests != self._digests:
                raise LmassayError(
                    "bad-request",
                    f"the sparse autoencoder in {', '.join(map(str, self.sae))} is another than the one fitted on",
                    "fit again, or put the files back",
                )
            self._saes, self._digests = saes, digests
        return self._saes

    def _block(self, place: int) -> int:
        sae = self._opened()[place]
        said = sae.stated.block
        if not self.block:
            if said is None:
                raise LmassayError(
                    "bad-request",
                    f"sparse autoencoder {sae.name} does not state which block it reads",
                    "name it: --option block=N",
                )
            return said
        if said not in (None, self.block[place]):
            raise LmassayError(
                "bad-request",
                f"sparse autoencoder {sae.name} reads block {said} ({sae.stated.hook}), not {self.block[place]}",
                "leave block out, or choose an autoencoder of that block",
            )
        return int(self.block[place])

    def _check(
        self, sae: SparseAutoencoder, store: Activations, keys: NDArray[np.int64], block: int, seed: int
    ) -> Estimate:
        """The reconstruction of a sample of training tokens."""
        order = sorted(set(keys.tolist()), key=lambda key: derive(seed, str(key), "sae check"))
        texts = []
        for key in order[:SAMPLED_EXAMPLES]:
            states = finite_states(store, key, block)
            rng = generator(seed, str(key), "sae check tokens")
            texts.append(states[np.sort(rng.permutation(len(states))[:SAMPLED_TOKENS])])
        found = explained(sae, texts, generator(seed, "all", "sae check interval"))
        check_explained(sae, found, self.min_explained, f"{store.model}'s states after block {block}")
        return found

    def _values(self, key: int) -> Floats:
        """(n_tokens, k) the head's features at each token; those that pooling left out are 0."""
        found = self._fitted
        sae, block = self._opened()[found.place], self._block(found.place)
        states = finite_states(given(self), key, block)
        if not len(states):
            return np.zeros((0, len(found.features)))
        parts = [features[:, found.features].numpy() for _, features in sae.encoded(states)]
        _, kept = largest(pooled_features(sae, states)[found.pooling], self.per_example)
        return np.concatenate(parts).astype(np.float64) * np.isin(found.features, kept)

    def _shown(self, rows: Any, keys: NDArray[np.int64], store: Activations) -> tuple[Feature, ...]:
        """The head's features with the training examples, of (n, n_features) rows, where each is largest."""
        found = self._fitted
        wanted = largest_examples(rows[:, found.features], keys)
        # An example is encoded once, however many features it is shown for.
        values = {key: self._values(key) for key in sorted({k for some in wanted for k in some})}
        return tuple(
            Feature(
                int(found.features[at]),
                float(found.head.weights[at]),
                float(found.difference[at]),
                tuple(occurrence(values[key][:, at], key, store) for key in wanted[at]),
            )
            for at in found.order.tolist()
        )


def _tupled(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)
