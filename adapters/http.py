"""Channels made of a sans-I/O adapter and the driver.

The adapter says what to send and what an answer means; the channel sends it, once. It adds no retry, no sleep and no
opinion, and it keeps credentials out of everything that is recorded, digested or printed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable
from urllib.parse import urlsplit

from ..ledger.errors import InvalidConfig, InvalidMessage
from ..ledger.inbound_events import AckPolicy
from ..ledger.limits import (
    ERROR_TEXT_MAX_CHARS,
    LOOK_UP_REQUESTS_MAX,
    POLL_ANSWER_MAX_BYTES,
    POLL_MARGIN_S,
    POLL_WAIT_S,
)
from ..ledger.message import Message, RenderedBatch, RenderedUnit
from ..ledger.outcome import FailureClass, Outcome, Proof, Rejected, Unknown, Unresolved, Verdict
from ..ledger.store.crash import crash_point
from .checks import check_declared
from .driver import ANSWER_MAX_BYTES, Driver
from .exchange import Answer, Fault, File, Request, nothing_visible, retry_after_s, without_class
from .polling import Polling
from .receiving import Event, Ignored, Incoming, Intake, Polls, Receives, Streams
from .secret_path import SecretPath
from .surface import SURFACE, Capabilities, FallsBack, RenderContext, SendContext, Tags
from .websocket import Streaming, check_installed

__all__ = [
    "Adapter",
    "Answer",
    "Conceals",
    "Fault",
    "File",
    "HttpChannel",
    "LooksUp",
    "Prepares",
    "Request",
    "driver_of",
    "retry_after_s",
    "without_class",
]


class Adapter(Protocol):
    """A platform as pure functions. Optional: `LooksUp`, `Prepares`, `FallsBack`; attributes `ready` and `surface`."""

    @property
    def name(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def base_url(self) -> str:
        """Scheme, host and an optional path, without credentials."""
        ...

    @property
    def credential(self) -> str: ...
    @property
    def config(self) -> str: ...

    def authorize(self, request: Request) -> Mapping[str, str]:
        """The headers with the credential, added by the driver alone."""
        ...

    def render(self, message: Message, context: RenderContext) -> RenderedBatch: ...

    def build(self, unit: RenderedUnit, context: SendContext) -> Request:
        """The one visible request. Depends on nothing but its arguments, so that a resend is byte-identical.

        It must not depend on what differs between attempts: `attempt`, `deadline_s`, `first_attempt_at`. Raises
        `InvalidMessage` or `Rejected` where the unit cannot be sent.
        """
        ...

    def parse(self, unit: RenderedUnit, context: SendContext, request: Request, answer: Answer) -> Outcome:
        """What a whole answer means. An answer that it does not map is `without_class`."""
        ...


@runtime_checkable
class LooksUp(Protocol):
    """What a channel that declares `reconcile` has: reads that show nothing, and what their answers prove."""

    def look_up(self, unit: RenderedUnit, context: SendContext) -> Request: ...

    def parse_look_up(self, unit: RenderedUnit, context: SendContext, answers: Sequence[Answer]) -> Verdict | Request:
        """What the answers so far prove, the newest last; or the next request, up to `LOOK_UP_REQUESTS_MAX` in all."""
        ...


@runtime_checkable
class Conceals(Protocol):
    """A platform whose credential stands in the address, behind the base URL. `authorize` gives none then."""

    @property
    def secret_path(self) -> SecretPath: ...


@runtime_checkable
class Prepares(Protocol):
    """A step that shows nothing and may be repeated: an upload, or opening a direct chat.

    `build` is also asked for a unit that was not prepared, for the digest of its request: what a step gives anew each
    time, such as the address of an upload, is no part of that.
    """

    def prepare(self, unit: RenderedUnit, context: SendContext) -> Request | None: ...

    def prepared(self, unit: RenderedUnit, context: SendContext, answer: Answer) -> RenderedUnit | Rejected | Unknown:
        """The unit with what the step gave, as `build` needs it; or why there is nothing to send."""
        ...


PASSED_ON: Final = ("verify", "unpack", "content_types", "encode_origin", "decode_origin")
"""What an adapter may have beside, and its channel then has too."""


READY_EVERY_S: Final = 0.5
"""How often a channel that is to poll looks whether it is ready."""


def driver_of(adapter: Adapter, *, answer_max_bytes: int = ANSWER_MAX_BYTES) -> Driver:
    """A driver to the adapter's platform, with the credential where it stands in the address."""
    secret = adapter.secret_path if isinstance(adapter, Conceals) else None
    return Driver(adapter.base_url, answer_max_bytes=answer_max_bytes, secret_path=secret)


