"""The webhook: nothing recorded that is not the platform's, and nothing acknowledged that is not recorded."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgledger.adapters.qa import qa_channel
from msgledger.adapters.webhook import webhook
from msgledger.ledger.errors import InvalidConfig, StoreFull, WriteUncertain
from msgledger.ledger.limits import WEBHOOK_BEHIND_MAX

from .driver_kit import LOCKED, Core, EagerClock, settle, until
from .webhook_kit import PATH, SECRET, call, channel, events, head, hook, raw, served, signed

NOW = EagerClock().now_ms


def test_what_is_verified_is_recorded_and_then_acknowledged() -> None:
    """RCV-5: several events of one body, in order; in many pieces, and mounted below another path too."""
    core = Core()

    async def main() -> None:
        app = hook(core)
        body = events(1, 2, 3)
        answer = await call(app, body, signed(body), pieces=7)
        assert answer is not None and (answer.status, answer.body) == (200, b"")
        body = events(4)
        answer = await call(app, body, signed(body), path="/api" + PATH, root_path="/api")
        assert answer is not None and answer.status == 200

    asyncio.run(main())
    assert core.taken == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (404, {"path": "/other"}),
        (405, {"method": "GET"}),
        (405, {"method": "PUT"}),
        (415, {"headers": {"content-type": "text/html"}}),
        (415, {"headers": {"content-type": ""}}),
        (415, {"headers": {"content-encoding": "gzip"}}),
        (400, {"headers": {"content-length": "many"}}),
        (400, {"headers": {"content-length": "²"}}),
        (400, {"headers": {"content-length": "3"}}),
        (413, {"headers": {"content-length": "9" * 30}}),
        (413, {"body": b" " * 2_000}),
        (401, {"headers": {"x-qa-signature": ""}}),
        (401, {"headers": {"x-qa-signature": "v1=" + "0" * 64}}),
        (401, {"headers": {"x-qa-timestamp": str(NOW + 1)}}),
        (401, {"secret": "another"}),
        (403, {"at": NOW - 301_000}),
        (403, {"at": NOW + 301_000}),
        (400, {"body": b"{not json"}),
        (400, {"body": b"[1, 2]"}),
        (400, {"body": b'{"events": [1]}'}),
        (400, {"body": b"\xff\xfe"}),
        (400, {"body": b"[" * 900}),
    ],
)
def test_what_is_not_the_platforms_is_refused(
    status: int, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """RCV-5: with its own status, no word of why to the caller, and nothing of it handed over or in the log."""
    core = Core()
    body = change.get("body", events(1))
    headers = signed(body, change.get("at", NOW), change.get("secret", SECRET)) | change.get("headers", {})
    told = {name: change[name] for name in ("path", "method") if name in change}

    async def main() -> None:
        answer = await call(hook(core, body_max_bytes=1_000), body, headers, **told)
        assert answer is not None and (answer.status, answer.body) == (status, b"")
        assert answer.headers.get("allow") == ("POST" if status == 405 else None)

    with caplog.at_level(logging.DEBUG, "msgledger"):
        asyncio.run(main())
    assert core.taken == []
    said = " ".join(record.getMessage() for record in caplog.records)
    assert f"answers {status}" in said
    for secret in (SECRET, headers["x-qa-signature"] or SECRET, '"events"', '"n"'):
        assert secret not in said


def test_a_long_body_is_not_read_to_its_end() -> None:
    """RCV-5: nor is one that announces no length."""
    core, read = Core(), 0

    async def main() -> None:
        app = hook(core, body_max_bytes=1_000)

        async def receive() -> Any:
            nonlocal read
            read += 1
            return {"type": "http.request", "body": b"x" * 400, "more_body": True}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        kinds = [(b"content-type", b"application/json")]
        await app({"type": "http", "method": "POST", "path": PATH, "headers": kinds}, receive, send)
        assert sent[0]["status"] == 413

    asyncio.run(main())
    assert read == 3


def test_a_challenge_is_answered_and_recorded_nowhere() -> None:
    """RCV-5: but only to a request that is verified."""
    core = Core()

    async def main() -> None:
        body = msgspec.json.encode({"challenge": "abc"})
        answer = await call(hook(core), body, signed(body))
        assert answer is not None and (answer.status, answer.body) == (200, b"abc")
        answer = await call(hook(core), body, signed(body, secret="x"))
        assert answer is not None and (answer.status, answer.body) == (401, b"")

    asyncio.run(main())
    assert core.taken == []


@pytest.mark.parametrize("error", [LOCKED, StoreFull("no space"), WriteUncertain("who knows"), RuntimeError("its own")])
def test_what_cannot_be_recorded_is_asked_for_again(error: Exception) -> None:
    """SC-58, RCV-5: 503 with the time, and the whole body when it comes again: what is known is known."""
    core = Core()

    async def main() -> None:
        app = hook(core)
        body = events(1, 2, 3)

        async def second(name: str) -> None:
            if core.taken == [1, 2]:
                raise error

        core.before = second
        answer = await call(app, body, signed(body))
        assert answer is not None and (answer.status, answer.headers["retry-after"]) == (503, "5")
        core.before = None
        answer = await call(app, body, signed(body))
        assert answer is not None and answer.status == 200

    asyncio.run(main())
    assert core.taken == [1, 2, 1, 2, 3]


def test_the_policys_point_comes_before_the_answer_or_not_in_time() -> None:
    """ACKP-3, SC-58: the turn is not done when the deadline comes: 503, and 200 to the next delivery."""
    core = Core(at_once=False)

    async def main() -> None:
        body = events(1)
        late = await call(hook(core, deadline_s=0.05), body, signed(body))
        assert late is not None and late.status == 503
        waiting = asyncio.create_task(call(hook(core, deadline_s=60), body, signed(body)))
        await until(lambda: len(core.taken) == 2)
        await settle()
        assert not waiting.done(), "it is not acknowledged before"
        core.finish(1)
        answer = await waiting
        assert answer is not None and answer.status == 200
        refused = asyncio.create_task(call(hook(core, deadline_s=60), events(2), signed(events(2))))
        await until(lambda: 2 in core.recorded)
        core.refuse(2)
        answer = await refused
        assert answer is not None and answer.status == 503

    asyncio.run(main())


def test_a_caller_who_goes_away_stops_nothing() -> None:
    """SC-58, RCV-5: with a whole body it is recorded all the same; with half of one there is nothing to record."""
    core = Core()

    async def main() -> None:
        app, gate, body = hook(core), asyncio.Event(), events(1, 2)

        async def slow(name: str) -> None:
            await gate.wait()

        core.before = slow
        caller = asyncio.create_task(call(app, body, signed(body)))
        await until(lambda: core.taken)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        gate.set()
        await app.close()
        assert list(core.recorded) == [1, 2]
        assert await call(app, body, signed(body), pieces=4, gone_after=2) is None

    asyncio.run(main())
    assert core.taken == [1, 2]


def test_as_many_requests_as_allowed_are_worked_on_and_no_more() -> None:
    """SC-59: also those whose callers have gone; the others are asked to come again."""
    core = Core()

    async def main() -> None:
        app, gate = hook(core, in_flight_max=2, deadline_s=0.05), asyncio.Event()

        async def slow(name: str) -> None:
            await gate.wait()

        core.before = slow
        for number in (1, 2):
            body = events(number)
            answer = await call(app, body, signed(body))
            assert answer is not None and answer.status == 503
        answer = await call(app, events(3), signed(events(3)))
        assert answer is not None and (answer.status, core.taken) == (503, [1, 2])
        gate.set()
        await until(lambda: not app._left)
        answer = await call(app, events(3), signed(events(3)))
        assert answer is not None and answer.status == 200

    asyncio.run(main())


def test_a_policy_that_answers_first_records_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """ACKP-1: in order, however long the ledger takes; up to a bound, and what is left at the end is named."""
    core = Core()
    core.policy = "immediate"

    async def main() -> None:
        clock = EagerClock()
        app = hook(core, clock)
        core.fails = [LOCKED] * 20
        for number in (1, 2, 3):
            answer = await call(app, events(number), signed(events(number)))
            assert answer is not None and answer.status == 200
        await until(lambda: len(core.recorded) == 3)
        assert list(core.recorded) == [1, 2, 3]
        assert sum(clock.waits) > 20

        gate = asyncio.Event()

        async def slow(name: str) -> None:
            await gate.wait()

        core.before = slow
        many = events(*range(10, 10 + WEBHOOK_BEHIND_MAX))
        answer = await call(app, many, signed(many, clock.now_ms))
        assert answer is not None and answer.status == 200
        answer = await call(app, events(9), signed(events(9), clock.now_ms))
        assert answer is not None and answer.status == 503
        closing = asyncio.create_task(app.close())
        await settle()
        gate.set()
        await closing
        assert len(core.recorded) == 3 + WEBHOOK_BEHIND_MAX

    asyncio.run(main())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_error_of_our_own_is_told_as_a_number_only() -> None:
    """RCV-5: no trace of it gets out, and the platform delivers again."""
    core = Core()

    async def main() -> None:
        app = hook(core)

        def broken(*_: Any) -> Any:
            raise KeyError("secret place")

        app._hooked.verify = broken  # type: ignore[method-assign]
        answer = await call(app, events(1), signed(events(1)))
        assert answer is not None and (answer.status, answer.body) == (500, b"")
        app = hook(core)
        app._hooked.unpack = lambda *_: int("secret place")  # type: ignore[method-assign]
        answer = await call(app, events(1), signed(events(1)))
        assert answer is not None and (answer.status, answer.body) == (400, b""), "verified, and not readable"

    asyncio.run(main())
    assert core.taken == []


def test_what_cannot_be_a_webhook_is_said_when_it_is_made() -> None:
    """RCV-5: a channel that verifies nothing, a path, a number."""

    class Plain:
        name = "plain"

    core = Core()
    for made in (
        lambda: webhook(Plain(), core),  # type: ignore[arg-type]
        lambda: webhook(channel(), core, path="qa"),
        lambda: webhook(channel(), core, deadline_s=0),
        lambda: webhook(channel(), core, body_max_bytes=-1),
        lambda: webhook(channel(), core, in_flight_max=0),
    ):
        with pytest.raises(InvalidConfig, match=r"plain|path|above 0"):
            made()


HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"content-type", b"Content-Type", b"content-length", b"x-qa-signature", b"x-qa-timestamp"])
        | st.binary(min_size=1, max_size=12),
        st.sampled_from([b"application/json", b"application/json; charset=utf-8", b"5", b"v1=", b""])
        | st.binary(max_size=40),
    ),
    max_size=8,
)
BODIES = st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just("events"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.just("events"), inner),
    max_leaves=12,
).map(lambda value: msgspec.json.encode(value) if _encodes(value) else b"{}")


def _encodes(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except (ValueError, OverflowError, UnicodeEncodeError, msgspec.MsgspecError):
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(HEADERS, BODIES, st.integers(1, 5), st.sampled_from(["POST", "GET", "OPTIONS"]), st.booleans())
def test_whatever_comes_it_is_a_status_and_nothing_unverified_is_recorded(
    more: list[tuple[bytes, bytes]], body: bytes, pieces: int, method: str, sign: bool
) -> None:
    """RCV-5: random bytes and headers, signed or not."""
    core = Core()

    async def take(event: Any) -> Any:
        return await Core.take(core, {"n": len(core.taken)})

    core.take = take  # type: ignore[method-assign]
    headers = [(name.encode(), value.encode()) for name, value in signed(body).items()] if sign else []

    async def main() -> None:
        answer = await call(hook(core, body_max_bytes=250), body, [*headers, *more], pieces=pieces, method=method)
        assert answer is not None and answer.body == b""
        assert answer.status in {200, 400, 401, 403, 405, 413, 415}
        if core.taken:
            assert answer.status == 200 and sign and method == "POST" and b"events" in body

    asyncio.run(main())


def test_a_real_server_with_slow_long_and_broken_requests() -> None:
    """RCV-5: over raw sockets: whole, slow, too long, half closed, cut off, and no HTTP at all."""
    core = Core()

    async def main() -> None:
        app = hook(core, body_wait_s=0.2, body_max_bytes=1_000)
        async with served(app) as url:
            body = events(1)
            whole = head(len(body), signed(body))
            assert (await raw(url, whole + body)).startswith(b"HTTP/1.1 200")
            assert (await raw(url, whole, body[:5])).startswith(b"HTTP/1.1 408")
            assert (await raw(url, head(2_000, signed(body)))).startswith(b"HTTP/1.1 413")
            body = events(2)
            await raw(url, head(len(body), signed(body)) + body, half_closed=True)
            await raw(url, whole, body[:5], half_closed=True)
            assert (await raw(url, b"\x16\x03\x01 what\r\n\r\n")).startswith(b"HTTP/1.1 400")
            chunked = head(0, signed(b"x")).replace(b"content-length: 0", b"transfer-encoding: chunked")
            piece = b"190\r\n" + b"x" * 400 + b"\r\n"
            assert (await raw(url, chunked, piece, piece, piece)).startswith(b"HTTP/1.1 413")
            body = events(3)
            assert (await raw(url, head(len(body), signed(body)) + body)).startswith(b"HTTP/1.1 200")

    asyncio.run(main())
    assert [number for number in core.taken if number != 2] == [1, 3]


def test_the_core_install_needs_no_server() -> None:
    """RCV-5: the application is plain ASGI; any server runs it, and none is imported."""
    import subprocess
    import sys

    code = "import sys, msgledger.adapters.webhook; print([m for m in ('uvicorn', 'starlette') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    assert qa_channel("http://127.0.0.1:1")
