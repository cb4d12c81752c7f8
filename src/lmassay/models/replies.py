"""What a server's reply says: its text, its likeliest tokens, and what they tell about the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lmassay.models.sampling import LENGTH, STOP

if TYPE_CHECKING:
    from lmassay.models.asking import Server

#: Mass below which what a reply leaves to other tokens is rounding.
_ROUNDING = 1e-6


def chosen(server: Server, reply: Any) -> Any:
    """The one choice of a reply.

    Raises
    ------
    LmassayError
        ``server-failed``, saying what came.
    """
    choices = getattr(reply, "choices", None)
    if not isinstance(choices, list) or len(choices) != 1:
        came = reply if isinstance(reply, str) else getattr(reply, "model_dump_json", lambda: repr(reply))()
        raise server.nonsense(f"no choices in {' '.join(str(came).split())[:120]!r}")
    return choices[0]


def chosen_text(server: Server, reply: Any) -> tuple[str, str, int]:
    """Text, finish and number of tokens of a reply.

    Raises
    ------
    LmassayError
        ``server-failed`` when one is missing or unknown; ``server-cannot`` when the server takes the thinking out.
    """
    choice = chosen(server, reply)
    message = getattr(choice, "message", None)
    text = choice.text if message is None and hasattr(choice, "text") else getattr(message, "content", None)
    apart = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    if apart:
        raise server.cannot("it takes the thinking out of its replies: start it without a reasoning parser")
    if not isinstance(text, str):
        raise server.nonsense("a choice without text")
    finish = choice.finish_reason
    if finish not in (STOP, LENGTH):
        raise server.nonsense(f"a choice that finished by {finish!r}")
    n_tokens = getattr(getattr(reply, "usage", None), "completion_tokens", None)
    if not isinstance(n_tokens, int):
        raise server.nonsense("a reply that does not count its tokens (usage)")
    return text, finish, n_tokens


def tops_of(reply: Any) -> list[dict[str, float]]:
    """For each token of a reply its likeliest alternatives; empty where the reply has none.

    Both endpoints' shapes are read: a mapping for each token (completions), a list of entries (chat).
    """
    choices = getattr(reply, "choices", None)
    found = getattr(choices[0], "logprobs", None) if isinstance(choices, list) and choices else None
    if found is None:
        return []
    content = getattr(found, "content", None)
    if content:
        return [{entry.token: float(entry.logprob) for entry in token.top_logprobs or []} for token in content]
    tops = getattr(found, "top_logprobs", None) or []
    return [{str(k): float(v) for k, v in (one or {}).items()} for one in tops]


def bounded(top: Mapping[str, float], spellings: Sequence[str]) -> tuple[float, float]:
    """Lowest and highest log-probability of a token, given the likeliest ones.

    One that is not among them is no likelier than the least of them, nor than all they leave.
    """
    for spelling in spellings:
        if spelling in top:
            return top[spelling], top[spelling]
    left = 1.0 - math.fsum(map(math.exp, top.values()))
    return -math.inf, min(min(top.values()), math.log(max(left, _ROUNDING)))


def lower_kl(p: Mapping[str, float], q: Mapping[str, float]) -> float:
    """KL over the tokens that both list and one bucket for all others, nats: at most the KL over all tokens."""
    both = [token for token in p if token in q]
    total = math.fsum(math.exp(p[token]) * (p[token] - q[token]) for token in both if p[token] > -math.inf)
    rest = [max(_ROUNDING, 1.0 - math.fsum(math.exp(one[token]) for token in both)) for one in (p, q)]
    return max(0.0, total + rest[0] * (math.log(rest[0]) - math.log(rest[1])))
