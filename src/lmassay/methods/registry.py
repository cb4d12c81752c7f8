"""Methods by name: ours, those a program registered, and those of installed packages."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from lmassay.errors import LmassayError, nearest

M = TypeVar("M", bound=type[Any])

GROUP = "lmassay.methods"
#: Name -> module; imported when asked for, since some need heavy libraries.
BUILT_IN = {
    "random": "trivial",
    "length": "trivial",
    "position": "trivial",
    "prompt_only": "prompt_only",
    "agreement": "trivial",
    "shortcuts": "shortcuts",
    "tfidf": "tfidf",
    "tfidf_all": "tfidf",
    "linear": "linear",
    "attention": "attention",
    "mean_difference": "mean_difference",
    "lda": "lda",
    "sae": "sae",
}
#: What every method is held against, in the order of the tables.
CONTROLS = ("random", "length", "position", "prompt_only", "agreement", "shortcuts")

_registered: dict[str, type[Any]] = {}


def method(cls: M) -> M:
    """Class decorator: the class is a method of the name ``cls.id``.

    Raises
    ------
    LmassayError
        ``bad-request`` when another class has that name.
    """
    held = _registered.get(cls.id)
    taken = held is not None and (held.__module__, held.__qualname__) != (cls.__module__, cls.__qualname__)
    ours = cls.id in BUILT_IN and cls.__module__ != f"lmassay.methods.{BUILT_IN[cls.id]}"
    if taken or ours:
        raise LmassayError("bad-request", f"two methods are called {cls.id!r}", "give one of them another id")
    _registered[cls.id] = cls
    return cls


def _installed() -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def known_methods() -> tuple[str, ...]:
    """Every name that `load_method` takes."""
    return tuple(dict.fromkeys([*BUILT_IN, *_registered, *sorted(_installed())]))


def load_method(name: str) -> type[Any]:
    """The class of a method.

    Raises
    ------
    LmassayError
        ``bad-request`` for an unknown name, one that two packages claim, or a package that cannot be imported.
    """
    if name in BUILT_IN:
        import_module(f"lmassay.methods.{BUILT_IN[name]}")
        return _registered[name]
    if name in _registered:
        return _registered[name]
    points = _installed().get(name, [])
    if not points:
        raise LmassayError("bad-request", f"no method {name!r}", nearest(name, known_methods()))
    if len(points) > 1:
        whose = " and ".join(sorted({p.dist.name if p.dist else p.value for p in points}))
        raise LmassayError("bad-request", f"two packages have a method {name!r}: {whose}", "uninstall one of them")
    try:
        found = points[0].load()
    except Exception as error:
        raise LmassayError(
            "bad-request",
            f"method {name!r} ({points[0].value}) cannot be imported: {type(error).__name__}: {error}",
            "mend or reinstall the package it comes from",
        ) from error
    if not isinstance(found, type) or not callable(getattr(found, "score", None)):
        raise LmassayError("bad-request", f"{points[0].value} is no class with fit and score", "see add-a-method.md")
    return found
