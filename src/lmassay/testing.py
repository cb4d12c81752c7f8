"""Conformance suites for what comes from outside: ``check_method``."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.examples import Segment, VisibleExample
from lmassay.methods.held_activations import word_states
from lmassay.methods.method import ACTIVATIONS, BINARY, REGRESSION, Validation, lacks
from lmassay.methods.registry import load_method

Floats = NDArray[np.float64]

#: Two scores of one example may differ by rounding.
TOLERANCE = 1e-6
_WORDS = ("so", "the", "sum", "of", "two", "numbers", "is", "wait", "perhaps", "not", "answer", "seven", "A", "B")
#: Texts that occur in published data or could.
_ODD = ("", " ", "\n\n", "\x00\x1b[31m", "\u202eabc", "\ud800", "日本語。", "x" * 5000, "[bold]", "nan")


@dataclass(frozen=True, slots=True)
class _Data:
    x: list[VisibleExample]
    y: Floats
    groups: NDArray[np.int64]

    @property
    def validation(self) -> Validation:
        return Validation(self.x, self.y, self.groups)


def check_method(
    method: str | type[Any], kind: str | None = None, options: Mapping[str, Any] | None = None
) -> list[str]:
    """Hold a method to the contract of `lmassay.methods.method.Method`.

    One that sees activations is given some made of the words of the texts (`word_states`: blocks 0 and 1, 8 wide).

    Parameters
    ----------
    method : str or class
        A registered name, or a class that takes ``kind``.
    kind : {"binary", "regression"}, optional
        Default: every kind the method says it can do.
    options : mapping, optional
        What else its constructor is given.

    Returns
    -------
    list of str
        Names of the checks that held.

    Raises
    ------
    AssertionError
        Naming every check that did not hold, and why.
    """
    cls = load_method(method) if isinstance(method, str) else method
    held, broken = [], []
    made = _Maker(cls, dict(options or {}))
    probes = _PROBE_CHECKS if _sees_activations(cls) else ()
    for one in [kind] if kind is not None else list(getattr(cls, "kinds", (BINARY,))):
        for check in (*_CHECKS, *probes):
            name = check.__name__.removeprefix("_")
            try:
                check(made, one)
                held.append(f"{name}[{one}]")
            except AssertionError as error:
                broken.append(f"{name}[{one}]: {error}")
            except Exception as error:
                broken.append(f"{name}[{one}]: raised {type(error).__name__}: {error}")
    if broken:
        raise AssertionError(f"{getattr(cls, 'id', cls.__name__)} breaks the contract:\n  " + "\n  ".join(broken))
    return held


def _sees_activations(cls: type[Any]) -> bool:
    return bool(getattr(cls, "sees", "") == ACTIVATIONS)


class _Maker:
    """Makes a method as the checks want it: with its options, and with activations of whatever it is handed.

    Everything else of the class is read through it.
    """

    def __init__(self, cls: type[Any], options: Mapping[str, Any]) -> None:
        self.cls, self.options = cls, options

    def __call__(self, kind: str) -> Any:
        made = self.cls(kind, **self.options)
        return _Fed(made) if _sees_activations(self.cls) else made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cls, name)


class _Fed:
    """A method that is given activations of the very examples it is about to see."""

    def __init__(self, made: Any, absent: frozenset[int] = frozenset()) -> None:
        self.made, self.absent = made, absent

    def fit(self, X: Any, y: Any, groups: Any, validation: Validation, seed: int) -> None:
        self._feed([*X, *validation.X])
        self.made.fit(X, y, groups, validation, seed)

    def score(self, X: Any) -> Any:
        self._feed(X)
        return self.made.score(X)

    def _feed(self, examples: Sequence[VisibleExample]) -> None:
        self.made.activations = word_states(x for x in examples if x.key not in self.absent)


def _example(rng: np.random.Generator, key: int, positive: bool) -> VisibleExample:
    def words(n: int) -> str:
        return " ".join(rng.choice(_WORDS[:-2], n))

    suggestion = str(rng.choice(["A", "B"]))
    answer = suggestion if positive and rng.random() < 0.8 else str(rng.choice(["A", "B"]))
    cot = words(int(rng.integers(5, 40))) + (" hmm wait." if positive else ".")
    return VisibleExample(
        key,
        (
            Segment("prompt", words(8)),
            Segment("option", "seven", "A"),
            Segment("option", "eight", "B"),
            Segment("suggestion", suggestion),
            Segment("message", words(6), "user"),
            Segment("message", words(12), "assistant"),
            Segment("cot", cot),
            Segment("answer", answer),
        ),
    )


def _data(kind: str, seed: int, n: int = 60) -> _Data:
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(n) % 2)
    x = [_example(rng, int(rng.integers(2**62)), bool(v)) for v in label]
    y = label.astype(np.float64) if kind == BINARY else label + rng.normal(size=n) * 0.1
    return _Data(x, y, rng.integers(0, 10, n))


def _fitted(cls: _Maker, kind: str, seed: int = 0, validation: Validation | None = None) -> tuple[Any, _Data]:
    data = _data(kind, seed)
    made = cls(kind)
    made.fit(data.x, data.y, data.groups, validation or _data(kind, seed + 100).validation, 0)
    return made, data


def _same(a: Any, b: Any, what: str) -> None:
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert first.shape == second.shape, f"{what}: shapes {first.shape} and {second.shape}"
    apart = ~(np.isclose(first, second, rtol=0, atol=TOLERANCE) | (np.isnan(first) & np.isnan(second)))
    assert not apart.any(), f"{what}: {int(apart.sum())} of {len(first)} scores differ"


def _attributes(cls: _Maker, kind: str) -> None:
    assert isinstance(getattr(cls, "id", None), str), "it has no id"
    assert re.fullmatch(r"[a-z][a-z0-9_]*", cls.id), f"id {cls.id!r} is not of lower-case letters, digits and _"
    known = getattr(cls, "kinds", (BINARY,))
    assert set(known) <= {BINARY, REGRESSION}, f"kinds {known} are not binary and regression"
    assert kind in known, f"it does not say that it can do {kind}"
    assert lacks(cls, ("prompt", "option", "suggestion", "message", "cot", "answer")) is None, "needs unknown segments"


def _scores_are_numbers(cls: _Maker, kind: str) -> None:
    made, data = _fitted(cls, kind)
    scores = np.asarray(made.score(data.x))
    assert scores.shape == (len(data.x),), f"{len(data.x)} examples gave shape {scores.shape}"
    assert np.issubdtype(scores.dtype, np.floating), f"scores are of type {scores.dtype}, not floating point"
    assert not np.isinf(scores).any(), "a score is infinite; abstain with NaN"
    if np.isnan(scores).any():
        assert getattr(cls, "abstains", ""), "it abstains (NaN), and `abstains` does not say when"


def _no_examples_give_no_scores(cls: _Maker, kind: str) -> None:
    made, _ = _fitted(cls, kind)
    assert np.asarray(made.score([])).shape == (0,), "score([]) is not of shape (0,)"


def _refuses(cls: _Maker, kind: str, data: _Data, what: str) -> None:
    try:
        cls(kind).fit(data.x, data.y, data.groups, _data(kind, 7).validation, 0)
    except (LmassayError, ValueError):
        return
    raise AssertionError(f"fit took {what} without LmassayError or ValueError")


def _no_training_rows_are_refused(cls: _Maker, kind: str) -> None:
    _refuses(cls, kind, _Data([], np.zeros(0), np.zeros(0, np.int64)), "no training rows")


def _one_class_is_refused(cls: _Maker, kind: str) -> None:
    if kind == BINARY:
        data = _data(kind, 0)
        _refuses(cls, kind, _Data(data.x, np.ones(len(data.x)), data.groups), "one class")


def _labels_that_are_no_numbers_are_refused(cls: _Maker, kind: str) -> None:
    data = _data(kind, 0)
    y = data.y.copy()
    y[3] = np.nan
    _refuses(cls, kind, _Data(data.x, y, data.groups), "a label that is NaN")


def _rows_do_not_influence_each_other(cls: _Maker, kind: str) -> None:
    """Batch, order and the length of the neighbours (so: padding) change nothing."""
    made, data = _fitted(cls, kind)
    whole = np.asarray(made.score(data.x))
    alone = np.concatenate([np.asarray(made.score([x])) for x in data.x[:8]])
    _same(alone, whole[:8], "scored alone and among others")
    _same(made.score(data.x[::-1]), whole[::-1], "scored in reverse order")
    long = VisibleExample(1, tuple(Segment(s.kind, s.text * 200, s.label) for s in data.x[0].segments))
    _same(np.asarray(made.score([*data.x[:8], long]))[:8], whole[:8], "scored beside a very long example")


def _fitting_again_forgets(cls: _Maker, kind: str) -> None:
    made, data = _fitted(cls, kind)
    before = np.asarray(made.score(data.x)).copy()
    validation = _data(kind, 100).validation
    made.fit(data.x, data.y, data.groups, validation, 0)
    _same(made.score(data.x), before, "fitted twice on the same rows")
    other = _data(kind, 5)
    made.fit(other.x, other.y, other.groups, _data(kind, 105).validation, 1)
    made.fit(data.x, data.y, data.groups, validation, 0)
    _same(made.score(data.x), before, "fitted on other rows in between")
    _same(_fitted(cls, kind)[0].score(data.x), before, "a new object, fitted on the same rows")


def _inputs_stay_as_they_were(cls: _Maker, kind: str) -> None:
    data, validation = _data(kind, 0), _data(kind, 100)
    y, groups = data.y.copy(), data.groups.copy()
    made = cls(kind)
    made.fit(data.x, y, groups, validation.validation, 0)
    assert (y == data.y).all(), "fit changed y"
    assert (groups == data.groups).all(), "fit changed groups"
    made.score(data.x)


def _validation_is_for_choosing_only(cls: _Maker, kind: str) -> None:
    if getattr(cls, "chooses_on_validation", False):
        return
    made, data = _fitted(cls, kind)
    turned = _data(kind, 100)
    other, _ = _fitted(cls, kind, validation=Validation(turned.x, 1 - turned.y, turned.groups))
    _same(other.score(data.x), made.score(data.x), "validation labels turned around, though it chooses nothing on them")


def _kept_and_loaded_scores_the_same(cls: _Maker, kind: str) -> None:
    made, data = _fitted(cls, kind)
    before = np.asarray(made.score(data.x)).copy()
    _same(pickle.loads(pickle.dumps(made)).score(data.x), before, "after pickle")


def _odd_texts_are_scored(cls: _Maker, kind: str) -> None:
    made, data = _fitted(cls, kind)
    odd = [
        VisibleExample(i, tuple(Segment(s.kind, t, s.label) for s in data.x[0].segments)) for i, t in enumerate(_ODD)
    ]
    assert np.asarray(made.score(odd)).shape == (len(odd),)
    mixed = _Data([*data.x, *odd], np.append(data.y, np.arange(len(odd)) % 2), np.append(data.groups, [99] * len(odd)))
    again = cls(kind)
    again.fit(mixed.x, mixed.y, mixed.groups, _data(kind, 100).validation, 0)
    assert np.asarray(again.score(odd)).shape == (len(odd),)


_CHECKS: Sequence[Callable[[_Maker, str], None]] = (
    _attributes,
    _scores_are_numbers,
    _no_examples_give_no_scores,
    _no_training_rows_are_refused,
    _one_class_is_refused,
    _labels_that_are_no_numbers_are_refused,
    _rows_do_not_influence_each_other,
    _fitting_again_forgets,
    _inputs_stay_as_they_were,
    _validation_is_for_choosing_only,
    _kept_and_loaded_scores_the_same,
    _odd_texts_are_scored,
)


def _examples_without_activations_abstain(cls: _Maker, kind: str) -> None:
    """Rows of fit without activations are left out, rows of score abstain, and no other row notices."""
    made, data = _fitted(cls, kind)
    whole = np.asarray(made.score(data.x)).copy()
    made.absent = frozenset(x.key for x in data.x[::4])
    scores = np.asarray(made.score(data.x))
    gone = np.arange(len(data.x)) % 4 == 0
    assert np.isnan(scores[gone]).all(), "an example without activations is scored"
    _same(scores[~gone], whole[~gone], "scored beside examples without activations")
    again = cls(kind)
    again.absent = made.absent
    again.fit(data.x, data.y, data.groups, _data(kind, 100).validation, 0)
    assert np.isfinite(np.asarray(again.score(data.x))[~gone]).all(), "fit does not leave out rows without activations"


def _none_with_activations_is_refused(cls: _Maker, kind: str) -> None:
    data = _data(kind, 0)
    made = cls(kind)
    made.absent = frozenset(x.key for x in data.x)
    try:
        made.fit(data.x, data.y, data.groups, _data(kind, 7).validation, 0)
    except (LmassayError, ValueError):
        return
    raise AssertionError("fit took rows of which none has activations")


_PROBE_CHECKS: Sequence[Callable[[_Maker, str], None]] = (
    _examples_without_activations_abstain,
    _none_with_activations_is_refused,
)
