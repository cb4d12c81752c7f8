"""Every error a user can meet: a code, what is wrong, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

BAD_REQUEST = 2
FAILED_PART_WAY = 3
FINDING = 4

#: code -> one-line title. Each code has a page ``docs/errors/<code>.md``.
CODES: dict[str, str] = {
    "activations-broken": "stored activations are missing, cut short or altered",
    "bad-battery": "rows of a battery file are not usable",
    "bad-option-scores": "rows of an option-score file are not usable",
    "bad-prompts": "lines of a file of questions are not usable",
    "bad-request": "the command's arguments do not fit together",
    "bad-run-folder": "the folder is not a readable run",
    "cot-data-broken": "chain-of-thought data cannot be read as what it should be",
    "cot-data-missing": "the chain-of-thought data asked for has not been imported",
    "disk-full": "the disk is full or a write failed",
    "executor-lost": "the workers asked for do not answer, or were lost",
    "interrupted": "the run was stopped before its end",
    "lens-mismatch": "the lens was fitted on another model",
    "licence-not-accepted": "the model's licence has not been accepted",
    "method-failed": "a method raised, or gave what are no scores",
    "model-failed-self-check": "the model does not behave as the measurement assumes",
    "model-not-found": "no such model name, folder or file",
    "model-not-supported": "the model's architecture or weights cannot be measured",
    "model-files-broken": "the model's files are missing, cut short or altered",
    "network-unavailable": "something must be downloaded and the network does not answer",
    "non-finite-logits": "the model returned NaN or infinite logits",
    "nothing-built": "no example of the data set qualified",
    "out-folder-unwritable": "the output folder cannot be written",
    "prompt-too-long": "prompts are longer than the model's context",
    "run-folder-in-use": "another process is writing to the run folder",
    "run-folder-mismatch": "the run folder holds a run of something else",
    "runs-not-comparable": "the runs were measured under different conventions",
    "server-cannot": "the model server lacks what was asked of it",
    "server-failed": "the model server failed, or answered with what is no answer",
    "tokenizer-not-usable": "the tokenizer cannot express the options",
    "unknown-battery": "no battery of that name, and no such file",
    "unknown-task": "no task of that name",
    "unsafe-weights": "the weights are pickled, which can run code when loaded",
}


class LmassayError(Exception):
    """An error with a code, a statement and a remedy, printed on one line.

    Parameters
    ----------
    code : str
        A key of `CODES`.
    what : str
        What is wrong, naming the thing.
    do : str
        What the user can do about it.
    exit_status : int
        2 when the request is wrong, 3 when the work failed part-way, 4 for a finding.
    """

    def __init__(self, code: str, what: str, do: str, *, exit_status: int = BAD_REQUEST) -> None:
        if code not in CODES:
            raise KeyError(f"undeclared error code {code!r}")
        self.code = code
        self.what = what
        self.do = do
        self.exit_status = exit_status
        super().__init__(f"{code}: {what} — {do}")

    def one_line(self) -> str:
        """The message with every control character (line breaks among them) made visible."""
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(self))


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that lists the known names nearest to `name`, or all of them when none is near."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
