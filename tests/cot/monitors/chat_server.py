"""A small server on this machine that speaks /v1/chat/completions: scripted faults, or the replies of a real model."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Counts requests by their last message; `reply` makes the text or names a fault."""

    daemon_threads = True

    def __init__(self, reply):
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply = reply
        self.asked = Counter()
        self.answered = Counter()
        self.headers_seen = []
        self.bodies = []
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        item = body["messages"][-1]["content"]
        server = self.server
        with server.lock:
            server.asked[item] += 1
            n = server.asked[item]
            server.headers_seen.append(dict(self.headers))
            server.bodies.append(body)
        what = server.reply(body, n)
        if what == "hang":
            time.sleep(3)
            return self.drop()
        if what == "drop":
            return self.drop()
        if isinstance(what, int):
            return self.fault(what, "no", "server_error" if what >= 500 else "rate_limit_exceeded")
        if what == "long":
            return self.fault(400, "This model's maximum context length is 10 tokens", "context_length_exceeded")
        with server.lock:
            server.answered[item] += 1
        return self.send(
            200,
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "served",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": what}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
            },
        )

    def fault(self, status, message, code):
        return self.send(status, {"error": {"message": message, "type": code, "code": code}}, retry=True)

    def drop(self):
        self.close_connection = True
        self.connection.close()

    def send(self, status, content, retry=False):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(reply):
    """A running server; `reply(body, n)` is called for the nth request about an item."""
    server = Server(reply)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
