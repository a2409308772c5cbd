"""The receiving half of a gateway: the one way in for every driver, and the turns that follow.

`take` for drivers, `receive` for a gateway that reads its platform itself and lets the handler do the turns, and
`receiving` for one that wants the turn in a block of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping

import msgspec

from ..adapters.receiving import Event, Receiver, Receives, Taken
from ..adapters.surface import Channel
from ..ledger import inbound_events as i
from ..ledger.errors import Conflict, InvalidConfig, LaneBusy, NotPossible, UnknownChannel
from ..ledger.inbound import InboundState, InboundStatus
from ..ledger.limits import DECIDE_TRIES_MAX
from ..ledger.session import SessionPolicy
from ..ledger.store.append import Append
from ..ledger.store.clock import Clock
from ..ledger.store.crash import crash_point
from ..ledger.store.store import Store
from ..projections.conversation import mentions
from ..projections.effects import AGAIN_S
from .inbound.acks import Acks, Choice, chosen
from .inbound.context import Handler, Inbound, Skip
from .inbound.cursors import Cursors
from .inbound.flow import Authorize, Claim, Flow, Received
from .inbound.resume import Resume
from .inbound.route import Router
from .inbound.turns import Refuse, Turn, Turns, load
from .plan import Durable
from .send import Sender

log = logging.getLogger("msgledger")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `open` says of the receiving half."""

    handler: Handler | None = None
    authorize: Authorize | None = None
    ack: Choice | None = None
    sessions: SessionPolicy
    turns_max: int
    turn_timeout_s: float


