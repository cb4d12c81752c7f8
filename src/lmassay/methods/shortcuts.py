"""The control that a method must beat: every allowed surface feature at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.methods.heads import LinearHead, sparse_rows, standardised
from lmassay.methods.method import Examples, Floats, Groups, Labels, Method, Validation, check_training
from lmassay.methods.registry import method
from lmassay.methods.surface import agreement, length, position, reading, stacked

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Words at either end that are looked at, and columns their hashes share.
ENDS, COLUMNS = 20, 2**12


@method
class Shortcuts(Method):
    """Length, position features, agreement, answer letter, and the first and last 20 words (hashed)."""

    id = "shortcuts"
    title = "length, position, agreement, answer, first and last words"
    needs = (("cot",), ("message",))

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """See `Method.fit`."""
        check_training(y, self.kind)
        counted = stacked(X, length, position, agreement)
        self._mean, self._scale = counted.mean(0), counted.std(0)
        self._head = LinearHead(self.kind)
        self._head.fit(self._features(X, counted), y, groups)
        self.choices = self._head.choices

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        if not len(X):
            return np.zeros(0)
        return self._head.score(self._features(X, stacked(X, length, position, agreement)))

    def _features(self, examples: Examples, counted: Floats) -> csr_array[Any]:
        from scipy.sparse import csr_array
        from sklearn.feature_extraction import FeatureHasher

        hasher = FeatureHasher(COLUMNS, input_type="string", alternate_sign=False)
        words = []
        for example in examples:
            # Hashing wants UTF-8, which a lone surrogate is not.
            found = reading(example).encode("utf-8", "backslashreplace").decode().lower().split()
            answer = example.text("answer").encode("utf-8", "backslashreplace").decode().strip()[:20]
            words.append(
                [f"first {w}" for w in found[:ENDS]]
                + [f"last {w}" for w in found[-ENDS:]]
                + ([f"answer {answer}"] if answer else [])
            )
        hashed = csr_array(hasher.transform(words))
        return sparse_rows([csr_array(standardised(counted, self._mean, self._scale)), hashed])
