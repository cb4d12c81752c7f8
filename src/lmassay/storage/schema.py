"""The JSON schemas of a run folder's files, for programs that read them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

#: ``run`` and ``scores`` are those of the xray suite.
NAMES = ("run", "scores", "cot_run", "cot_scores")


def schema(name: str) -> dict[str, Any]:
    """The schema (draft 2020-12) of ``run.json`` or ``scores.json``.

    Parameters
    ----------
    name : {"run", "scores", "cot_run", "cot_scores"}

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
