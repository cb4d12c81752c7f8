"""Whether the optional package that monitors need is there."""

from __future__ import annotations

from importlib.util import find_spec

from lmassay.errors import LmassayError


def needs_inspect() -> None:
    """Say how to install Inspect where it is missing.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    if find_spec("inspect_ai") is None:
        raise LmassayError(
            "bad-request", "language models are asked through Inspect AI, which is not installed here",
            "pip install 'lmassay[monitors]'",
        )  # fmt: skip
