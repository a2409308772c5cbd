"""From an event of a platform to a message whose turn is owed: the steps, in the one order that they may have.

Normalize, classify, know a repetition, let the echo gate and the gateway's own rule judge, find the session, record.
Nothing is dispatched here, and nothing is acknowledged before it is durable.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ...adapters.receiving import Event, Ignored, Incoming, Receives
from ...adapters.surface import Channel
from ...ledger import inbound_events as i
from ...ledger.codec import as_json
from ...ledger.errors import AlreadyReceived, Conflict, InvalidMessage, UnroutableSource
from ...ledger.fold import HeldStream
from ...ledger.inbound import InboundState, InboundStatus, acknowledgement, record
from ...ledger.limits import KEY_MAX_BYTES
from ...ledger.origin import NO_ORIGIN, Origin
from ...ledger.source import SessionSource
from ...ledger.store.append import NEW, Append
from ...ledger.store.clock import Clock, new_id
from ...ledger.store.crash import crash_point
from ...ledger.store.store import Store
from ...projections.inbound import EventFree, TurnFree, by_event
from .gate import Drop, sender_of
from .turns import Turn, load, shown

log = logging.getLogger("msgledger")

Authorize = Callable[[Incoming], "bool | str | Awaitable[bool | str]"]
"""Whether the gateway wants to answer it: True, or False, or why not."""
Policy = Callable[[Channel], i.AckPolicy]


class Damaged(HeldStream):
    """An event that came again, whose stream cannot be read any more."""

    def __init__(self, inbound: str, why: str) -> None:
        super().__init__(why)
        self.inbound = inbound


class Judge(Protocol):
    """The echo gate."""

    async def judge(self, channel: Channel, incoming: Incoming) -> Drop | None: ...


class Route(Protocol):
    """Where a message belongs: the session's key, its digest, and what has to be appended before the record."""

    @property
    def key(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def appends(self) -> tuple[Append, ...]: ...


class Routes(Protocol):
    async def route(self, source: SessionSource, *, addressed: bool) -> Route: ...


class Received(msgspec.Struct, frozen=True):
    """What became of an event: its stream as it stands, and whether that is news."""

    turn: Turn
    repeated: bool = False
    claimed: bool = False
    """Whether the caller got the turn with the record."""

    @property
    def state(self) -> InboundState:
        return self.turn.state


class Claim(msgspec.Struct, frozen=True):
    """The wish to begin the turn in the commit that records it, where there is room. `handed` is told before that it is
    with the writer."""

    owner: str
    handed: set[str]
    room: Callable[[], bool]


class Flow:
    """The steps for all channels of a gateway."""

    def __init__(
        self,
        store: Store,
        *,
        by: str,
        clock: Clock,
        gate: Judge | None = None,
        routes: Routes | None = None,
        authorize: Authorize | None = None,
    ) -> None:
        self._store = store
        self._by = by
        self._clock = clock
        self._gate = gate
        self._routes = routes
        self._authorize = authorize

    async def receive(
        self, event: Event, channel: Channel, *, policy: i.AckPolicy, via: i.AckKind, claim: Claim | None = None
    ) -> Received:
        """All steps for one event. When it returns, the event is durable, or was before.

        Raises a `StoreUnavailable` where it could not be recorded: then nothing may be acknowledged.
        """
        key, incoming = _normalized(event, channel)
        crash_point("after-normalize")
        event_key = self._store.pseudonyms.event(channel.name, channel.account, key)
        stands = await self._store.read(by_event, event_key)
        if stands is not None:
            return await self._repeated(stands)
        dropped = await self._judged(channel, incoming)
        crash_point("after-gate")
        route = None
        if dropped is None and isinstance(incoming, Incoming) and self._routes is not None:
            try:
                route = await self._routes.route(incoming.source, addressed=incoming.addressed)
            except UnroutableSource as error:
                dropped = Drop("unsupported", shown(str(error)))
        stream = new_id(self._clock.wall_ms())
        try:
            if isinstance(incoming, Ignored) or dropped is not None:
                assert dropped is not None
                return await self._drop(stream, event_key, channel, incoming, dropped, policy, via)
            return await self._record(stream, key, event_key, channel, incoming, route, policy, via, claim)
        except AlreadyReceived as first:
            return await self._repeated(first.inbound)

    async def _judged(self, channel: Channel, incoming: Incoming | Ignored) -> Drop | None:
        """The echo gate before the gateway's own rule: an echo never gets as far as a list of permitted bots."""
        if isinstance(incoming, Ignored):
            return Drop("unsupported", shown(incoming.what))
        if self._gate is not None and (echo := await self._gate.judge(channel, incoming)) is not None:
            return echo
        if self._authorize is None:
            return None
        said = self._authorize(incoming)
        allowed = await said if inspect.isawaitable(said) else said
        if isinstance(allowed, bool):
            return None if allowed else Drop("unauthorised")
        if isinstance(allowed, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return Drop("unauthorised", shown(allowed) or None)
        log.warning("authorize gave a %s: only True permits; say True, False, or why not", type(allowed).__name__)
        return Drop("unauthorised", f"authorize gave a {type(allowed).__name__}")

    async def _drop(
        self,
        stream: str,
        event_key: str,
        channel: Channel,
        incoming: Incoming | Ignored,
        why: Drop,
        policy: i.AckPolicy,
        via: i.AckKind,
    ) -> Received:
        """Recorded without its text: enough to know it when it comes again, and to say why nobody answered."""
        at, names = self._clock.wall_ms(), self._store.pseudonyms
        event = i.InboundDropped(
            at=at,
            by=self._by,
            reason=why.reason,
            note=why.note,
            event_key=event_key,
            channel=channel.name,
            account=channel.account,
            place="" if isinstance(incoming, Ignored) else names.place(incoming.message.target),
            message_id=None if isinstance(incoming, Ignored) else incoming.message.id,
            sender=None if isinstance(incoming, Ignored) else sender_of(names, incoming.source),
            bot=False if isinstance(incoming, Ignored) else incoming.source.is_bot,
        )
        acknowledged = i.Acknowledged(at=at, by=self._by, ack=via, policy=policy)
        state = await self._append(
            Append(stream, (event, acknowledged), expected=NEW, guard=EventFree(event_key)),
        )
        log.info("inbound %s is dropped (%s)", stream, why.reason)
        return Received(Turn(state, None))

    async def _record(
        self,
        stream: str,
        key: str,
        event_key: str,
        channel: Channel,
        incoming: Incoming,
        route: Route | None,
        policy: i.AckPolicy,
        via: i.AckKind,
        claim: Claim | None,
    ) -> Received:
        message, names = incoming.message, self._store.pseudonyms
        content = i.InboundContent(
            key=key, message=message, source=incoming.source, session=None if route is None else route.key
        )
        at = self._clock.wall_ms()
        event = i.InboundRecorded(
            at=at,
            by=self._by,
            event_key=event_key,
            channel=channel.name,
            account=channel.account,
            lane=names.lane(channel.account, message.target),
            place=names.place(message.target),
            session=None if route is None else route.session,
            message_id=message.id,
            sender=sender_of(names, incoming.source),
            bot=incoming.source.is_bot,
            addressed=incoming.addressed,
            ack=policy,
            via=via,
            origin=message.origin.fact(),
            sent_at=message.timestamp,
            content=content,
        )
        state = record(stream, event, 0, at)
        events = (event, *acknowledgement(state, at=at, by=self._by))
        items = [Append(stream, events, expected=NEW, guard=EventFree(event_key))]
        if claim is not None and state.status is InboundStatus.PENDING and claim.room():
            begun = i.InboundDispatched(at=at, by=self._by, run=1, owner=claim.owner)
            items.append(Append(stream, (begun,), expected=len(events) - 1, guard=TurnFree(state.lane)))
            claim.handed.add(stream)
        crash_point("before-inbound")
        try:
            state = await self._append(*items, before=() if route is None else route.appends)
        except BaseException:
            if claim is not None:
                claim.handed.discard(stream)
            raise
        if claim is not None and state.status is not InboundStatus.RUNNING:
            claim.handed.discard(stream)
        crash_point("after-inbound")
        log.info("inbound %s is %s", stream, state.status.value)
        return Received(Turn(state, content), claimed=state.status is InboundStatus.RUNNING)

    async def _append(self, *items: Append, before: tuple[Append, ...] = ()) -> InboundState:
        """In one transaction. What stands before may have been done by somebody else; a claim may be refused."""
        results = (await self._store.append(*before, *items))[len(before) :]
        if isinstance(results[0], Conflict):
            raise results[0]
        last = [one for one in results if not isinstance(one, Conflict)][-1]
        assert isinstance(last.state, InboundState)
        return last.state

    async def _repeated(self, stream: str) -> Received:
        """Raises `Damaged`."""
        try:
            return Received(await self._store.read(load, stream), repeated=True)
        except HeldStream as error:
            raise Damaged(stream, str(error)) from error


def _normalized(event: Event, channel: Channel) -> tuple[str, Incoming | Ignored]:
    """The event's key, and the event in our words. What the channel cannot read is an event all the same, and is known
    by its bytes when it comes again."""
    if not isinstance(channel, Receives):
        raise InvalidMessage(f"channel {channel.name!r} receives nothing: it has no `normalize` and `dedupe_key`")
    try:
        key = channel.dedupe_key(event)
        if not 0 < len(key.encode()) <= KEY_MAX_BYTES:
            raise ValueError(f"an event key of {len(key)} characters")
    except Exception as error:
        digest = hashlib.sha256(_bytes(event)).hexdigest()
        return f"sha256:{digest}", Ignored(f"unreadable: {type(error).__name__}")
    try:
        incoming = channel.normalize(event)
        if isinstance(incoming, Incoming):
            incoming = _readable(_with_origin(incoming, event, channel))
    except Exception as error:
        return key, Ignored(f"unreadable: {type(error).__name__}")
    return key, incoming


def _with_origin(incoming: Incoming, event: Event, channel: Channel) -> Incoming:
    decode = getattr(channel, "decode_origin", None)
    origin = decode(event) if callable(decode) else None
    if not isinstance(origin, Origin) or origin == NO_ORIGIN:
        return incoming
    return replace(incoming, message=replace(incoming.message, origin=origin))


def _readable(incoming: Incoming) -> Incoming:
    """As it will be read from the ledger again: what a platform gives in another type is refused before it is kept."""
    return _decode(as_json(incoming))


_decode = msgspec.json.Decoder(Incoming).decode


def _bytes(event: Event) -> bytes:
    try:
        return msgspec.json.encode(event, order="deterministic")
    except (TypeError, ValueError, RecursionError):
        return repr(event).encode("utf-8", "surrogatepass")
