"""A model behind the OpenAI protocol, written from its description, one whole forward pass a token; and its faults."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch


class State:
    """What a server does and what it was asked.

    `lacks` holds any of: completions, tokens (prompts as token ids), logprobs (left out), listing (logprobs fail with
    500), echo, continue, extras, usage.
    `script` holds what to do with the next requests instead of answering: a status, or "drop", "nonsense",
    "no choices", "slow".
    """

    def __init__(self, model, lacks=(), top=20, adds=0):
        self.model, self.lacks, self.top, self.adds = model, set(lacks), top, adds
        self.script, self.asked = [], []
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.delay = 0.0


def _next(state, ids):
    with torch.inference_mode():
        return torch.log_softmax(state.model.hf(torch.tensor([ids]), use_cache=False).logits[0].double(), -1)


def _named(state, log_probs, n, by_token):
    values, ids = log_probs.topk(n)
    decode = state.model.tokens.hf.decode
    return {f"token_id:{i}" if by_token else decode([i]): v for v, i in zip(values.tolist(), ids.tolist(), strict=True)}


def _drawn(state, ids, asked):
    generator = torch.Generator().manual_seed(asked.get("seed") or 0)
    new, tops = [], []
    finish = "length"
    for _ in range(asked["max_tokens"]):
        log_probs = _next(state, [*ids, *new])[-1]
        tops.append(log_probs)
        heat = asked.get("temperature", 1.0)
        if heat:
            token = int(torch.multinomial(torch.softmax(log_probs / heat, -1), 1, generator=generator))
        else:
            token = int(log_probs.argmax())
        new.append(token)
        if token == state.model.tokens.hf.eos_token_id:
            finish = "stop"
            break
        text = state.model.tokens.hf.decode(new)
        if any(stop in text for stop in asked.get("stop") or ()):
            finish = "stop"
            break
    text = state.model.tokens.hf.decode(new)
    for stop in asked.get("stop") or ():
        text = text.partition(stop)[0]
    return new, text, finish, tops


def _chat_text(messages, goes_on):
    text = "<end>\n".join(f"<{m['role']}>{m['content']}" for m in messages)
    return text if goes_on else f"{text}<end>\n<assistant>"


def answer(state, path, asked):
    """(status, body) of a request."""
    extras = set(asked) & {"top_k", "min_p", "return_tokens_as_token_ids", "continue_final_message"}
    if "extras" in state.lacks and extras:
        return 400, {"error": {"message": f"unknown fields {sorted(extras)}"}}
    by_token = asked.get("return_tokens_as_token_ids", False)
    encode = state.model.tokens.encode
    if path.endswith("/chat/completions"):
        goes_on = asked["messages"][-1]["role"] == "assistant" and asked.get("continue_final_message")
        ids = encode(_chat_text(asked["messages"], goes_on and "continue" not in state.lacks))
        wanted = asked.get("top_logprobs") or 0
    else:
        if "completions" in state.lacks:
            return 404, {"error": {"message": "no such endpoint"}}
        ids = asked["prompt"]
        if isinstance(ids, list) and "tokens" in state.lacks:
            return 400, {"error": {"message": "prompt must be a string"}}
        ids = ids if isinstance(ids, list) else encode(ids)
        wanted = asked.get("logprobs") or 0
    ids = [1] * state.adds + ids
    if wanted and "listing" in state.lacks:
        return 500, {"error": {"message": "logprobs is not supported by this model"}}
    if wanted > state.top:
        return 400, {"error": {"message": f"at most {state.top} log-probabilities"}}
    new, text, finish, tops = _drawn(state, ids, asked)
    choice = {"index": 0, "finish_reason": finish, "logprobs": None}
    listed = [_named(state, one, wanted, by_token) for one in tops] if wanted else []
    if path.endswith("/chat/completions"):
        choice["message"] = {"role": "assistant", "content": text}
        if listed and "logprobs" not in state.lacks:
            content = [
                {"token": "?", "logprob": 0.0, "top_logprobs": [{"token": k, "logprob": v} for k, v in one.items()]}
                for one in listed
            ]
            choice["logprobs"] = {"content": content}
    else:
        choice["text"] = text
        if asked.get("echo") and "echo" not in state.lacks:
            whole = _next(state, ids)
            listed = [None, *(_named(state, one, wanted, by_token) for one in whole[:-1]), *listed]
        if listed and "logprobs" not in state.lacks:
            choice["logprobs"] = {"top_logprobs": listed, "token_logprobs": [], "tokens": [], "text_offset": []}
    usage = {"prompt_tokens": len(ids), "completion_tokens": len(new), "total_tokens": len(ids) + len(new)}
    body = {"id": "1", "object": "made", "created": 0, "model": "made", "choices": [choice]}
    return 200, body if "usage" in state.lacks else body | {"usage": usage}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        state = self.server.state
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with state.lock:
            state.asked.append((self.path, asked))
            state.now += 1
            state.most = max(state.most, state.now)
            todo = state.script.pop(0) if state.script else None
        try:
            time.sleep(state.delay)
            self._answer(state, asked, todo)
        finally:
            with state.lock:
                state.now -= 1

    def _answer(self, state, asked, todo):
        if todo == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if todo == "slow":
            time.sleep(1.0)
        status, body = (todo, {"error": {"message": "as scripted"}}) if isinstance(todo, int) else (200, None)
        if body is None:
            status, body = answer(state, self.path, asked)
        data = json.dumps(body).encode()
        if todo == "nonsense":
            data = b"<html>it works!</html>"
        if todo == "no choices":
            data = b'{"object": "error", "message": "out of memory"}'
        try:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


@contextmanager
def serving(model, **options):
    """Run a server; gives its address up to ``/v1`` and its state."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.state = State(model, **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", server.state
    finally:
        server.shutdown()
        server.server_close()