class HttpChannel:
    """A channel that speaks HTTP. Raises `InvalidConfig` where adapter and capabilities contradict each other."""

    reconcile: Callable[[RenderedUnit, SendContext], Awaitable[Verdict]]
    """There only where the adapter looks up."""
    fallback: Callable[..., RenderedBatch | None]
    """There only where the adapter falls back."""
    ack_policy: AckPolicy
    dedupe_key: Callable[[Event], str]
    normalize: Callable[[Event], Incoming | Ignored]
    """There only where the adapter receives."""
    receive: Callable[[Intake], Awaitable[None]]
    """There only where it polls, or listens on a socket; `polling` and `socket` of an adapter turn that off."""

    def __init__(self, adapter: Adapter) -> None:
        name, capabilities = adapter.name, adapter.capabilities
        looks = hasattr(adapter, "look_up")
        check_declared(name, capabilities, reconciles=looks, tags=isinstance(adapter, Tags))
        if looks and not isinstance(adapter, LooksUp):
            raise InvalidConfig(f"channel {name!r} has look_up and no parse_look_up: the adapter needs both")
        if hasattr(adapter, "prepare") and not isinstance(adapter, Prepares):
            raise InvalidConfig(f"channel {name!r} has prepare and no prepared: the adapter needs both")
        parts = urlsplit(adapter.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidConfig(f"channel {name!r} needs a base URL like https://host/path, without query or fragment")
        if parts.username is not None or parts.password is not None:
            raise InvalidConfig(f"channel {name!r} has a credential in its base URL: give it to the adapter instead")
        self._adapter = adapter
        self._driver = driver_of(adapter)
        if isinstance(adapter, LooksUp):
            self.reconcile = self._reconcile
        if isinstance(adapter, FallsBack):
            self.fallback = adapter.fallback
        if isinstance(adapter, Receives):
            self.ack_policy, self.dedupe_key, self.normalize = adapter.ack_policy, adapter.dedupe_key, adapter.normalize
        for name in PASSED_ON:
            if hasattr(adapter, name):
                setattr(self, name, getattr(adapter, name))
        if isinstance(adapter, Receives) and isinstance(adapter, Polls) and getattr(adapter, "polling", True):
            self.receive = self._receive
        elif isinstance(adapter, Receives) and isinstance(adapter, Streams) and getattr(adapter, "socket", True):
            check_installed(adapter.name)
            self.receive = self._listen

    def __repr__(self) -> str:
        return f"HttpChannel({self.name!r}, account={self.account!r}, base_url={self._adapter.base_url!r})"

    @property
    def adapter(self) -> Adapter:
        return self._adapter

    @property
    def name(self) -> str:
        return self._adapter.name

    @property
    def account(self) -> str:
        return self._adapter.account

    @property
    def surface(self) -> int:
        return getattr(self._adapter, "surface", SURFACE)

    @property
    def version(self) -> str:
        return self._adapter.version

    @property
    def capabilities(self) -> Capabilities:
        return self._adapter.capabilities

    @property
    def ready(self) -> bool:
        return self._driver.is_open and bool(getattr(self._adapter, "ready", True))

    @property
    def credential(self) -> str:
        return self._adapter.credential

    @property
    def config(self) -> str:
        return self._adapter.config

    async def open(self) -> None:
        """Ready from here on. It asks the platform nothing."""
        await self._driver.open()

    async def close(self) -> None:
        await self._driver.close()

    async def _receive(self, intake: Intake) -> None:
        """Poll until cancelled, over connections of its own, so that no send waits behind a poll."""
        adapter = self._adapter
        assert isinstance(adapter, Receives) and isinstance(adapter, Polls)
        while not self.ready:  # who we are decides which messages speak to us, and whose cursor it is
            await asyncio.sleep(READY_EVERY_S)
        driver = driver_of(adapter, answer_max_bytes=POLL_ANSWER_MAX_BYTES)

        async def ask(request: Request, wait_s: float) -> Answer | Fault:
            return await driver.send(request, adapter.authorize(request), deadline_s=wait_s + POLL_MARGIN_S)

        try:
            name = f"{self.name}/{self.account}"
            wait_s = float(getattr(adapter, "poll_wait_s", POLL_WAIT_S))
            await Polling(adapter, ask, intake, name=name, ready=lambda: self.ready, wait_s=wait_s).run()
        finally:
            await driver.close()

    async def _listen(self, intake: Intake) -> None:
        """Read a socket until cancelled."""
        adapter = self._adapter
        assert isinstance(adapter, Streams)
        name = f"{self.name}/{self.account}"
        await Streaming(adapter, adapter.base_url, adapter.authorize, intake, name=name, ready=lambda: self.ready).run()

    def render(self, message: Message, context: RenderContext) -> RenderedBatch:
        return self._adapter.render(message, context)

    def request_bytes(self, unit: RenderedUnit, context: SendContext) -> bytes:
        return self._adapter.build(unit, context).to_bytes(self._adapter.base_url.rstrip("/"))

    async def deliver(self, unit: RenderedUnit, context: SendContext) -> Outcome:
        """One visible request. What `context.last_look` raises comes out as it is."""
        adapter, prepared = self._adapter, False
        ends = asyncio.get_running_loop().time() + context.deadline_s
        try:
            if isinstance(adapter, Prepares) and (step := adapter.prepare(unit, context)) is not None:
                ready = await self._prepare(adapter, step, unit, context)
                if not isinstance(ready, RenderedUnit):
                    return nothing_visible(ready)
                unit, prepared = ready, True
            request = adapter.build(unit, context)
        except InvalidMessage as error:
            return Rejected(
                FailureClass.INVALID_PAYLOAD,
                str(error)[:ERROR_TEXT_MAX_CHARS],
                code="not_buildable",
                bytes_left=False,
                proof=Proof.NEVER_DISPATCHED,
            )
        answer = await self._driver.send(
            request,
            adapter.authorize(request),
            deadline_s=ends - asyncio.get_running_loop().time(),
            last_look=context.last_look,
            look_always=prepared,
        )
        if isinstance(answer, Fault):
            return answer.outcome()
        try:
            return adapter.parse(unit, context, request, answer)
        except Exception as error:
            return Unknown("malformed_answer", f"{type(error).__name__} while reading the answer", status=answer.status)

    async def _prepare(
        self, adapter: Prepares, step: Request, unit: RenderedUnit, context: SendContext
    ) -> RenderedUnit | Rejected | Unknown:
        answer = await self._driver.send(step, self._adapter.authorize(step), deadline_s=context.deadline_s)
        if isinstance(answer, Fault):
            return answer.outcome()
        crash_point("after-prepare")
        return adapter.prepared(unit, context, answer)

    async def _reconcile(self, unit: RenderedUnit, context: SendContext) -> Verdict:
        adapter = self._adapter
        assert isinstance(adapter, LooksUp)
        ends = asyncio.get_running_loop().time() + context.deadline_s
        answers: list[Answer] = []
        found: Verdict | Request = adapter.look_up(unit, context)
        while isinstance(found, Request):
            if len(answers) == LOOK_UP_REQUESTS_MAX:
                return Unresolved(f"{LOOK_UP_REQUESTS_MAX} requests did not tell", evidence={"pages": len(answers)})
            left_s = ends - asyncio.get_running_loop().time()
            answer = await self._driver.send(found, adapter.authorize(found), deadline_s=left_s)
            if isinstance(answer, Fault):
                evidence = {"phase": answer.phase, "pages": len(answers)}
                return Unresolved(answer.detail[:ERROR_TEXT_MAX_CHARS], evidence=evidence)
            answers.append(answer)
            found = adapter.parse_look_up(unit, context, answers)
        return found
