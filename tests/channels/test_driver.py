"""The driver against a server that behaves badly on purpose: what it saw, and what we made of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgledger.adapters import driver as driver_module
from msgledger.adapters.driver import ANSWER_MAX_BYTES, USER_AGENT, Driver
from msgledger.adapters.exchange import Answer, Fault, Request
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.outcome import Cause, NotDispatched, Rejected, Unknown

POST = Request("POST", "/v1/x", (("a", "b c"),), (("content-type", "text/plain"),), b"hello")
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Talk = Callable[["Listener", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """A server of raw bytes: it keeps every request that it read and answers as it is told, once for each."""

    def __init__(self, *answers: bytes | Talk | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def __aenter__(self) -> Listener:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = [
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ]
                self.requests.append(head + await reader.readexactly(size[0] if size else 0))
                answer = self.answers.pop(0) if self.answers else None
                if callable(answer):
                    await answer(self, reader, writer)
                    return
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
                if answer is not OK and b"keep" not in answer:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def asked(*answers: bytes | Talk | None, times: int = 1, **more: Any) -> tuple[Listener, list[Answer | Fault]]:
    """Sends the same request `times` times over one driver."""

    async def run() -> tuple[Listener, list[Answer | Fault]]:
        async with Listener(*answers) as listener:
            driver = Driver(listener.url)
            try:
                told = {"deadline_s": 5.0, **more}
                return listener, [await driver.send(POST, {"authorization": "Bearer t"}, **told) for _ in range(times)]
            finally:
                await driver.close()

    return asyncio.run(run())


def to(url: str, **more: Any) -> Answer | Fault:
    async def run() -> Answer | Fault:
        driver = Driver(url)
        try:
            return await driver.send(POST, {}, **{"deadline_s": 5.0, **more})
        finally:
            await driver.close()

    return asyncio.run(run())


async def silence(_listener: Listener, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


def test_what_goes_over_the_wire() -> None:
    """ADP-1: the request as it was built, the credential, and our name."""
    listener, (answer,) = asked(OK)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.body) == (200, b"ok")
    head, _, body = listener.requests[0].partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"post /v1/x?a=b+c http/1.1"
    assert b"authorization: bearer t" in lines
    assert f"user-agent: {USER_AGENT}".encode() in lines
    assert body == b"hello"


def test_refused_and_unresolved_never_left() -> None:
    """FAIL-1, FAIL-11, SC-12: proof that nothing was sent, and it costs no attempt."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refused = to(f"http://127.0.0.1:{taken.getsockname()[1]}")
    for fault in (refused, to("http://no-such-host.invalid")):
        assert isinstance(fault, Fault)
        assert fault.phase == "not_dispatched"
        outcome = fault.outcome()
        assert isinstance(outcome, NotDispatched)
        assert not outcome.bytes_left


def test_a_failed_handshake_never_left() -> None:
    """FAIL-11: the server speaks no TLS, so no request reached it."""

    async def run() -> tuple[Listener, Answer | Fault]:
        async with Listener() as listener:
            driver = Driver(listener.url.replace("http:", "https:"))
            try:
                return listener, await driver.send(POST, {}, deadline_s=0.4)
            finally:
                await driver.close()

    listener, fault = asyncio.run(run())
    assert isinstance(fault, Fault)
    assert fault.phase == "not_dispatched"
    assert listener.requests == []


def test_a_connection_that_never_opens_never_left() -> None:
    """FAIL-11: the deadline passes while connecting."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        fill = [socket.socket() for _ in range(4)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(address)
        fault = to(f"http://127.0.0.1:{address[1]}", deadline_s=0.3)
        for one in fill:
            one.close()
    assert isinstance(fault, Fault)
    assert (fault.phase, fault.cause) == ("not_dispatched", Cause.TIMEOUT)


def test_closed_after_the_request_is_unknown_and_asked_once() -> None:
    """FAIL-9, CHANNELS 3: one request, never a second on the driver's own account."""
    listener, (fault,) = asked(None)
    assert isinstance(fault, Fault)
    assert (fault.phase, fault.cause) == ("dispatched", Cause.RESET)
    assert isinstance(fault.outcome(), Unknown)
    assert len(listener.requests) == 1


def test_no_answer_is_unknown_within_the_deadline() -> None:
    """R1: the deadline bounds the whole exchange."""
    started = time.monotonic()
    listener, (fault,) = asked(silence, deadline_s=0.3)
    assert time.monotonic() - started < 1.5
    assert isinstance(fault, Fault)
    assert (fault.phase, fault.cause, len(listener.requests)) == ("dispatched", Cause.TIMEOUT, 1)


