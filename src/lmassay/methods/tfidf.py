"""TF-IDF of words and word pairs with a linear head: the text baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.examples import VisibleExample, VisibleExamples, texts
from lmassay.methods.heads import LinearHead, sparse_rows
from lmassay.methods.method import Examples, Floats, Groups, Labels, Method, Validation, check_training
from lmassay.methods.ngrams import NGramCounts
from lmassay.methods.registry import method

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_FEATURES = 10_000
#: So many of the heaviest words and pairs of either sign stand in `choices`.
TERMS = 15
#: Texts turned into Python strings at once.
_STEP = 64


class TfidfFeatures:
    """``TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=10_000, sublinear_tf=True)`` of sklearn, faster.

    White space cannot matter to words and pairs of words, so folding it is left out.

    Parameters
    ----------
    kinds : str
        Kinds of segment that are read, joined in the order in which they are shown.
    """

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self._counts = NGramCounts(MAX_FEATURES)
        self._weigh: Any = None

    @property
    def names(self) -> list[str]:
        """The vocabulary, in the order of the columns."""
        return self._counts.names

    def fit_transform(self, examples: Examples) -> csr_array[Any]:
        """(n,) examples -> (n, n_features) float64, rows of length 1 or 0."""
        from sklearn.feature_extraction.text import TfidfTransformer

        counts = self._counts.fit_transform(self._blocks(examples)).astype(np.float64)
        self._weigh = TfidfTransformer(sublinear_tf=True)
        return self._weighed(counts, fit=True)

    def transform(self, examples: Examples) -> csr_array[Any]:
        """(n,) examples -> (n, n_features) float64."""
        return self._weighed(self._counts.transform(self._blocks(examples)).astype(np.float64), fit=False)

    def _weighed(self, counts: csr_array[Any], *, fit: bool) -> csr_array[Any]:
        from scipy.sparse import csr_array

        if not counts.shape[1] or (not fit and not counts.shape[0]):
            return csr_array(counts.shape, dtype=np.float64)
        found = self._weigh.fit_transform(counts) if fit else self._weigh.transform(counts)
        return csr_array(found)

    def _blocks(self, examples: Examples) -> Iterator[Sequence[str]]:
        for start in range(0, len(examples), _STEP):
            yield texts(examples[start : start + _STEP], *self.kinds)


def kinds_of(examples: Sequence[VisibleExample]) -> tuple[str, ...]:
    """Kinds of segment that these examples have."""
    if isinstance(examples, VisibleExamples):
        return examples.kinds
    return tuple(dict.fromkeys(s.kind for example in examples for s in example.segments))


class _TextMethod(Method):
    """Feature blocks side by side, one for each namespace, and a linear head."""

    def _namespaces(self, kinds: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        raise NotImplementedError

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`; nothing is chosen on the validation rows and nothing is random."""
        check_training(y, self.kind)
        self._features = [TfidfFeatures(*kinds) for kinds in self._namespaces(kinds_of(X))]
        self._head = LinearHead(self.kind)
        self._head.fit(sparse_rows([f.fit_transform(X) for f in self._features]), y, groups)
        terms = [(where, term, round(weight, 6)) for where, term, weight in self.terms]
        heaviest = [t for t in terms if t[2] > 0][:TERMS] + [t for t in terms if t[2] < 0][:TERMS]
        self.choices = {**self._head.choices, "n_features": len(terms), "terms": [list(t) for t in heaviest]}

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        if not len(X):
            return np.zeros(0)
        return self._head.score(sparse_rows([f.transform(X) for f in self._features]))

    @property
    def terms(self) -> list[tuple[str, str, float]]:
        """Kinds of segment read, word or pair, and its weight; heaviest first."""
        names = [("+".join(f.kinds), name) for f in self._features for name in f.names]
        order = np.argsort(-np.abs(self._head.weights), kind="stable")
        return [(*names[i], float(self._head.weights[i])) for i in order]


@method
class Tfidf(_TextMethod):
    """The chain of thought alone (in a conversation: all turns)."""

    id = "tfidf"
    title = "TF-IDF, chain of thought"
    needs = (("cot",), ("message",))

    def _namespaces(self, kinds: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        return (("cot",) if "cot" in kinds else ("message",),)


@method
class TfidfAll(_TextMethod):
    """Prompt and chain of thought, each with a vocabulary of its own."""

    id = "tfidf_all"
    title = "TF-IDF, prompt and chain of thought"
    needs = (("cot",), ("message",))

    def _namespaces(self, kinds: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        own = ("cot",) if "cot" in kinds else ("message",)
        prompt = tuple(k for k in ("prompt", "option", "suggestion") if k in kinds)
        return (own, prompt) if prompt else (own,)
