"""A loopback HTTP proxy between a channel and its platform that loses, delays and holds what a test tells it to.

It forwards whole requests and whole answers, so that a test knows exactly what the platform saw and what the client
saw; it never retries, and never invents an answer of its own.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

UPSTREAM_TIMEOUT_S = 60.0
WAIT_S = 20.0
PER_CONNECTION = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "content-length"}
"""Headers that belong to one connection and are not passed on."""


class Fate(StrEnum):
    """What becomes of one request."""

    FORWARD = "forward"
    LOSE_REQUEST = "lose_request"
    """Closed after the headers were read; the platform never hears of it."""
    LOSE_ANSWER = "lose_answer"
    """The platform answers, and the client's connection is closed without the answer."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The fate of the `nth` request, or of each where it is None, with this method and a path where `path` is found."""

    fate: Fate = Fate.FORWARD
    method: str = "PUT"
    path: str = "/send/"
    nth: int | None = 1
    delay_s: float = 0.0
    """Waited before the request is passed on."""
    hold_s: float = 0.0
    """Waited with the platform's answer in hand; the platform has done its part by then."""


@dataclass(slots=True)
class Passed:
    """One request that came by. `status` and `answer` are the platform's, also where the client never saw them."""

    method: str
    path: str
    fate: Fate
    headers: dict[str, str]
    body: bytes = b""
    status: int | None = None
    answer: bytes = b""


@dataclass(slots=True)
class _Watched:
    rule: Rule
    seen: int = 0


@dataclass(slots=True)
class _State:
    before: Callable[[Passed], None] | None = None
    rules: list[_Watched] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)
    clients: set[socket.socket] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)
    closing: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Use as a context manager; `url` is what the channel talks to. Rules count from the moment they are set.

    `before` is called with each request, before it is passed on.
    """

    def __init__(self, upstream_port: int, before: Callable[[Passed], None] | None = None) -> None:
        self._state = _State(before=before)
        self._server = _Server(("127.0.0.1", 0), _handler(upstream_port, self._state))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def passed(self) -> list[Passed]:
        """What came by so far, in the order of arrival."""
        with self._state.changed:
            return list(self._state.passed)

    def set(self, *rules: Rule) -> None:
        """Replaces all rules; no rule means that everything is forwarded. The first one that matches decides."""
        with self._state.changed:
            self._state.rules = [_Watched(rule) for rule in rules]

    def wait(self, until: Callable[[list[Passed]], bool], timeout_s: float = WAIT_S) -> list[Passed]:
        """Blocks until `until(passed)` is true, for tests that kill somebody in between."""
        with self._state.changed:
            if not self._state.changed.wait_for(lambda: until(self._state.passed), timeout_s):
                raise TimeoutError(f"not within {timeout_s:g} s; came by: {self._state.passed}")
            return list(self._state.passed)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._state.closing.set()
        self._server.shutdown()
        self._thread.join()
        with self._state.changed:
            for client in self._state.clients:
                _shut(client)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True


def _shut(client: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the client was faster
        client.shutdown(socket.SHUT_RDWR)


def _handler(upstream_port: int, state: _State) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            with state.changed:
                state.clients.add(self.connection)
                if state.closing.is_set():
                    _shut(self.connection)

        def finish(self) -> None:
            with state.changed:
                state.clients.discard(self.connection)
            super().finish()

        def log_message(self, format: str, *args: object) -> None:
            pass

        def relay(self) -> None:
            try:
                self._relay()
            except (OSError, http.client.HTTPException):
                self.close_connection = True  # the client or the platform went away, as tests make them do

        def _relay(self) -> None:
            rule = self._rule()
            passed = Passed(self.command, self.path, rule.fate, dict(self.headers))
            if rule.fate is not Fate.LOSE_REQUEST:
                passed.body = self.rfile.read(int(self.headers.get("content-length", 0)))
            with state.changed:
                state.passed.append(passed)
                state.changed.notify_all()
            if state.before is not None:
                state.before(passed)
            state.closing.wait(rule.delay_s)
            if rule.fate is Fate.LOSE_REQUEST:
                self._cut()
                return
            status, reason, headers, answer = self._ask(passed.body)
            with state.changed:
                passed.status, passed.answer = status, answer
                state.changed.notify_all()
            state.closing.wait(rule.hold_s)
            if rule.fate is Fate.LOSE_ANSWER:
                self._cut()
                return
            self.send_response_only(status, reason)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def _rule(self) -> Rule:
            with state.changed:
                matching = [
                    w for w in state.rules if w.rule.method == self.command and re.search(w.rule.path, self.path)
                ]
                for watched in matching:
                    watched.seen += 1
                return next((w.rule for w in matching if w.rule.nth in (None, w.seen)), Rule())

        def _ask(self, body: bytes) -> tuple[int, str, list[tuple[str, str]], bytes]:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in PER_CONNECTION}
            upstream = http.client.HTTPConnection("127.0.0.1", upstream_port, timeout=UPSTREAM_TIMEOUT_S)
            try:
                upstream.request(self.command, self.path, body, headers)
                with upstream.getresponse() as answer:
                    kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in PER_CONNECTION]
                    return answer.status, answer.reason, kept, answer.read()
            finally:
                upstream.close()

        def _cut(self) -> None:
            self.close_connection = True
            _shut(self.connection)

        do_GET = do_PUT = do_POST = do_DELETE = relay

    return Handler
