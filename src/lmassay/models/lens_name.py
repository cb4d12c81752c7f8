"""How a lens is named on a command line; apart from the lens itself, so that a wrong name is told without torch."""

from __future__ import annotations

from pathlib import Path

from lmassay.errors import LmassayError

LOGIT, TUNED = "logit", "tuned"


def check_lens_name(lens: str) -> None:
    """Refuse what can be no lens before a model is opened for it.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    if lens not in (LOGIT, TUNED) and not Path(lens).expanduser().is_dir():
        raise LmassayError("bad-request", f"no lens folder {lens!r}", f"--lens is {LOGIT}, {TUNED} or a folder")
