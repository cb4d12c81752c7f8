"""The features a run's head uses, with the training examples and tokens where each is largest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.cot.probe_view import AROUND, store_of
from lmassay.cot.probing import kept_method
from lmassay.errors import LmassayError
from lmassay.storage.runs import finished_record

if TYPE_CHECKING:
    from lmassay.methods.activations import Activations
    from lmassay.methods.sae_shown import Feature


@dataclass(frozen=True, slots=True)
class Shown:
    """An occurrence in its text.

    Attributes
    ----------
    key : int
        Of the training example.
    place : int
        Of the token among the kept ones.
    value : float
        Of the feature there.
    before, text, after : str
        The token and its neighbours.
    """

    key: int
    place: int
    value: float
    before: str
    text: str
    after: str


@dataclass(frozen=True, slots=True)
class FeatureView:
    """A feature of the head, with its occurrences as text."""

    index: int
    weight: float
    difference: float
    occurrences: tuple[Shown, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def view_features(
    run: Path,
    n: int,
    text_of: Callable[[str, list[int]], list[str]],
    activations: Path | Activations | None = None,
) -> tuple[dict[str, Any], list[FeatureView]]:
    """What a run's method chose, and its `n` features of largest weight.

    Parameters
    ----------
    text_of : callable
        A reader's name and token ids -> the text of each token.
    activations : path or Activations, optional
        Default: where they were when the run was made.

    Raises
    ------
    LmassayError
        ``bad-request`` where the run's method has no features, or the activations are others; ``bad-run-folder``.
    """
    record = finished_record(run)
    if "activations" not in record["identity"]:
        raise LmassayError("bad-request", f"{run} keeps no words and read no activations", "name a run of sae or tfidf")
    store = store_of(run, record, activations)
    name = str(record["identity"]["method"]["id"])
    method = kept_method(run, name, store)
    if not hasattr(method, "top_features"):
        raise LmassayError("bad-request", f"method {name} reads no features", "name a run of --method sae")
    features: list[Feature] = list(method.top_features())[:n]
    # One call for all tokens: a tokenizer takes long to open.
    windows = [_window(store, o.key, o.token) for f in features for o in f.occurrences]
    texts = iter(text_of(store.model, [i for before, at, after in windows for i in (*before, at, *after)]))
    sizes = iter(windows)

    def shown(key: int, place: int, value: float) -> Shown:
        before, _, after = next(sizes)
        words = [next(texts) for _ in range(len(before) + 1 + len(after))]
        return Shown(
            key, place, value, "".join(words[: len(before)]), words[len(before)], "".join(words[len(before) + 1 :])
        )

    views = [
        FeatureView(f.index, f.weight, f.difference, tuple(shown(o.key, o.token, o.value) for o in f.occurrences))
        for f in features
    ]
    return dict(method.choices), views


def _window(store: Activations, key: int, place: int) -> tuple[list[int], int, list[int]]:
    """Ids before a token, its own, and after it."""
    ids = [int(i) for i in store.token_ids(key)]
    return ids[max(0, place - AROUND) : place], ids[place], ids[place + 1 : place + 1 + AROUND]
