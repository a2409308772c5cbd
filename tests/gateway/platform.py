"""A platform in memory that does as it is told, and keeps a list of its own of what became visible: the truth.

`plan(...)` says what happens to the next requests, `rule` what happens to all others; without either they are accepted.
It recognises keys inside a window where it was made to, and can be asked what it holds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from msgledger import Accepted, CallableChannel, NotDispatched, NotSent, Rejected, RenderedUnit, Sent, Unknown
from msgledger.adapters.surface import Capabilities, Change, Idempotency, Lookup, SendContext, TextLimit

from .clock import VirtualClock

Behaviour = Callable[["Request"], Awaitable[Any]]
DEADLINE_S = 5.0
SETTLE_S = 10.0


@dataclass
class Request:
    """One call of `deliver`, as it came."""

    platform: Platform
    unit: RenderedUnit
    context: SendContext
    at: int
    """Milliseconds on the boot clock."""

    @property
    def text(self) -> str:
        return self.unit.text or ""


@dataclass
class Visible:
    """One message that people can see."""

    id: str
    text: str
    place: str
    key: str
    unit: int
    thread: str | None
    reply_to: str | None
    at: int
    seen_at: int
    """When a look-up finds it, on the boot clock."""


@dataclass
class Platform:
    clock: VirtualClock
    name: str = "plat"
    window_s: float | None = None
    """It recognises keys for so long; None: never."""
    conflict: bool = False
    """A known key is answered with a conflict, not with the first id."""
    looks_up: bool = False
    proves_absence: bool = True
    lag_s: float = 0.0
    requests: list[Request] = field(default_factory=list)
    looked_up: list[SendContext] = field(default_factory=list)
    visible: list[Visible] = field(default_factory=list)
    log: list[tuple[str, str | None, str | None, str]] = field(default_factory=list)
    """Edits and deletes: action, platform id, token, text."""
    rule: Behaviour | None = None
    look: Callable[[RenderedUnit, SendContext], Any] | None = None
    ready: bool = True
    before: Callable[[Request], Awaitable[None]] | None = None
    """Called first of all, with the request in hand."""
    _next: deque[Behaviour] = field(default_factory=deque)

    def channel(self, **more: Any) -> CallableChannel:
        """The channel to it. `capabilities` fields and arguments of `CallableChannel` may be overridden."""
        able: dict[str, Any] = {
            "text": TextLimit(max=200),
            "edit": Change(),
            "delete": Change(),
            "deadline_s": DEADLINE_S,
            "settle_s": SETTLE_S,
        }
        if self.window_s is not None:
            able["idempotency"] = Idempotency(
                "client_key",
                "key",
                self.window_s,
                on_duplicate="conflict_blind" if self.conflict else "returns_receipt",
                evidence="documented",
            )
        if self.looks_up:
            able["reconcile"] = Lookup("by_key", can_prove_absence=self.proves_absence, evidence="documented")
        fields = Capabilities.__struct_fields__
        able |= {name: more.pop(name) for name in list(more) if name in fields}
        if self.looks_up:
            more.setdefault("reconcile", self._look_up)
        return CallableChannel(
            more.pop("name", self.name),
            more.pop("deliver", self.deliver),
            capabilities=Capabilities(**able),
            ready=more.pop("ready", lambda: self.ready),
            **more,
        )

    def plan(self, *behaviours: Behaviour) -> None:
        self._next.extend(behaviours)

    async def deliver(self, unit: RenderedUnit, context: SendContext) -> Any:
        request = Request(self, unit, context, self.clock.boot_ms())
        self.requests.append(request)
        if self.before is not None:
            await self.before(request)
        behaviour = self._next.popleft() if self._next else self.rule or accept
        return await behaviour(request)

    def apply(self, request: Request) -> tuple[str, bool]:
        """Make it visible, once for a key that is recognised. The id, and whether the key was known."""
        context = request.context
        now = self.clock.boot_ms()
        if context.action != "send":
            self.log.append((context.action, context.of_platform_id, context.of_token, request.text))
            return context.of_platform_id or "?", False
        for one in self.visible:
            if self.window_s is not None and one.key == context.provider_key and now < one.at + self.window_s * 1000:
                return one.id, True
        target = context.target
        one = Visible(
            f"m{len(self.visible) + 1}",
            request.text,
            target.id,
            context.provider_key,
            request.unit.index,
            target.thread,
            context.reply_to,
            now,
            now + int(self.lag_s * 1000),
        )
        self.visible.append(one)
        return one.id, False

    async def _look_up(self, unit: RenderedUnit, context: SendContext) -> Any:
        self.looked_up.append(context)
        if self.look is not None:
            return self.look(unit, context)
        for one in self.visible:
            if one.key == context.provider_key and self.clock.boot_ms() >= one.seen_at:
                return Sent(Accepted(one.id))
        return NotSent()

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.visible]


async def accept(request: Request) -> Accepted | Rejected:
    id, known = request.platform.apply(request)
    if known and request.platform.conflict:
        return Rejected("conflict", code="duplicate_key", status=409)
    return Accepted(id, duplicate=known)


def reject(failure: str, **more: Any) -> Behaviour:
    async def behaviour(request: Request) -> Rejected:
        return Rejected(failure, **more)

    return behaviour


async def refuse(request: Request) -> Rejected:
    """The connection is refused."""
    raise NotDispatched("connection refused")


def lose(cause: str = "timeout") -> Behaviour:
    """It becomes visible and the answer is lost."""

    async def behaviour(request: Request) -> None:
        request.platform.apply(request)
        raise Unknown(cause)

    return behaviour


def drop(cause: str = "timeout") -> Behaviour:
    """It does not become visible, and nobody says so."""

    async def behaviour(request: Request) -> None:
        raise Unknown(cause)

    return behaviour


async def no_id(request: Request) -> None:
    request.platform.apply(request)


async def hang(request: Request) -> None:
    await asyncio.Event().wait()


async def hang_visible(request: Request) -> None:
    request.platform.apply(request)
    await asyncio.Event().wait()


def raises(error: Exception) -> Behaviour:
    async def behaviour(request: Request) -> None:
        raise error

    return behaviour


def gated(gate: asyncio.Event, then: Behaviour = accept) -> Behaviour:
    """Waits for the test before it answers."""

    async def behaviour(request: Request) -> Any:
        await gate.wait()
        return await then(request)

    return behaviour