class Receiving:
    """One per gateway."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[tuple[str, str], Channel],
        sender: Sender,
        settings: Settings,
        *,
        worker: str,
        clock: Clock,
        chance: random.Random,
        is_dead: Callable[[str], bool],
        durability: Durable,
    ) -> None:
        self._store = store
        self._channels = channels
        self._sender = sender
        self._settings = settings
        self._worker = worker
        self._clock = clock
        self._durability: Durable = durability
        self._by = f"gateway:{worker}"
        self.acks = Acks()
        self._news = asyncio.Event()
        self._drivers: list[asyncio.Task[None]] = []
        self._resume = Resume(store, by=self._by, clock=clock, is_dead=is_dead)
        self._resuming: asyncio.Task[None] | None = None
        self._router = Router(store, settings.sessions, by=self._by, clock=clock, chance=chance)
        self._flow = Flow(store, by=self._by, clock=clock, routes=self._router, authorize=settings.authorize)
        self.turns = Turns(
            store,
            None if settings.handler is None else self._handle,
            worker=worker,
            clock=clock,
            chance=chance,
            is_dead=is_dead,
            changed=self._changed,
            interrupted=self._resume.interrupted,
            most=settings.turns_max,
            timeout_s=settings.turn_timeout_s,
        )
        for channel in channels.values():
            chosen(settings.ack, channel)  # a wrong one is refused before anything comes in

    # ---- life

    async def begin(self, interrupted: list[str]) -> None:
        """What has to be known before any turn begins. `interrupted`: running turns of dead workers."""
        await self._resume.begin(interrupted)

    def start(self) -> None:
        """Work off what is owed, and with a handler fetch what comes."""
        self.turns.start()
        if self._settings.handler is not None:
            loop = asyncio.get_running_loop()
            self._drivers = [
                loop.create_task(self._supervised(channel), name=f"msgledger-receive-{channel.name}")
                for channel in self._channels.values()
                if isinstance(channel, Receiver)
            ]

    async def stop(self) -> None:
        """Fetch nothing more, then let the turns end."""
        for task in self._drivers:
            task.cancel()
        await asyncio.gather(*self._drivers, return_exceptions=True)
        await self.turns.stop()
        if self._resuming is not None:
            await asyncio.gather(self._resuming, return_exceptions=True)
        self.acks.close()
        self._news.set()

    async def _supervised(self, channel: Receiver) -> None:
        assert isinstance(channel, Channel)
        intake = self.intake(channel, via="offset")
        while True:
            try:
                await channel.receive(intake)
                log.warning("channel %s/%s stopped receiving; it is started again", channel.name, channel.account)
            except Exception:
                log.exception("channel %s/%s met an error while receiving", channel.name, channel.account)
            await self._clock.wait(asyncio.Event(), AGAIN_S)

    def news(self) -> None:
        """Another process has written: a turn may have ended, or a lane become free."""
        self.turns.wake()
        self._news.set()
        self.committed()
        for stream in self.acks.streams():
            self._store.read(load, stream).add_done_callback(self._heard)

    def committed(self) -> None:
        """Something was committed: a reply may be sent that a session waits for."""
        if self._resume.waits and (self._resuming is None or self._resuming.done()):
            self._resuming = asyncio.get_running_loop().create_task(self._resume.look())
            self._resuming.add_done_callback(_looked)

    def _heard(self, done: asyncio.Future[Turn]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.acks.tell(done.result().state)

    def _changed(self, state: InboundState) -> None:
        self.acks.tell(state)
        self._news.set()

    # ---- ways in

    def channel(self, name: str, account: str | None) -> Channel:
        """Raises `UnknownChannel`."""
        mine = [channel for (other, _), channel in self._channels.items() if other == name]
        found = [channel for channel in mine if account in (None, channel.account)]
        if len(found) == 1:
            return found[0]
        there = ", ".join(sorted(f"{one}/{of}" for one, of in self._channels)) or "none"
        what = f"{name}/{account}" if account is not None else name
        raise UnknownChannel(f"channel {what!r}: {'several accounts' if found else 'not configured'}; there is {there}")

    def intake(self, channel: Channel, via: i.AckKind = "transport") -> DriverIntake:
        """The way in for a driver of that channel."""
        return DriverIntake(self, channel, via)

    def cursors(self, channel: Channel) -> Cursors:
        return Cursors(self._store, channel, by=self._by, clock=self._clock)

    def policy(self, channel: Channel, said: str | None = None) -> i.AckPolicy:
        """What the call says, else the gateway, else the channel."""
        policy = chosen(said, channel) or chosen(self._settings.ack, channel)
        if policy is not None:
            return policy
        if not isinstance(channel, Receives):
            raise InvalidConfig(f"channel {channel.name!r} receives nothing: it has no `normalize` and `dedupe_key`")
        return channel.ack_policy

    async def take(self, event: Event, channel: Channel, policy: i.AckPolicy, via: i.AckKind) -> Taken:
        """Record it, and have its turn begin where it can."""
        claim = Claim(self._worker, self.turns.handed) if self.turns.may_begin else None
        received = await self._flow.receive(event, channel, policy=policy, via=via, claim=claim)
        state = received.state
        if received.claimed:
            self.turns.begin(received.turn)
        elif state.open:
            self.turns.wake()
        return self.acks.taken(state, repeated=received.repeated)

    @contextlib.asynccontextmanager
    async def receiving(self, event: Event, channel: Channel, ack: str | None) -> AsyncGenerator[Inbound]:
        """See `Gateway.receiving`."""
        policy = self.policy(channel, ack)
        claim = Claim(self._worker, self.turns.handed)
        received = await self._flow.receive(event, channel, policy=policy, via="transport", claim=claim)
        inbound = await self._own(received)
        stream = inbound.id
        try:
            try:
                yield inbound
            except Skip:
                return
            finally:
                inbound.over = True
            if inbound.skipped is not None:
                return
            crash_point("after-handler")
            await self._ended(inbound)
        except Exception as error:
            if inbound.skipped is None:
                await self.turns.fail(inbound.state, error, str(error))
            raise
        finally:
            self.turns.handed.discard(stream)
            self.turns.wake()

    async def _own(self, received: Received) -> Inbound:
        """The turn for a block of the caller's, once the lane is free; or why there is none."""
        turn = received.turn
        tries = 0
        while not received.claimed:
            state = turn.state
            if state.status is InboundStatus.DROPPED:
                return await self._inbound(turn, skipped=state.drop or "dropped")
            if state.status is InboundStatus.CONTEXT:
                return await self._inbound(turn, skipped="context")
            if not state.open:
                return await self._inbound(turn, skipped="repeated")
            if state.hold is not None:
                return await self._inbound(turn, skipped="held")
            self._news.clear()
            self.turns.handed.add(state.id)
            try:
                turn = await self.turns.claim(state.id, "first" if state.runs == 0 else "retry")
                break
            except NotPossible:  # somebody runs it
                self.turns.handed.discard(state.id)
                return await self._inbound(await self._store.read(load, state.id), skipped="repeated")
            except LaneBusy:
                self.turns.handed.discard(state.id)
                await self._clock.wait(self._news, 1.0)
            except Conflict:
                self.turns.handed.discard(state.id)
                tries += 1
                if tries > DECIDE_TRIES_MAX:
                    raise
            except BaseException:
                self.turns.handed.discard(state.id)
                raise
            turn = await self._store.read(load, state.id)
        return await self._inbound(turn)

    # ---- a turn

    async def _handle(self, turn: Turn) -> tuple[str, ...]:
        """One run of the handler. Raises what it raises."""
        assert self._settings.handler is not None
        inbound = await self._inbound(turn)
        try:
            await self._settings.handler(inbound)
        finally:
            inbound.over = True
        if inbound.refused is not None:
            self._refuse(inbound)
            raise inbound.refused
        self._remind(inbound)
        return inbound.intents

    async def _ended(self, inbound: Inbound) -> None:
        if inbound.refused is None:
            self._remind(inbound)
            await self.turns.complete(inbound.state, inbound.intents)
        else:
            self._refuse(inbound)
            final = isinstance(inbound.refused, Refuse)
            await self.turns.fail(inbound.state, inbound.refused, str(inbound.refused), final=final)

    def _refuse(self, inbound: Inbound) -> None:
        if inbound.nacked:
            self.acks.refuse(inbound.id, str(inbound.refused))

    def _remind(self, inbound: Inbound) -> None:
        state = inbound.state
        if state.ack == "manual" and state.acknowledged_at is None:
            log.warning("inbound %s: its turn is done and nobody acknowledged it (policy manual)", state.id)

    async def _inbound(self, turn: Turn, skipped: str | None = None) -> Inbound:
        session, context = None, ()
        if skipped is None and turn.content is not None:
            session = await self._router.context(turn.state, turn.content)
            context = await self._store.read(mentions, turn.state.lane, turn.state.position)
        return Inbound(
            turn,
            self._sender,
            self._acknowledge,
            session=session,
            context=context,
            durability=self._durability,
            skipped=skipped,
        )

    async def _acknowledge(self, state: InboundState) -> InboundState:
        """By hand, at whatever head stands: the turn goes on meanwhile."""
        event = i.Acknowledged(at=self._clock.wall_ms(), by=self._by, ack=state.via, policy=state.ack)
        [result] = await self._store.append(Append(state.id, (event,)))
        if isinstance(result, Conflict):
            raise result
        assert isinstance(result.state, InboundState)
        self._changed(result.state)
        return result.state


def _looked(done: asyncio.Task[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("a resume that came to its end is cleared later: %s", error)


class DriverIntake:
    """See `adapters.receiving.Intake`."""

    def __init__(self, receiving: Receiving, channel: Channel, via: i.AckKind) -> None:
        self._receiving = receiving
        self._channel = channel
        self._via: i.AckKind = via
        self._cursors = receiving.cursors(channel)

    @property
    def policy(self) -> i.AckPolicy:
        return self._receiving.policy(self._channel)

    async def take(self, event: Event) -> Taken:
        return await self._receiving.take(event, self._channel, self.policy, self._via)

    async def cursor(self) -> str | None:
        return await self._cursors.cursor()

    async def advance(self, cursor: str) -> None:
        await self._cursors.advance(cursor)
