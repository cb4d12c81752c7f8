"""Which tokens of an example a reader gets, and which states are kept: what is asked for, caps, the context's end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError, nearest
from lmassay.examples import KINDS

if TYPE_CHECKING:
    from lmassay.cot.scaffold import TokenisedExample
    from lmassay.examples import VisibleExample

RULES = ("all", "cot", "last")
OVER_LENGTH = ("error", "skip", "left-truncate")
#: What may become of an example; the first is the store's `KEPT`.
STATUSES = ("ok", "no_tokens", "too_long")
#: Roles whose messages are the subject's own words.
OWN_ROLES = ("assistant", "model")


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What is asked for.

    Attributes
    ----------
    tokens : {"all", "cot", "last"}
        Every visible token; those of the chain of thought (of a conversation: the subject's own messages); the last
        visible one.
    max_cot_tokens : int or None
        A longer chain of thought (a longer conversation) loses its beginning before the reader gets it.
    over_length : {"error", "skip", "left-truncate"}
        What becomes of a text longer than the reader's context. Truncated, it keeps the special tokens that the
        tokenizer begins with and loses what comes next.
    """

    tokens: str = "all"
    max_cot_tokens: int | None = None
    over_length: str = "error"

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.tokens, RULES, "tokens"),
            (self.over_length, OVER_LENGTH, "rule for texts over the context's length"),
        ):
            if value not in known:
                raise LmassayError("bad-request", f"no {what} {value!r}", nearest(value, known))
        if self.max_cot_tokens is not None and self.max_cot_tokens < 1:
            raise LmassayError(
                "bad-request", f"--max-cot-tokens {self.max_cot_tokens}", "give a positive number, or leave it out"
            )


@dataclass(frozen=True, slots=True)
class Prepared:
    """An example as the reader gets it.

    Attributes
    ----------
    ids : (n,) int32
    segment : (n,) int32
        As in `TokenisedExample`.
    kept : (m,) int64
        Tokens whose states are kept.
    status : str
        One of `STATUSES`.
    shortened, truncated : int
        Tokens lost to `max_cot_tokens`, and to the context's length.
    """

    ids: NDArray[np.int32]
    segment: NDArray[np.int32]
    kept: NDArray[np.int64]
    status: str
    shortened: int
    truncated: int

    def spans(self, example: VisibleExample) -> NDArray[np.int32]:
        """(n_spans, 3) number of the kind, first kept token and the one after the last, of each segment kept."""
        owner = self.segment[self.kept]
        if not len(owner):
            return np.zeros((0, 3), dtype=np.int32)
        first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        kinds = [KINDS.index(example.segments[int(n)].kind) for n in owner[first]]
        return np.stack([kinds, first, np.r_[first[1:], len(owner)]], axis=1).astype(np.int32)


def prepare(
    found: TokenisedExample, example: VisibleExample, rules: TokenRules, n_prefix: int, context: int | None
) -> Prepared:
    """Shorten an example as the rules say and choose the tokens to keep.

    Parameters
    ----------
    n_prefix : int
        Special tokens at the beginning that are never taken away.
    context : int or None
        The reader's longest sequence. Under the rule ``error`` a longer one is ``too_long``, as under ``skip``: the
        caller decides.
    """
    ids, segment = found.ids, found.segment
    stay = _within_cap(segment, example, rules.max_cot_tokens)
    shortened = int((~stay & (segment >= 0)).sum())
    ids, segment = ids[stay], segment[stay]
    truncated = 0
    status = STATUSES[0]
    if context is not None and len(ids) > context:
        if rules.over_length == "left-truncate":
            truncated = len(ids) - context
            fits = np.r_[np.arange(n_prefix), np.arange(n_prefix + truncated, len(ids))]
            ids, segment = ids[fits], segment[fits]
        else:
            status = "too_long"
    kept = np.flatnonzero(np.isin(segment, _wanted(example, rules.tokens)))
    if rules.tokens == "last":
        kept = kept[-1:]
    if status == STATUSES[0] and not len(kept):
        status = "no_tokens"
    return Prepared(ids, segment, kept, status, shortened, truncated)


def _wanted(example: VisibleExample, tokens: str) -> list[int]:
    """Numbers of the segments whose tokens may be kept."""
    if tokens != "cot":
        return list(range(len(example.segments)))
    return [
        n for n, s in enumerate(example.segments) if s.kind == "cot" or (s.kind == "message" and s.label in OWN_ROLES)
    ]


def _within_cap(segment: NDArray[np.int32], example: VisibleExample, cap: int | None) -> NDArray[np.bool_]:
    """(n,) tokens that stay when all but the last `cap` of the chain of thought go.

    In a conversation everything between its first token and the first that stays goes, the template's words too.
    """
    stay = np.ones(len(segment), dtype=np.bool_)
    thought = [n for n, s in enumerate(example.segments) if s.kind in ("cot", "message")]
    places = np.flatnonzero(np.isin(segment, thought))
    if cap is not None and len(places) > cap:
        stay[places[0] : places[len(places) - cap]] = False
    return stay
