"""Inspect's view of a model in this process: requests gather while others are answered, and are answered together."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from lmassay.cot.monitors.generation import Generated, Replier, Request
from lmassay.cot.monitors.structured import whole_replies
from lmassay.seeds import derive

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

#: Of a reply where nobody says: an object of one field has about ten tokens.
MAX_TOKENS = 64
#: Requests that may wait at once: the more wait, the more are answered together.
WAITING = 128
#: Seconds without a new request after which those that wait are read.
QUIET = 0.05

_opened: dict[str, LanguageModel] = {}


def use_model(model: LanguageModel, name: str | None = None) -> str:
    """Make an open model known to Inspect in this process; returns what to call it: ``lmassay/<name>``."""
    name = name or model.name
    _opened[name] = model
    return f"lmassay/{name}"


class InProcess(ModelAPI):
    """A model opened by `lmassay.models.open.open_model`, or one that was handed over by `use_model`.

    Model arguments (``-M``): ``dtype``, ``device``, ``revision``, ``max_rows``, ``accept_license``.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - Inspect's signature
        *,
        max_rows: int | None = None,
        **opening: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        model = _opened.get(model_name)
        if model is None:
            from lmassay.models.open import open_model

            model = _opened[model_name] = open_model(model_name, **opening)
        self.model = model
        self._queue = _Queue(Replier(model, max_rows=max_rows))

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - Inspect's name
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """See Inspect's `ModelAPI.generate`."""
        request = self.request(input, config)
        length = self.model.context_length
        n = len(request.ids)
        if length is not None and n + request.max_tokens > length:
            return ModelOutput.from_content(
                self.model_name, "", stop_reason="model_length", error=f"{n} tokens and a context of {length}"
            )
        started = time.monotonic()
        reply = await asyncio.wrap_future(self._queue.put(request))
        return ModelOutput(
            model=self.model_name,
            choices=[
                ChatCompletionChoice(
                    message=ChatMessageAssistant(content=reply.text, source="generate", model=self.model_name),
                    stop_reason="stop" if reply.ended else "max_tokens",
                )
            ],
            usage=ModelUsage(input_tokens=n, output_tokens=reply.n_tokens, total_tokens=n + reply.n_tokens),
            time=time.monotonic() - started,
        )

    def request(self, messages: list[ChatMessage], config: GenerateConfig) -> Request:
        """What is generated for some messages."""
        turns = [{"role": str(m.role), "content": m.text} for m in messages]
        schema = config.response_schema
        given = json.loads(schema.json_schema.model_dump_json(exclude_none=True)) if schema is not None else {}
        ids = tuple(rendered(self.model, turns))
        return Request(
            ids=ids,
            max_tokens=config.max_tokens or MAX_TOKENS,
            temperature=config.temperature or 0.0,
            seed=derive(config.seed or 0, str(ids), "in-process reply"),
            stop=tuple(config.stop_seqs or ()),
            allowed=whole_replies(given),
        )

    def max_tokens(self) -> int | None:
        """See Inspect's `ModelAPI.max_tokens`."""
        return MAX_TOKENS

    def max_connections(self) -> int:
        """See Inspect's `ModelAPI.max_connections`."""
        return WAITING

    def connection_key(self) -> str:
        """See Inspect's `ModelAPI.connection_key`."""
        return self.model_name


def rendered(model: LanguageModel, turns: list[dict[str, str]]) -> list[int]:
    """Tokens of a conversation up to the reply: by the chat template, or as plain text where there is none."""
    tokenizer = model.tokens.hf
    if getattr(tokenizer, "chat_template", None):
        from jinja2.exceptions import TemplateError

        # `enable_thinking` is what templates with a thinking switch read; the others ignore it.
        how = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
        try:
            text = tokenizer.apply_chat_template(turns, **how)
        except TemplateError:
            # Some templates have no place for a system message.
            text = tokenizer.apply_chat_template(_merged(turns), **how)
        # The template writes the special tokens itself.
        return model.tokens.encode(text)
    text = "\n\n".join(turn["content"] for turn in turns)
    return [*model.tokens.prefix, *model.tokens.encode(f"{text}\n")]


def _merged(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """The system message as the beginning of the first user message."""
    if len(turns) < 2 or turns[0]["role"] != "system":
        return turns
    first = {"role": turns[1]["role"], "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}
    return [first, *turns[2:]]


@dataclass
class _Queue:
    """Requests of any number of coroutines, worked off in batches by one thread."""

    replier: Replier
    waiting: list[tuple[Request, Future[Generated]]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    thread: threading.Thread | None = None

    def put(self, request: Request) -> Future[Generated]:
        """The reply, when it is there."""
        future: Future[Generated] = Future()
        with self.changed:
            self.waiting.append((request, future))
            if self.thread is None:
                self.thread = threading.Thread(target=self._work, daemon=True)
                self.thread.start()
            self.changed.notify()
        return future

    def _work(self) -> None:
        while True:
            self._answer(self._take())

    def _answer(self, taken: list[tuple[Request, Future[Generated]]]) -> None:
        futures = [future for _, future in taken]
        try:
            self.replier([request for request, _ in taken], lambda at, reply: _settle(futures[at], reply))
        except Exception as error:
            for future in futures:
                _settle(future, error=error)

    def _take(self) -> list[tuple[Request, Future[Generated]]]:
        """All that wait, once no more come."""
        with self.changed:
            while not self.waiting:
                self.changed.wait()
            seen = 0
            while len(self.waiting) > seen:
                seen = len(self.waiting)
                self.changed.wait(QUIET)
            # What nobody waits for any more is not read.
            taken = [(r, f) for r, f in self.waiting if not f.cancelled()]
            self.waiting = []
            return taken


def _settle(future: Future[Generated], reply: Generated | None = None, *, error: Exception | None = None) -> None:
    if future.done() or not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    elif reply is not None:
        future.set_result(reply)
