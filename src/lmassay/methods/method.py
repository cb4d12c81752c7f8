"""What a method is: fit on visible examples, score visible examples, and nothing else."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample

Floats = NDArray[np.float64]
Labels = NDArray[np.float64]
Groups = NDArray[np.int64]
Examples: TypeAlias = Sequence[VisibleExample]

BINARY, REGRESSION = "binary", "regression"
TEXT, ACTIVATIONS, MODEL = "text", "activations", "model"


@dataclass(frozen=True, slots=True)
class Validation:
    """Rows kept from fitting, on which a method may choose.

    Attributes
    ----------
    X : sequence of VisibleExample
    y : (n,) float64
    groups : (n,) int64
    """

    X: Examples
    y: Labels
    groups: Groups


class Method:
    """Base of every method; a class that merely has these names will do as well.

    Parameters
    ----------
    kind : {"binary", "regression"}
        What is to be told: a class, or a number.

    Attributes
    ----------
    id : str
        As in ``--method``.
    title : str
        One line for tables.
    sees : {"text", "activations", "model"}
    general : bool
        Whether it is the same for every task; false for what was made for one.
    kinds : tuple of str
        What it can tell: ``binary``, ``regression``.
    needs : tuple of tuple of str
        Kinds of segment it cannot do without: all kinds of one of these sets. Empty: it takes what there is.
    chooses_on_validation : bool
        Whether `fit` chooses anything on its validation rows. If so it is given half of them, by question, and the
        evaluator takes the threshold from the other half. `chooses` says whether it does with what it was given.
    abstains : str
        When a score is NaN; empty: never.
    choices : mapping
        What `fit` chose (a regularisation, a block), for the run's record. JSON-ready.
    """

    id: ClassVar[str]
    title: ClassVar[str] = ""
    sees: ClassVar[str] = TEXT
    general: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = (BINARY, REGRESSION)
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    chooses_on_validation: ClassVar[bool] = False
    abstains: ClassVar[str] = ""

    def __init__(self, kind: str = BINARY) -> None:
        if kind not in self.kinds:
            raise LmassayError(
                "bad-request", f"method {self.id} cannot do {kind}", f"it is for {' and '.join(self.kinds)} tasks"
            )
        self.kind = kind
        self.choices: Mapping[str, Any] = {}

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """Learn from (n,) examples, labels 1/0 (or numbers) and question numbers.

        Fitting again forgets what was learnt before.

        Raises
        ------
        LmassayError
            ``bad-request`` when the rows do not allow it (none, or of one class).
        """
        raise NotImplementedError

    def score(self, X: Examples) -> Floats:
        """(n,) float64, higher = positive (or the number itself); NaN = abstains. Rows do not influence each other."""
        raise NotImplementedError

    def chooses(self) -> bool:
        """Whether `fit` will choose on validation rows; less than the class promises where there is one candidate."""
        return self.chooses_on_validation

    def settings(self) -> dict[str, Any]:
        """What else decides its scores, JSON-ready; part of the method's hash."""
        return {}


class MethodLike(Protocol):
    """What the evaluator uses of a method."""

    id: Any
    kind: str
    choices: Mapping[str, Any]

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> object:
        """See `Method.fit`."""
        ...

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        ...


def method_hash(method: MethodLike) -> str:
    """sha256 over the method's name, settings and the source of its module: another code is another method."""
    module = inspect.getmodule(type(method))
    try:
        source = inspect.getsource(module) if module is not None else _compiled(type(method))
    except (OSError, TypeError):
        source = _compiled(type(method))
    settings = method.settings() if hasattr(method, "settings") else {}
    record = json.dumps([method.id, method.kind, type(method).__qualname__, settings], sort_keys=True, default=str)
    return hashlib.sha256(f"{record}\x1f{source}".encode("utf-8", "surrogatepass")).hexdigest()


def _compiled(cls: type[Any]) -> str:
    """The code of a class without a file, such as one of a notebook's cells: bytecode, names and constants."""
    parts: list[str] = []

    def add(code: CodeType) -> None:
        parts.append(f"{code.co_name} {code.co_names} {code.co_code.hex()}")
        for constant in code.co_consts:
            add(constant) if isinstance(constant, CodeType) else parts.append(repr(constant))

    for owner in cls.__mro__[:-1]:
        for name, value in sorted(vars(owner).items()):
            held = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)) or value)
            if isinstance(held, FunctionType):
                add(held.__code__)
            elif not name.startswith("__"):
                parts.append(f"{name} {value!r}")
    return "\n".join(parts)


def lacks(method: Any, kinds: Sequence[str]) -> str | None:
    """Why examples with these kinds of segment are not enough for a method; None when they are."""
    needs = tuple(getattr(method, "needs", ()))
    if not needs or any(set(wanted) <= set(kinds) for wanted in needs):
        return None
    return f"the task shows no {' or no '.join(' and '.join(sorted(set(w) - set(kinds))) for w in needs)}"


def check_training(y: Labels, kind: str) -> None:
    """Refuse training rows nothing can be learnt from.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    if not len(y):
        raise LmassayError("bad-request", "there are no training rows", "check the training split")
    if not np.isfinite(y).all():
        raise LmassayError("bad-request", "a training label is no number", "leave rows without a label out")
    if kind == BINARY and len(np.unique(y)) < 2:
        raise LmassayError("bad-request", "the training rows hold one class", "check the training split's labels")
