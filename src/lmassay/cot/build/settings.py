"""Settings of a builder named on the command line: ``rollouts=20``, ``rule.agree=.8``, ``sampling.max_tokens=300``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from lmassay.errors import LmassayError, nearest

S = TypeVar("S")


def configured(settings: S, named: Iterable[str]) -> S:
    """The settings with some ``NAME=VALUE`` changed; a dotted name reaches into the rule or the sampling.

    Raises
    ------
    LmassayError
        ``bad-request`` for an unknown name or a value of another type.
    """
    for one in named:
        name, equals, value = one.partition("=")
        if not equals:
            raise LmassayError("bad-request", f"option {one!r} is not NAME=VALUE", f"such as {_names(settings)[0]}=…")
        settings = _with(settings, name.strip().split("."), value.strip(), name.strip())
    return settings


def named(settings: Any, before: str = "") -> dict[str, Any]:
    """Every setting by its dotted name, JSON-ready."""
    found: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            found |= named(value, f"{before}{field.name}.")
        else:
            found[before + field.name] = list(value) if isinstance(value, tuple) else value
    return found


def _names(settings: Any) -> list[str]:
    return list(named(settings))


def _with(settings: Any, path: list[str], value: str, whole: str) -> Any:
    head, *rest = path
    held = getattr(settings, head, None) if head in {f.name for f in fields(settings)} else None
    if held is None or is_dataclass(held) != bool(rest):
        raise LmassayError("bad-request", f"no option {whole!r}", nearest(whole, _names(settings)))
    try:
        new = _with(held, rest, value, whole) if rest else _read(held, value)
        return replace(settings, **{head: new})
    except ValueError as error:
        raise LmassayError(
            "bad-request", f"option {whole}: {value!r} does not do ({error})", f"it is {held!r} by default"
        ) from error


def _read(held: Any, value: str) -> Any:
    if isinstance(held, tuple):
        kind = type(held[0]) if held else str
        return tuple(kind(part) for part in value.split(",") if part)
    return type(held)(value)
