"""Constructor arguments of a method, from the words of a command line or as values."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from lmassay.errors import LmassayError, nearest

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parsed_options(cls: type[Any], given: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` words as the constructor's arguments, each of the type its signature says.

    A tuple is written with commas: ``blocks=8,16``.

    Raises
    ------
    LmassayError
        ``bad-request`` for a word without ``=``, a name that is not there or stands twice, or a value of another type.
    """
    found: dict[str, Any] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise LmassayError("bad-request", f"option {word!r} is not NAME=VALUE", "write for example blocks=8,16")
        if name in found:
            raise LmassayError("bad-request", f"option {name} stands twice", "name it once")
        kind = known_options(cls).get(name)
        if kind is None:
            raise _unknown(cls, name)
        try:
            found[name] = _value(text, kind)
        except ValueError as error:
            raise LmassayError(
                "bad-request", f"option {name}={text!r} of method {cls.id} is not {_said(kind)}", "give such a value"
            ) from error
    return found


def check_options(cls: type[Any], options: Mapping[str, Any]) -> None:
    """Refuse arguments a constructor does not have.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    for name in options:
        if name not in known_options(cls):
            raise _unknown(cls, name)


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same, JSON-ready, by name."""
    return {name: plain(options[name]) for name in sorted(options)}


def plain(value: Any) -> Any:
    """A value of an option as JSON has it."""
    return [plain(v) for v in value] if isinstance(value, tuple | list) else str(value) if _is_path(value) else value


def known_options(cls: type[Any]) -> dict[str, Any]:
    """Name -> type of every argument of the constructor but ``kind``; Any where the signature says none."""
    try:
        hints = get_type_hints(cls.__init__)
    except (NameError, TypeError):
        hints = {}
    parameters = list(inspect.signature(cls).parameters.values())
    named = [p for p in parameters if p.name != "kind" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {p.name: hints.get(p.name, Any) for p in named}


def _unknown(cls: type[Any], name: str) -> LmassayError:
    known = known_options(cls)
    hint = nearest(name, known) if known else "it has none"
    return LmassayError("bad-request", f"method {getattr(cls, 'id', cls.__name__)} has no option {name!r}", hint)


def _is_path(value: Any) -> bool:
    return isinstance(value, Path)


def _value(text: str, kind: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        inner = [k for k in get_args(kind) if k is not type(None)]
        if len(inner) < len(get_args(kind)) and text.lower() == "none":
            return None
        # The narrowest type that takes the text: a number is also a string.
        for one in sorted(inner, key=lambda k: _ORDER.index(k) if k in _ORDER else len(_ORDER) - 2):
            try:
                return _value(text, one)
            except ValueError:
                continue
        raise ValueError(text)
    if origin in (tuple, list):
        of = [k for k in get_args(kind) if k is not Ellipsis]
        return tuple(_value(part.strip(), of[0] if of else str) for part in text.split(",") if part.strip())
    if kind is bool:
        return _truth(text)
    readers: dict[Any, Callable[[str], Any]] = {int: int, float: _number, Path: Path}
    return readers.get(kind, str)(text)


_ORDER = (int, float, bool, Path, str)


def _truth(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError(text)
    return _WORDS[text.lower()]


def _number(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), -float("inf")):
        raise ValueError(text)
    return value


def _said(kind: Any) -> str:
    names = {int: "a whole number", float: "a finite number", bool: "true or false"}
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_said(k) for k in get_args(kind) if k is not type(None))
    if get_origin(kind) in (tuple, list):
        of = [k for k in get_args(kind) if k is not Ellipsis]
        return f"a list with commas, each {_said(of[0] if of else str)}"
    return names.get(kind, "text")
