"""Fit one method and let it score: what it gets, and what it may give back."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.predictions import TRAIN, VALIDATION, MethodScores
from lmassay.cot.task import OK, OWN, STATUSES, CotTask, SplitData, TaskData
from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.methods.constructor import check_options
from lmassay.methods.method import BINARY, REGRESSION, MethodLike, Validation, check_training, lacks, method_hash
from lmassay.methods.registry import BUILT_IN, CONTROLS, load_method
from lmassay.seeds import derive

Floats = NDArray[np.float64]


def method_kind(task: CotTask) -> str:
    """What a method has to tell on this task: a class or a number.

    Raises
    ------
    LmassayError
        ``bad-request`` for a task of selection.
    """
    if task.kind == "selection":
        raise LmassayError(
            "bad-request", f"task {task.id} is about choosing sentences; methods do not run on it", "see cot tasks"
        )
    return REGRESSION if task.kind == "regression" else BINARY


def check_data(data: TaskData) -> None:
    """Refuse data that cannot be evaluated on, before anything slow happens.

    Raises
    ------
    LmassayError
        ``bad-request`` naming the split or kind of segment that is missing.
    """
    method_kind(data.task)
    for name in (TRAIN, VALIDATION):
        if name not in data.splits:
            why = (
                " and no two training questions to hold one out of" if name == VALIDATION and data.layout == OWN else ""
            )
            raise LmassayError("bad-request", f"task {data.task.id} has no split {name}{why}", "add it to the data")
    if not data.test_splits:
        raise LmassayError("bad-request", f"task {data.task.id} has no test split", "add one to the data")
    if "cot" in data.missing and data.layout == OWN:
        raise LmassayError("bad-request", "the data has no column cot, which every method reads", "add it to the file")
    if "cot" in data.missing:
        raise LmassayError(
            "bad-request",
            f"task {data.task.id} was published without the text of any chain of thought, so no method can read it",
            "build the task's data with a model of your own",
        )
    train = data[TRAIN]
    try:
        check_training(train.y[train.usable], method_kind(data.task))
    except LmassayError as error:
        unusable = Counter(status for status in train.status.tolist() if status != OK)
        said = "".join(f"; {n:,} of {len(train):,} rows: {STATUSES.get(s, s)}" for s, n in unusable.most_common())
        raise LmassayError(
            "bad-request", f"task {data.task.id}, split {TRAIN}: {error.what}{said}", error.do
        ) from error


def made_method(
    method: str | type[Any] | MethodLike, data: TaskData, options: Mapping[str, Any] | None = None
) -> MethodLike:
    """A method by name, class or as it is, able to do this task.

    Parameters
    ----------
    options : mapping, optional
        What the constructor is given beside ``kind``.

    Raises
    ------
    LmassayError
        ``bad-request`` for an unknown name or option, or a task the method is not for.
    """
    kind = method_kind(data.task)
    cls = load_method(method) if isinstance(method, str) else method
    _check_name(cls)
    if isinstance(cls, type):
        known = getattr(cls, "kinds", (BINARY, REGRESSION))
        if kind not in known:
            raise LmassayError(
                "bad-request",
                f"method {getattr(cls, 'id', cls.__name__)} cannot do task {data.task.id}, which is {kind}",
                f"it is for {' and '.join(known)} tasks",
            )
        check_options(cls, options or {})
        made: MethodLike = cls(kind, **(options or {}))
    elif options:
        raise LmassayError(
            "bad-request", f"method {cls.id} is made already, so it takes no options", "give its class, or no options"
        )
    else:
        made = cls
        if getattr(made, "kind", kind) != kind:
            raise LmassayError(
                "bad-request",
                f"method {made.id} was made for {made.kind}, task {data.task.id} is {kind}",
                f"make it with kind={kind!r}",
            )
    if (why := lacks(made, _kinds(data))) is not None:
        raise LmassayError(
            "bad-request",
            f"method {made.id} cannot run on task {data.task.id}: {why}",
            "choose another method, or data that has it",
        )
    return made


def _check_name(method: Any) -> None:
    """Refuse what is no method, and one that goes by the name of a control or another method of ours."""
    cls = method if isinstance(method, type) else type(method)
    name = getattr(method, "id", None)
    if name is None or not callable(getattr(cls, "score", None)):
        raise LmassayError(
            "bad-request", f"{cls.__name__} is no method", "give a name, or a class with id, fit and score"
        )
    if name in BUILT_IN and load_method(str(name)) is not cls:
        raise LmassayError("bad-request", f"two methods are called {name!r}", "give yours another id")


def controls_for(data: TaskData, method_id: str) -> tuple[list[MethodLike], list[str]]:
    """The controls this task allows, but the method itself; and what is left out, with the reason."""
    kind, made, left_out = method_kind(data.task), [], []
    for name in CONTROLS:
        cls = load_method(name)
        why = f"it is for {' and '.join(cls.kinds)} tasks" if kind not in cls.kinds else lacks(cls, _kinds(data))
        if name == method_id:
            continue
        if why is not None:
            left_out.append(f"control {name} does not apply: {why}")
        else:
            made.append(cls(kind))
    return made, left_out


def _kinds(data: TaskData) -> tuple[str, ...]:
    return tuple(k for k in data[TRAIN].examples.kinds if k not in data.missing)


def fit_and_score(method: MethodLike, data: TaskData, seed: int) -> MethodScores:
    """Fit on the training rows and score validation and every test split; labels of the latter are never passed on.

    Raises
    ------
    LmassayError
        ``method-failed`` when the method raises, or returns anything but one number per example.
    """
    train, validation = data[TRAIN], data[VALIDATION]
    chooses = bool(method.chooses() if hasattr(method, "chooses") else getattr(method, "chooses_on_validation", False))
    choosing = _choosing_half(validation, seed) if chooses else np.zeros(len(validation), np.bool_)
    given = choosing & validation.usable if chooses else validation.usable
    x, y, groups = _usable(train)
    # Copies, so that a method that writes into its arguments changes nothing of ours.
    with _blamed(method, "fit"):
        method.fit(
            x,
            y.copy(),
            groups.copy(),
            Validation(validation.examples.take(given), validation.y[given], validation.groups[given]),
            derive(seed, str(method.id), "method"),
        )
    scores = {}
    for name in (VALIDATION, *data.test_splits):
        split = data[name]
        found = np.full(len(split), np.nan)
        with _blamed(method, f"score on {name}"):
            found[split.usable] = checked(method.score(split.examples.take(split.usable)), int(split.usable.sum()))
        scores[name] = found
    choices, answers = dict(getattr(method, "choices", {})), getattr(method, "answers", None)
    return MethodScores(str(method.id), method_hash(method), scores, choosing, choices, answers)


def _usable(split: SplitData) -> tuple[Any, Floats, NDArray[np.int64]]:
    rows = split.usable
    return split.examples.take(rows), split.y[rows], split.groups[rows]


def _choosing_half(split: SplitData, seed: int) -> NDArray[np.bool_]:
    """(n,) rows of every second question, in the order of a hash."""
    questions = sorted(np.unique(split.groups).tolist(), key=lambda g: derive(seed, str(g), "validation half"))
    return np.isin(split.groups, questions[::2])


def checked(scores: Any, n: int) -> Floats:
    """(n,) float64 of whatever a method returned.

    Raises
    ------
    ValueError
        When it is not one number per example.
    """
    found = np.asarray(scores)
    if found.shape != (n,):
        raise ValueError(f"{n} examples were scored with an array of shape {found.shape}")
    if not np.issubdtype(found.dtype, np.number) and not np.issubdtype(found.dtype, np.bool_):
        raise ValueError(f"scores are of type {found.dtype}, not numbers")
    if np.iscomplexobj(found):
        raise ValueError("scores are complex numbers")
    return found.astype(np.float64)


@contextlib.contextmanager
def _blamed(method: MethodLike, where: str) -> Any:
    try:
        yield
    except LmassayError:
        raise
    # A method that leaves the program has failed as one that raises.
    except (Exception, SystemExit) as error:
        why = " ".join(str(error).split())[:200]
        raise LmassayError(
            "method-failed",
            f"method {method.id}, {where}: {type(error).__name__}: {why}",
            "mend the method (lmassay.testing.check_method helps) and run the same command again",
            exit_status=FAILED_PART_WAY,
        ) from error
