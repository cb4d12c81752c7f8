"""The text a tuned lens is fitted on: cut into sequences of tokens, with a part held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.measures.intervals import FEW, FEWEST
from lmassay.models.language_model import LanguageModel
from lmassay.seeds import generator

#: Tokens of one sequence: longer ones cost attention, shorter ones show the lens little context.
LENGTH = 256
#: Held out is a tenth of the sequences; up to a quarter to have enough for an interval, no more than a table needs.
TENTH, QUARTER, HELD_OUT_MOST = 10, 4, 16


@dataclass(frozen=True)
class Sequences:
    """Token ids of equal length, each begun by what the tokenizer puts before a text.

    Attributes
    ----------
    train : (n, length) int64
    held_out : (m, length) int64
        The end of the text, so that no sentence is on both sides.
    n_prefix : int
        Leading tokens that are the same in every sequence, and not fitted on.
    sha256 : str
        Of the text's token ids.
    """

    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    n_prefix: int
    sha256: str

    @property
    def n_tokens(self) -> int:
        """Tokens of one sequence that are fitted on."""
        return int(self.train.shape[1]) - self.n_prefix


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise LmassayError("bad-request", f"{path} is no UTF-8 text ({error.reason})", "name a plain text") from error
    except OSError as error:
        raise LmassayError("bad-request", f"cannot read {path}: {error.strerror or error}", "name a text") from error


def sequences(model: LanguageModel, text: str, tokens_per_step: int) -> Sequences:
    """Cut a text for one model.

    Parameters
    ----------
    tokens_per_step : int
        Sequences are no longer than this, and the training part holds at least as many tokens.

    Raises
    ------
    LmassayError
        ``bad-request`` for a text that is too short.
    """
    prefix = list(model.tokens.prefix)
    ids = model.tokens.encode(text)
    n_tokens = min(LENGTH, tokens_per_step, (model.context_length or LENGTH + len(prefix)) - len(prefix))
    per_step = sequences_per_step(tokens_per_step, n_tokens)
    n = len(ids) // n_tokens
    wanted = max(n // TENTH, min(FEW, n // QUARTER))
    held_out = max(FEWEST, min(HELD_OUT_MOST, wanted, n - per_step))
    if n < held_out + per_step:
        raise LmassayError(
            "bad-request",
            f"the text has {len(ids)} tokens, and a step with what is held out takes {(FEWEST + per_step) * n_tokens}",
            "give a longer text, or a smaller --tokens-per-step",
        )
    body = np.array(ids[: n * n_tokens], dtype=np.int64).reshape(n, n_tokens)
    rows = np.concatenate([np.tile(np.array(prefix, dtype=np.int64), (n, 1)), body], axis=1)
    sha256 = hashlib.sha256(np.array(ids, dtype="<i8").tobytes()).hexdigest()
    return Sequences(rows[:-held_out], rows[-held_out:], len(prefix), sha256)


def sequences_per_step(tokens_per_step: int, n_tokens: int) -> int:
    """As many sequences as come nearest to the tokens asked for, at least one."""
    return max(1, round(tokens_per_step / n_tokens))


def chosen(n: int, per_step: int, step: int, seed: int) -> NDArray[np.int64]:
    """(per_step,) sequences of a step: every epoch in an order of its own, so a step needs nothing of those before."""
    steps = n // per_step
    epoch, at = divmod(step, steps)
    order = generator(seed, f"epoch.{epoch}", "fit-lens order").permutation(n)
    return np.asarray(order[at * per_step : (at + 1) * per_step])
