"""A webhook as a plain ASGI application: verified, recorded, and only then acknowledged.

Any ASGI server runs it, alone or mounted in an application. What is not the platform's is never handed over, what the
ledger cannot take is answered with 503 so that the platform delivers again, and a caller who goes away stops nothing.
The answer holds a status and nothing else; why stands in the log, without content and without secrets.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from typing import Any, Final, TypeVar

from ..ledger.errors import InvalidConfig, LedgerError
from ..ledger.limits import (
    WEBHOOK_BEHIND_MAX,
    WEBHOOK_BODY_MAX_BYTES,
    WEBHOOK_BODY_WAIT_S,
    WEBHOOK_CLOSE_S,
    WEBHOOK_DEADLINE_S,
    WEBHOOK_IN_FLIGHT_MAX,
    WEBHOOK_RETRY_S,
)
from ..ledger.store.clock import Clock, HostClock
from .handover import backoff_s
from .receiving import Event, Hooked, Intake, Refused, Response, Taken
from .surface import Channel

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")
log = logging.getLogger("msgledger")

JSON: Final = ("application/json",)
EARLY_PART: Final = 0.1
"""The answer leaves so much of the deadline earlier, for its way back."""
AGAIN: Final = (("retry-after", str(WEBHOOK_RETRY_S)),)
NOTHING: Final = Response()
Answered = tuple[Response, Sequence[tuple[str, str]]]
"""What the caller gets, and the headers that it needs beside."""


class _Gone(Exception):
    """The caller went away before its body was whole."""


def webhook(
    channel: Channel,
    intake: Intake,
    *,
    path: str = "/",
    deadline_s: float | None = None,
    body_max_bytes: int = WEBHOOK_BODY_MAX_BYTES,
    body_wait_s: float = WEBHOOK_BODY_WAIT_S,
    in_flight_max: int = WEBHOOK_IN_FLIGHT_MAX,
    clock: Clock | None = None,
) -> Webhook:
    """The application for one channel, at one path: `webhook(telegram, gateway.intake("telegram"), path="/telegram")`.

    `deadline_s`: how soon the platform must have its answer; None: as the channel's capabilities say. An adapter whose
    bodies are no JSON names them in `content_types`. Raises `InvalidConfig` for a channel that verifies nothing, and
    for values out of range.
    """
    if not isinstance(channel, Hooked):
        raise InvalidConfig(f"channel {channel.name!r} takes no webhook: its adapter has no `verify` and `unpack`")
    if not path.startswith("/"):
        raise InvalidConfig(f"the path {path!r} of a webhook starts with /")
    if deadline_s is None:
        ack = channel.capabilities.ack
        deadline_s = WEBHOOK_DEADLINE_S if ack is None or ack.deadline_s is None else ack.deadline_s
    numbers = {"deadline_s": deadline_s, "body_max_bytes": body_max_bytes, "body_wait_s": body_wait_s}
    for name, value in {**numbers, "in_flight_max": in_flight_max}.items():
        if not 0 < value < float("inf"):
            raise InvalidConfig(f"the webhook of channel {channel.name!r} has {name} {value!r}: give a number above 0")
    return Webhook(channel, channel, intake, path, deadline_s, body_max_bytes, body_wait_s, in_flight_max, clock)


class Webhook:
    """See `webhook`. Closed by the server's shutdown, or by `close()`."""

    def __init__(
        self,
        channel: Channel,
        hooked: Hooked,
        intake: Intake,
        path: str,
        deadline_s: float,
        body_max_bytes: int,
        body_wait_s: float,
        in_flight_max: int,
        clock: Clock | None,
    ) -> None:
        self._name = f"{channel.name}/{channel.account}"
        self._hooked = hooked
        self._intake = intake
        self._path = path
        self._deadline_s = deadline_s * (1 - EARLY_PART)
        self._body_max_bytes = body_max_bytes
        self._body_wait_s = body_wait_s
        self._in_flight_max = in_flight_max
        self._clock = clock or HostClock()
        self._chance = random.Random()
        self._types: tuple[str, ...] = getattr(channel, "content_types", JSON)
        self._working = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left: set[asyncio.Task[Any]] = set()
        """Of these, the ones whose caller is not there any more."""
        self._behind: list[Event] = []
        """Answered for and not recorded yet, in order: only where the policy is to answer first."""
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        return self._path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._request(scope, receive, send)

    async def close(self) -> None:
        """Let what was answered for be recorded, for a bounded time; what is not is named in the log."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=WEBHOOK_CLOSE_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._behind:
            log.error("webhook %s closes with %d events answered for and not recorded", self._name, len(self._behind))

    # ---- one request

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._working + len(self._left) >= self._in_flight_max:
            self._say(503, f"{self._in_flight_max} requests are worked on")
            return await _answer(send, Response(503), AGAIN)
        self._working += 1
        try:
            response, headers = await self._judged(scope, receive)
        except _Gone:
            return None
        finally:
            self._working -= 1
        return await _answer(send, response, headers)

    async def _judged(self, scope: Scope, receive: Receive) -> Answered:
        """What the platform is told. A detail goes to the log and no further."""
        ends = asyncio.get_running_loop().time() + self._deadline_s
        try:
            headers = self._checked(scope)
            body = await self._body(headers, receive)
            self._hooked.verify(headers, body, self._clock.wall_ms())
            said = self._unpacked(headers, body)
        except Refused as refused:
            self._say(refused.status, refused.detail)
            allowed = (("allow", "POST"),) if refused.status == 405 else ()
            closing = (("connection", "close"),) if refused.status in (408, 413) else ()
            return Response(refused.status), (*allowed, *closing)
        except _Gone:
            raise
        except Exception as error:
            # Ours, not the platform's: it is asked to deliver again.
            log.exception("webhook %s met an error of its own: %s", self._name, type(error).__name__)
            return Response(500), AGAIN
        if isinstance(said, Response):
            return said, ()
        if not said or self._intake.policy == "immediate":
            return self._answered_first(said)
        return await self._recorded(said, ends)

    def _checked(self, scope: Scope) -> dict[str, str]:
        """The headers of a request that may be read on, names in lower case. Raises `Refused`."""
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root) :] or "/"
        if path != self._path:
            raise Refused(404, "another path")
        if scope["method"] != "POST":
            raise Refused(405, "another method than POST")
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in self._types:
            raise Refused(415, "another content type")
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise Refused(415, "an encoded body")
        length = headers.get("content-length")
        if length is not None:
            if not (length.isascii() and length.isdecimal()):
                raise Refused(400, "a content-length that is no number")
            if len(length) > 18 or int(length) > self._body_max_bytes:
                raise Refused(413, f"a body of more than {self._body_max_bytes} bytes is announced")
        return headers

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes:
        """The whole body, read no further than it may be long."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_wait_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    body += message.get("body", b"")
                    if len(body) > self._body_max_bytes:
                        raise Refused(413, f"a body of more than {self._body_max_bytes} bytes")
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Refused(408, f"the body was not whole within {self._body_wait_s:g} s") from None
        length = headers.get("content-length")
        if length is not None and int(length) != len(body):
            raise Refused(400, "a body of another length than was announced")
        return bytes(body)

    def _unpacked(self, headers: dict[str, str], body: bytes) -> Sequence[Event] | Response:
        try:
            return self._hooked.unpack(headers, body)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"{type(error).__name__} while reading the body") from None

    # ---- recording

    async def _recorded(self, events: Sequence[Event], ends: float) -> Answered:
        """Recorded and at the policy's point within the deadline, or the platform delivers again."""
        taking = self._spawn(self._take(events))
        try:
            async with asyncio.timeout_at(ends):
                for taken in await asyncio.shield(taking):
                    await taken.done
        except TimeoutError:
            self._say(503, "the policy's point was not reached in time")
        except LedgerError as error:
            self._say(503, f"not recorded or not acknowledged ({type(error).__name__})")
        except Exception as error:
            log.exception("webhook %s could not hand over an event: %s", self._name, type(error).__name__)
        else:
            return NOTHING, ()
        finally:
            if not taking.done():
                self._left.add(taking)
        return Response(503), AGAIN

    async def _take(self, events: Sequence[Event]) -> list[Taken]:
        """In order, and to the end also when nobody waits for it any more."""
        return [await self._intake.take(event) for event in events]

    def _answered_first(self, events: Sequence[Event]) -> Answered:
        if len(self._behind) + len(events) > WEBHOOK_BEHIND_MAX:
            self._say(503, f"{WEBHOOK_BEHIND_MAX} events are answered for and not recorded")
            return Response(503), AGAIN
        self._behind += events
        if self._behind and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = self._spawn(self._catch_up())
        return NOTHING, ()

    async def _catch_up(self) -> None:
        """Record what was answered for, in order, however long the ledger takes."""
        failures = 0
        while self._behind:
            try:
                await self._intake.take(self._behind[0])
            except Exception as error:
                failures += 1
                if failures == 1:
                    log.warning("webhook %s: not recorded yet (%s)", self._name, type(error).__name__)
                await self._clock.wait(asyncio.Event(), backoff_s(failures, self._chance.random()))
                if not isinstance(error, LedgerError):
                    self._behind.append(self._behind.pop(0))  # its own fault: the others go on
            else:
                failures = 0
                self._behind.pop(0)

    # ----

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # told above, or to nobody who is still there

    def _say(self, status: int, why: str) -> None:
        log.info("webhook %s answers %d: %s", self._name, status, why)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


async def _answer(send: Send, response: Response, more: Sequence[tuple[str, str]] = ()) -> None:
    headers = [("content-type", response.content_type), ("content-length", str(len(response.body))), *more]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": response.status, "headers": raw})
    await send({"type": "http.response.body", "body": response.body})
