"""Methods that read activations: what they are given, what of it a run records, and the fitted method in its folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lmassay.cot.activations import check_store
from lmassay.cot.predictions import TRAIN
from lmassay.cot.task import TaskData
from lmassay.errors import LmassayError
from lmassay.methods.activations import Activations, given
from lmassay.methods.method import ACTIVATIONS, MethodLike
from lmassay.methods.registry import load_method
from lmassay.storage.activations import ActivationStore

#: In a run folder, the fitted method of a run that keeps it.
KEPT = "method"


def open_activations(activations: Path | str | Activations) -> Activations:
    """A store by its folder, or activations as they are.

    Raises
    ------
    LmassayError
        Those of `lmassay.storage.activations.ActivationStore`.
    """
    if isinstance(activations, Path | str):
        return ActivationStore(Path(activations))
    return activations


def sees_activations(method: Any) -> bool:
    """Whether a method, or a class of methods, reads activations."""
    return bool(getattr(method, "sees", "") == ACTIVATIONS)


def attach(method: MethodLike, activations: Path | str | Activations | None, data: TaskData) -> list[str]:
    """Give a method its activations; what a reader of the figures must know about them comes back.

    Raises
    ------
    LmassayError
        ``bad-request``: a method that reads them has none, another one was given some, or they are of other examples.
        ``run-folder-mismatch``: they were made of another task, layout or content.
    """
    if not sees_activations(method):
        if activations is not None:
            raise LmassayError(
                "bad-request", f"method {method.id} reads no activations", "leave --activations out, or name a probe"
            )
        return []
    if activations is not None:
        method.activations = open_activations(activations)  # type: ignore[attr-defined]
    store = given(method)
    if isinstance(store, ActivationStore):
        check_store(store, data)
    counts = {}
    for name, split in data.splits.items():
        keys = split.examples.keys[split.usable]
        counts[name] = int((store.lengths(keys) == 0).sum()), len(keys)
    if all(absent == n for absent, n in counts.values()):
        raise LmassayError(
            "bad-request",
            f"these activations of {store.model} hold no example of task {data.task.id}",
            "extract those of this task, layout and regime with `lmassay cot activations`",
        )
    return [
        f"{name}: {absent} of {n} usable rows have no activations and are "
        + ("not learnt from" if name == TRAIN else "not scored")
        for name, (absent, n) in counts.items()
        if absent
    ]


def identity_of_activations(method: MethodLike) -> dict[str, Any]:
    """What of a run's identity its activations are; empty for a method that reads none."""
    if not sees_activations(method):
        return {}
    store = given(method)
    return {"activations": {"reader": store.model, "sha256": store.fingerprint}}


def keep_method(method: MethodLike, run: Path) -> None:
    """Keep a fitted method in its run's folder, where it can be kept without pickle."""
    save = getattr(method, "save", None)
    if save is not None:
        # Of an earlier try that was stopped before its scores were.
        shutil.rmtree(run / KEPT, ignore_errors=True)
        save(run / KEPT)


def kept_method(run: Path, method_id: str, activations: Activations | None = None) -> Any:
    """The fitted method of a run.

    Raises
    ------
    LmassayError
        ``bad-request`` where the run did not keep it, ``bad-run-folder`` where it was altered.
    """
    cls = load_method(method_id)
    if not (run / KEPT).is_dir() or not hasattr(cls, "load"):
        raise LmassayError(
            "bad-request",
            f"{run} did not keep its fitted method {method_id}",
            "name a run of a method that reads activations",
        )
    return cls.load(run / KEPT, activations)
