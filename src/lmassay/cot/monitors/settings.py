"""What a command line says of a monitor: which items, how they are asked, and options of Inspect's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.extra import needs_inspect
from lmassay.cot.task import TaskData
from lmassay.errors import LmassayError


@dataclass(frozen=True, slots=True)
class Items:
    """Which items are asked about, as `lmassay.cot.load.load_task` takes them.

    Attributes
    ----------
    task : str
    layout, regime, validation, source
        See `load_task`.
    train_cap : int or None
        At most so many training rows, for the controls and for shots.
    """

    task: str
    layout: str = "head"
    regime: str | None = None
    validation: str | None = None
    source: Path | None = None
    train_cap: int | None = None

    def load(self) -> TaskData:
        """The data."""
        from lmassay.cot.cap import capped
        from lmassay.cot.load import load_task

        data = load_task(self.task, self.layout, self.regime, self.source, validation=self.validation)
        return data if self.train_cap is None else capped(data, self.train_cap)

    @property
    def named(self) -> list[str]:
        """For a folder's name."""
        data = self.source.stem if self.source else self.layout
        cap = f"cap{self.train_cap}" if self.train_cap else ""
        return [self.task, data, self.regime or "", self.validation or "", cap]


def parsed_settings(
    shots: int, confidence: bool, samples: int, options: Sequence[str]
) -> tuple[Asking, dict[str, Any]]:
    """Settings of a command line: ``NAME=VALUE`` of `Asking`, of `run_monitor`, or of Inspect's ``GenerateConfig``.

    Returns
    -------
    Asking, dict
        The rest are arguments of `run_monitor`.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    given = dict(_split(option) for option in options)
    asking = {"shots": shots, "confidence": confidence, "samples": samples}
    more: dict[str, Any] = {}
    kinds = {
        "max_chars": int,
        "overlength": str,
        "m": int,
        "limit": int,
        "base_url": str,
        "cells": Path,
        "subject": str,
    }
    for name, kind in kinds.items():
        if name in given:
            put = asking if name in ("max_chars", "overlength", "m") else more
            put[name] = _typed(name, given.pop(name), kind)
    if "structured" in given:
        text = given.pop("structured")
        if text not in ("true", "false"):
            raise LmassayError("bad-request", f"structured={text}", "give structured=true or structured=false")
        more["structured"] = text == "true"
    needs_inspect()
    return Asking(**asking), more | {"generation": checked_generation(given)}  # type: ignore[arg-type]


def _split(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals or not name:
        raise LmassayError("bad-request", f"{option!r} is no option", "write --option NAME=VALUE")
    return name, value


def _typed(name: str, text: str, kind: type[Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise LmassayError("bad-request", f"{name}={text} is no whole number", f"give {name}=N") from None


def checked_generation(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of Inspect's ``GenerateConfig``, typed by it.

    Raises
    ------
    LmassayError
        ``bad-request`` for an unknown name or a value that does not fit.
    """
    from inspect_ai.model import GenerateConfig
    from pydantic import ValidationError

    from lmassay.errors import nearest

    for name in given:
        if name not in GenerateConfig.model_fields:
            raise LmassayError(
                "bad-request", f"Inspect has no option {name!r}", nearest(name, GenerateConfig.model_fields)
            )
    try:
        config = GenerateConfig(**given)
    except ValidationError as error:
        fault = error.errors()[0]
        raise LmassayError(
            "bad-request", f"{'.'.join(str(p) for p in fault['loc'])}: {fault['msg']}", "see Inspect's GenerateConfig"
        ) from error
    return {name: getattr(config, name) for name in given}
