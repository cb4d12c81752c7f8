"""The JSON schemas of a run folder's files, for programs that read them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

NAMES = ("run", "scores")


def schema(name: str) -> dict[str, Any]:
    """The schema (draft 2020-12) of ``<name>.json``.

    Parameters
    ----------
    name : {"run", "scores"}

    Raises
    ------
    KeyError
        For another name.
    """
    if name not in NAMES:
        raise KeyError(f"no schema {name!r}; known: {', '.join(NAMES)}")
    text = files("lmassay.storage").joinpath("schemas", f"{name}.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
