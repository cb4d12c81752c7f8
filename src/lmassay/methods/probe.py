"""What all probes share: activations they are given, rows they can use, and being kept in a folder without pickle."""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.methods.activations import Activations, keys_of
from lmassay.methods.method import ACTIVATIONS, Examples, Groups, Labels, Method, check_training
from lmassay.storage.atomic import write_bytes, write_json

ABOUT, ARRAYS = "probe.json", "probe.safetensors"
VERSION = 1


class Probe(Method):
    """Base of methods that read activations.

    A subclass's constructor takes ``kind`` and options that are strings, numbers, or tuples of them, and keeps each
    under its own name, as scikit-learn's estimators do. `fit` puts what it learnt where `learnt` finds it.

    Attributes
    ----------
    activations : Activations or None
        Set by the evaluator before `fit` and `score`, or by hand. Neither `save` nor pickle keeps them.
    """

    sees = ACTIVATIONS
    abstains = "there are no activations of the example"
    activations: Activations | None = None

    def options(self) -> dict[str, Any]:
        """The constructor's arguments but ``kind``, JSON-ready."""
        names = [n for n in inspect.signature(type(self)).parameters if n != "kind"]
        return {name: _plain(getattr(self, name)) for name in names}

    def settings(self) -> dict[str, Any]:
        """See `Method.settings`."""
        return self.options()

    def learnt(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `fit` left behind: JSON-ready values, and arrays.

        Raises
        ------
        LmassayError
            ``bad-request`` before `fit`.
        """
        raise NotImplementedError

    def take_up(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """The inverse of `learnt`."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Keep the fitted probe as JSON and safetensors.

        Raises
        ------
        LmassayError
            ``bad-request`` before `fit`; ``disk-full``.
        """
        save_probe(self, folder)

    @classmethod
    def load(cls, folder: Path, activations: Activations | None = None) -> Any:
        """A probe that was saved; see `load_probe`."""
        return load_probe(folder, activations, cls)

    def __getstate__(self) -> dict[str, Any]:
        # Gigabytes on a disk are no part of a probe.
        return {name: value for name, value in vars(self).items() if name != "activations"}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def training_rows(
    method: Method, store: Activations, X: Examples, y: Labels, groups: Groups
) -> tuple[NDArray[np.int64], Labels, Groups, int]:
    """Keys, labels and questions of the training rows that have activations, and how many have none.

    Raises
    ------
    LmassayError
        ``bad-request`` when the rows that are left allow no fit.
    """
    check_training(y, method.kind)
    keys = keys_of(X)
    there = store.lengths(keys) > 0
    left_out = int((~there).sum())
    try:
        check_training(y[there], method.kind)
    except LmassayError as error:
        if not left_out:
            raise
        raise LmassayError(
            "bad-request",
            f"{left_out} of {len(y)} training rows have no activations, and of the others: {error.what}",
            "extract the activations of this task's data, with the same or a larger --train-cap",
        ) from error
    return keys[there], y[there], groups[there], left_out


def check_finite(rows: NDArray[Any], keys: NDArray[np.int64], where: str) -> None:
    """Refuse training states that are no numbers.

    Raises
    ------
    LmassayError
        ``bad-request`` naming the first example.
    """
    bad = ~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    if bad.any():
        raise LmassayError(
            "bad-request",
            f"the activations of example {int(keys[np.argmax(bad)])} at {where} hold NaN or infinity "
            f"({int(bad.sum())} such)",
            "extract them again; float16 overflows where bfloat16 and float32 do not",
        )


def one_example(method: Method, store: Activations, example: VisibleExample) -> NDArray[np.int64]:
    """(1,) the key of an example that has activations.

    Raises
    ------
    LmassayError
        ``bad-request`` where it has none.
    """
    key = np.array([example.key], np.int64)
    if not store.lengths(key)[0]:
        raise LmassayError(
            "bad-request",
            f"the activations of {store.model} have none of example {example.key}",
            "extract them with a data set that holds it",
        )
    return key


def not_fitted(method: Method) -> LmassayError:
    """The error of asking an unfitted probe."""
    return LmassayError("bad-request", f"method {method.id} has not been fitted", "call fit first, or load a kept one")


def save_probe(probe: Probe, folder: Path) -> None:
    """Write ``probe.json`` and ``probe.safetensors``; see `Probe.save`."""
    from safetensors.numpy import save

    values, arrays = probe.learnt()
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / ARRAYS, data)
    write_json(
        folder / ABOUT,
        {
            "version": VERSION,
            "method": probe.id,
            "kind": probe.kind,
            "options": probe.options(),
            "learnt": values,
            "choices": dict(probe.choices),
            "arrays_sha256": hashlib.sha256(data).hexdigest(),
        },
    )


def load_probe(folder: Path, activations: Activations | None = None, cls: type[Any] | None = None) -> Any:
    """A probe from its folder, ready to score.

    Parameters
    ----------
    activations : Activations, optional
        What it reads; may be set later.
    cls : class, optional
        Default: the method of the name that the folder gives.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` for a folder that holds no probe, one of another version, or one that was altered.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    from lmassay.methods.registry import load_method

    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        data = (folder / ARRAYS).read_bytes()
        if about["version"] != VERSION:
            raise ValueError(f"it was kept in format {about['version']}, this is format {VERSION}")
        if hashlib.sha256(data).hexdigest() != about["arrays_sha256"]:
            raise ValueError(f"{ARRAYS} was cut short or altered")
        made = (cls or load_method(about["method"]))(about["kind"], **about["options"])
        if made.id != about["method"]:
            raise ValueError(f"it holds the method {about['method']}, not {made.id}")
        made.take_up(about["learnt"], load(data))
        made.choices = about["choices"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise LmassayError(
            "bad-run-folder", f"{folder} holds no probe that can be loaded: {error}", "run its command again"
        ) from error
    made.activations = activations
    return made
