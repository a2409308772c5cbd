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
from ..ledger.echo import BotPolicy
from ..ledger.errors import Conflict, InvalidConfig, LedgerError, UnknownChannel
from ..ledger.inbound import InboundState
from ..ledger.session import SessionPolicy
from ..ledger.store.append import Append
from ..ledger.store.clock import Clock
from ..ledger.store.crash import crash_point
from ..ledger.store.store import Store
from ..projections.conversation import mentions
from ..projections.effects import AGAIN_S
from .inbound.acks import Acks, Choice, chosen
from .inbound.blocks import Blocks, is_skip
from .inbound.context import Handler, Inbound
from .inbound.cursors import Cursors
from .inbound.flow import Authorize, Claim, Damaged, Flow
from .inbound.gate import Gate
from .inbound.resume import Resume
from .inbound.route import Router
from .inbound.turns import Refuse, Turn, Turns, asked_to_end, load
from .plan import Durable
from .send import Sender

log = logging.getLogger("msgledger")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `open` says of the receiving half."""

    handler: Handler | None = None
    authorize: Authorize | None = None
    ack: Choice | None = None
    sessions: SessionPolicy
    bots: BotPolicy
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
        is_alive: Callable[[str], bool],
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
        self._drivers: list[asyncio.Task[None]] = []
        self._taking: set[asyncio.Task[Taken]] = set()
        self._asking: asyncio.Task[None] | None = None
        self._ask = False
        self._resume = Resume(store, by=self._by, clock=clock, is_dead=is_dead, is_alive=is_alive)
        self._resuming: asyncio.Task[None] | None = None
        self._look_again = False
        """Whether something was committed since the look that goes on began."""
        self._router = Router(store, settings.sessions, by=self._by, clock=clock, chance=chance)
        self._flow = Flow(
            store,
            by=self._by,
            clock=clock,
            gate=Gate(store, settings.bots, clock=clock),
            routes=self._router,
            authorize=settings.authorize,
        )
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
        handled = settings.handler is not None
        self.blocks = Blocks(store, self.turns, handled=handled, by=self._by, clock=clock)
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
        await asyncio.gather(*self._drivers, *self._taking, return_exceptions=True)
        await self.turns.stop()
        for task in (self._resuming, self._asking):
            if task is not None:
                await asyncio.gather(task, return_exceptions=True)
        self.acks.close()
        self.blocks.news()

    async def _supervised(self, channel: Receiver) -> None:
        assert isinstance(channel, Channel)
        intake = self.intake(channel, via="offset")
        while True:
            try:
                await channel.receive(intake)
                log.warning("channel %s/%s stopped receiving; it is started again", channel.name, channel.account)
            except asyncio.CancelledError:
                if asked_to_end():
                    raise
                log.warning("channel %s/%s waited for something that was cancelled", channel.name, channel.account)
            except Exception:
                log.exception("channel %s/%s met an error while receiving", channel.name, channel.account)
            await self._clock.wait(asyncio.Event(), AGAIN_S)

    def news(self) -> None:
        """Another process has written: a turn may have ended, or a lane become free."""
        self.turns.wake()
        self.blocks.news()
        self.committed()
        self._ask = True
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_for_acks())

    def committed(self) -> None:
        """Something was committed: a reply may be sent that a session waits for."""
        if not self._resume.waits:
            return
        self._look_again = True
        if self._resuming is None or self._resuming.done():
            self._resuming = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        """As long as there is news: a turn may end while it is looked whether it has."""
        while self._look_again:
            self._look_again = False
            try:
                await self._resume.look()
            except LedgerError as error:
                log.warning("a resume that came to its end is cleared later: %s", error)

    async def _ask_for_acks(self) -> None:
        """Whether others have acknowledged what is waited for here; one look at a time, however often they write."""
        while self._ask:
            self._ask = False
            for stream in self.acks.streams():
                with contextlib.suppress(LedgerError):
                    self.acks.tell((await self._store.read(load, stream)).state)

    def _changed(self, state: InboundState) -> None:
        self.acks.tell(state)
        self.blocks.news()
        self._resume.changed(state)
        self.committed()

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
        """Record it, and have its turn begin where it can. A caller that goes away meanwhile takes nothing with it."""
        work = asyncio.get_running_loop().create_task(self._take(event, channel, policy, via))
        self._taking.add(work)
        work.add_done_callback(self._taken)
        return await asyncio.shield(work)

    def _taken(self, work: asyncio.Task[Taken]) -> None:
        self._taking.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            log.debug("an event was not taken: %s", error)  # its caller hears it, where there still is one

    async def _take(self, event: Event, channel: Channel, policy: i.AckPolicy, via: i.AckKind) -> Taken:
        claim = Claim(self._worker, self.turns.handed, lambda: self.turns.may_begin) if self.turns.may_begin else None
        try:
            received = await self._flow.receive(event, channel, policy=policy, via=via, claim=claim)
        except Damaged as error:  # a person has to see to it: the platform need not repeat it until then
            log.warning("inbound %s came again and cannot be read: %s", error.inbound, error)
            return self.acks.given_up(error.inbound)
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
        turn, skipped = await self._block(event, channel, policy)
        stream, inbound = turn.state.id, None
        if skipped is not None:
            try:
                yield await self._inbound(turn, skipped)
            except BaseException as error:
                if not is_skip(error):
                    raise
            return
        self.turns.enter(stream)
        try:
            inbound = await self._inbound(turn)
            try:
                yield inbound
            finally:
                inbound.over = True
                self._refuse(inbound)
            crash_point("after-handler")
            await self._ended(inbound)
        except Exception as error:
            await self.turns.fail(turn.state if inbound is None else inbound.state, error, str(error))
            raise
        finally:
            self.turns.leave(stream)

    async def _block(self, event: Event, channel: Channel, policy: i.AckPolicy) -> tuple[Turn, str | None]:
        """The turn for a block of the caller's, once the lane is free; or why there is none."""
        claim = Claim(self._worker, self.turns.handed, lambda: not self.turns.closing)
        try:
            received = await self._flow.receive(event, channel, policy=policy, via="transport", claim=claim)
        except BaseException:
            self.turns.wake()  # it may be recorded all the same, and then nobody runs it
            raise
        return (received.turn, None) if received.claimed else await self.blocks.turn(received.turn)

    # ---- a turn

    async def _handle(self, turn: Turn) -> tuple[str, ...]:
        """One run of the handler. Raises what it raises."""
        assert self._settings.handler is not None
        inbound = await self._inbound(turn)
        try:
            await self._settings.handler(inbound)
        finally:
            inbound.over = True
            self._refuse(inbound)
        if inbound.refused is not None:
            raise inbound.refused
        self._remind(inbound)
        return inbound.intents

    async def _ended(self, inbound: Inbound) -> None:
        if inbound.refused is None:
            self._remind(inbound)
            await self.turns.complete(inbound.state, inbound.intents)
        else:
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