def test_a_trickled_answer_does_not_outlast_the_deadline() -> None:
    """R1: bytes that keep coming renew no timeout."""

    async def trickle(_listener: Listener, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    started = time.monotonic()
    _, (fault,) = asked(trickle, deadline_s=0.3)
    assert time.monotonic() - started < 1.5
    assert isinstance(fault, Fault)
    assert (fault.phase, fault.cause, fault.status) == ("response_partial", Cause.TIMEOUT, 200)


def test_a_truncated_answer_is_partial() -> None:
    """FAIL-11: half a 200 is no receipt, half a refusal no proof."""
    for head in (b"200 OK", b"400 Bad Request"):
        _, (fault,) = asked(b"HTTP/1.1 " + head + b"\r\ncontent-length: 100\r\n\r\nhalf")
        assert isinstance(fault, Fault)
        assert fault.phase == "response_partial"
        assert isinstance(fault.outcome(), Unknown)


def test_an_endless_answer_is_cut_off() -> None:
    """Every payload has a bound."""
    body = b"x" * (ANSWER_MAX_BYTES + 1)
    _, (fault,) = asked(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert isinstance(fault, Fault)
    assert (fault.phase, fault.cause) == ("response_partial", Cause.MALFORMED)


def test_a_redirect_is_an_answer() -> None:
    """CHANNELS 3: no redirect is followed on a write."""
    listener, (answer,) = asked(b"HTTP/1.1 307 Moved\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n")
    assert isinstance(answer, Answer)
    assert answer.status == 307
    assert len(listener.requests) == 1


@pytest.mark.parametrize("status", [b"500 Oops", b"503 Busy", b"429 Slow Down", b"408 Timeout", b"425 Early"])
def test_no_status_is_retried(status: bytes) -> None:
    """CHANNELS 3: the server sees one request, whatever it answers and however it asks for another."""
    listener, (answer,) = asked(b"HTTP/1.1 " + status + b"\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n")
    assert isinstance(answer, Answer)
    assert len(listener.requests) == 1


def test_a_pooled_connection_that_closed_while_idle() -> None:
    """CHANNELS 6.4: the driver connects anew before it writes, and every request is seen once."""

    async def last_answer(_listener: Listener, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()

    listener, answers = asked(last_answer, OK, times=1)
    assert len(answers) == 1

    async def run() -> tuple[Listener, list[Answer | Fault]]:
        async with Listener(last_answer, OK) as listener:
            driver = Driver(listener.url)
            try:
                first = await driver.send(POST, {}, deadline_s=5)
                await asyncio.sleep(0.05)
                return listener, [first, await driver.send(POST, {}, deadline_s=5)]
            finally:
                await driver.close()

    listener, answers = asyncio.run(run())
    assert all(isinstance(answer, Answer) for answer in answers)
    assert (len(listener.requests), listener.connections) == (2, 2)


def test_no_cookie_is_kept() -> None:
    """R5: what an answer set does not change the next request's bytes."""
    listener, answers = asked(
        b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\nx-keep: 1\r\ncontent-length: 0\r\n\r\n", OK, times=2
    )
    assert all(isinstance(answer, Answer) for answer in answers)
    assert listener.requests[0] == listener.requests[1]


def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to the platform is configured, not inherited."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    _, (answer,) = asked(OK)
    assert isinstance(answer, Answer)


class Look:
    """A last look that notes what the server had seen, and may stop the attempt."""

    def __init__(self, stop: Exception | None = None) -> None:
        self.stop = stop
        self.listener: Listener | None = None
        self.seen: list[tuple[int, int]] = []

    async def __call__(self) -> None:
        await asyncio.sleep(0.02)
        listener = self.listener
        self.seen.append((listener.connections, len(listener.requests)) if listener else (0, 0))
        if self.stop is not None:
            raise self.stop


def looked(look: Look, times: int) -> tuple[Listener, list[Answer | Fault]]:
    async def run() -> tuple[Listener, list[Answer | Fault]]:
        async with Listener(OK, OK, OK) as listener:
            look.listener = listener
            driver = Driver(listener.url)
            try:
                return listener, [await driver.send(POST, {}, deadline_s=5, last_look=look) for _ in range(times)]
            finally:
                await driver.close()

    return asyncio.run(run())


def test_the_last_look_comes_after_connecting_and_before_the_bytes() -> None:
    """R9: one look for each new connection; a request over a standing one follows the core's own look at once."""
    look = Look()
    listener, answers = looked(look, times=2)
    assert look.seen == [(1, 0)]
    assert (len(answers), len(listener.requests)) == (2, 2)


@pytest.mark.parametrize("stop", [Rejected("cancelled", code="superseded"), TimeoutError("late"), RuntimeError("x")])
def test_what_the_last_look_raises_comes_out_and_nothing_is_sent(stop: Exception) -> None:
    """R9: unchanged, also where it looks like one of the driver's own errors."""
    look = Look(stop)
    with pytest.raises(type(stop)) as raised:
        looked(look, times=1)
    assert raised.value is stop
    assert look.listener is not None
    assert look.listener.requests == []


def test_a_last_look_that_hangs_is_cut_off_unsent() -> None:
    """R1, R9: the deadline counts there too, and no byte has left."""

    async def hang() -> None:
        await asyncio.sleep(60)

    listener, (fault,) = asked(OK, deadline_s=0.3, last_look=hang)
    assert isinstance(fault, Fault)
    assert (fault.phase, listener.requests) == ("not_dispatched", [])


def test_no_time_left_sends_nothing() -> None:
    """R9: a deadline that has passed is looked at before connecting."""
    listener, (fault,) = asked(OK, deadline_s=0.0)
    assert isinstance(fault, Fault)
    assert (fault.phase, listener.connections) == ("not_dispatched", 0)


def test_cancellation_comes_out() -> None:
    """FAIL-8: the caller's cancel is no outcome."""

    async def run() -> int:
        async with Listener(silence) as listener:
            driver = Driver(listener.url)
            task = asyncio.create_task(driver.send(POST, {}, deadline_s=5))
            while not listener.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await driver.close()
            return len(listener.requests)

    assert asyncio.run(run()) == 1


def test_without_httpx2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is named, with the command that mends it."""
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(InvalidConfig, match=r"install msgledger\[http\]"):
        asyncio.run(Driver("http://127.0.0.1:1").open())


def test_certificates_are_checked() -> None:
    """The context that every connection uses verifies the host."""
    tls = driver_module._tls()
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname
