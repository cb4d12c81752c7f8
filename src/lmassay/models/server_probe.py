"""What a server can do, found out by a few requests of one token each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmassay.models.asking import Rejected, Server
from lmassay.models.replies import chosen_text, tops_of
from lmassay.models.sampling import LETTERS, PREFIX, PROMPT_LOGPROBS, Prompt

if TYPE_CHECKING:
    from lmassay.models.rendering import Renderer

#: Asks a chat endpoint to go on with the last message. llama.cpp does so unasked.
CONTINUE: dict[str, Any] = {"continue_final_message": True, "add_generation_prompt": False}
#: Switches off what servers do to a distribution by themselves: each has one of these names for it.
PLAIN: dict[str, Any] = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "repeat_penalty": 1.0,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
}
#: Has the alternatives named by token instead of by text, which several tokens may share.
BY_TOKEN: dict[str, Any] = {"return_tokens_as_token_ids": True}
#: Alternatives asked for, the most first.
TOPS = (50, 20, 5, 1)
_WORDS = 8


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes
    ----------
    way : {"tokens", "text", "chat"}
        How prompts are sent.
    extra : dict
        Fields beside the standard ones that the server takes.
    top : int
        Alternatives a reply may list; 0 for none.
    """

    way: str
    can: frozenset[str]
    extra: dict[str, Any]
    top: int
    notes: tuple[str, ...]


def probe(server: Server, renderer: Renderer | None) -> Found:
    """Try the server.

    Raises
    ------
    LmassayError
        ``server-failed`` when it does not answer or answers with nonsense; ``server-cannot`` when it has neither
        a completions endpoint for a known tokenizer nor a chat endpoint.
    """
    found = None if renderer is None else _completions(server, renderer)
    return found or _chat(server)


def _try(server: Server, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    """The reply, or the `Rejected` that came instead."""

    async def one(client: Any) -> Any:
        try:
            return await server.patiently(lambda: ask(client), trying=True)
        except Rejected as error:
            return error

    (reply,) = server.all([one])
    if isinstance(reply, Rejected) and reply.status in (401, 403):
        raise server.failed(f"it refuses this key: {reply}")
    return reply


def _completions(server: Server, renderer: Renderer) -> Found | None:
    """The completions endpoint, if it goes on from exactly what it is given."""
    prompt = Prompt.of("Name a number.")
    ids, text = renderer.ids(prompt), renderer.text(prompt)

    def ask(given: Any, **more: Any) -> Any:
        reply = _try(
            server,
            lambda client: client.completions.create(
                model=server.model, prompt=given, max_tokens=1, temperature=1.0, **more
            ),
        )
        if not isinstance(reply, Rejected):
            chosen_text(server, reply)
        return reply

    extra: dict[str, Any] = {}
    notes: list[str] = []
    reply = ask(ids, extra_body=PLAIN | BY_TOKEN)
    if isinstance(reply, Rejected):
        reply = ask(ids)
        notes.append("the server takes no fields beside the standard ones: its own top_k and min_p may apply")
    else:
        extra = PLAIN | BY_TOKEN
    way = "tokens"
    if isinstance(reply, Rejected):
        way, reply = "text", ask(text, extra_body=extra)
    if isinstance(reply, Rejected):
        return None
    if _prompt_tokens(reply) != len(ids):
        if way == "tokens":
            raise server.cannot(
                f"it counts {_prompt_tokens(reply)} tokens where {len(ids)} were sent: is this the model's tokenizer?"
            )
        notes.append(f"the server reads {_prompt_tokens(reply)} tokens in a text of {len(ids)}: it adds some")
        return None
    top = next((n for n in TOPS if _lists(ask(ids if way == "tokens" else text, logprobs=n, extra_body=extra))), 0)
    can = {PREFIX}
    if top:
        can.add(LETTERS)
        echoed = ask(ids, logprobs=top, echo=True, extra_body=extra) if way == "tokens" else None
        if echoed is not None and not isinstance(echoed, Rejected) and len(tops_of(echoed)) >= len(ids):
            can.add(PROMPT_LOGPROBS)
        else:
            notes.append("the server tells no log-probabilities of a prompt's own tokens: no token KL")
    else:
        notes.append("the server tells no log-probabilities: no answer distributions")
    return Found(way, frozenset(can), extra, top, tuple(notes))


def _chat(server: Server) -> Found:
    """The chat endpoint, and whether it goes on with an assistant's last message."""
    user = {"role": "user", "content": "Count."}

    def ask(*turns: dict[str, str], **more: Any) -> Any:
        reply = _try(
            server,
            lambda client: client.chat.completions.create(
                model=server.model, messages=list(turns), max_tokens=1, temperature=1.0, **more
            ),
        )
        if not isinstance(reply, Rejected):
            chosen_text(server, reply)
        return reply

    extra: dict[str, Any] = PLAIN
    notes: list[str] = []
    reply = ask(user, extra_body=extra)
    if isinstance(reply, Rejected):
        extra, reply = {}, ask(user)
        notes.append("the server takes no fields beside the standard ones: its own top_k and min_p may apply")
    if isinstance(reply, Rejected):
        raise server.cannot(f"it takes no request of the simplest kind: {reply}")
    can = set()
    if _continues(_prompt_tokens(reply), ask, user, extra):
        can.add(PREFIX)
    else:
        notes.append("the server does not continue an assistant's turn: no forced prefixes")
    top = next((n for n in TOPS if _lists(ask(user, logprobs=True, top_logprobs=n, extra_body=extra))), 0)
    if top:
        can.add(LETTERS)
    else:
        notes.append("the server tells no log-probabilities: no answer distributions")
    notes.append("no token KL without the model's tokenizer")
    return Found("chat", frozenset(can), extra, top, tuple(notes))


def _continues(alone: int | None, ask: Callable[..., Any], user: dict[str, str], extra: dict[str, Any]) -> bool:
    """Whether a last assistant message is continued, told by the tokens the server counts.

    A message that is continued adds its own tokens to the prompt; one taken for a finished turn also adds what ends
    the turn and begins the next.
    """
    counts = []
    for words in (1, 1 + _WORDS):
        turn = {"role": "assistant", "content": " ".join(["one"] * words)}
        reply = ask(user, turn, extra_body=extra | CONTINUE)
        counts.append(None if isinstance(reply, Rejected) else _prompt_tokens(reply))
    one, many = counts
    if alone is None or one is None or many is None:
        return False
    each = (many - one) / _WORDS
    return each > 0 and abs(one - alone - each) <= 1


def _prompt_tokens(reply: Any) -> int | None:
    n = getattr(getattr(reply, "usage", None), "prompt_tokens", None)
    return n if isinstance(n, int) else None


def _lists(reply: Any) -> bool:
    """Whether a reply lists alternatives."""
    return not isinstance(reply, Rejected) and any(tops_of(reply))
