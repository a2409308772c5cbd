"""The gateway: what `open` returns. It puts the parts together, keeps a worker in the ledger, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self

from ..adapters import calls
from ..adapters.receiving import Event, Intake, Taken
from ..adapters.surface import Channel, opens
from ..ledger import events as e
from ..ledger.echo import BOTS, BotPolicy
from ..ledger.errors import InvalidConfig, LedgerError, NotPossible
from ..ledger.inbound_events import AckKind
from ..ledger.limits import APPEND_WAIT_MS, ATTEMPTS_MAX, TURN_TIMEOUT_S, TURNS_MAX
from ..ledger.message import Message
from ..ledger.session import SessionPolicy
from ..ledger.store.append import NEW, Append
from ..ledger.store.clock import Clock, host_name, new_id
from ..ledger.store.owner import Owner
from ..ledger.store.store import Store
from ..projections import VIEWS
from ..projections.effects import Fn, Subscriber, When
from ..projections.inbound import running_turns
from ..projections.intents import owners_in_flight
from ..version import __version__
from .bridge import Bridges
from .bridging.claims import Claims
from .dispatch.direct import Direct
from .dispatch.loop import Dispatcher
from .inbound.acks import Choice
from .inbound.context import Handler, Inbound
from .inbound.flow import Authorize
from .plan import Durable, Options, Planner
from .receive import Receiving, Settings
from .send import Delivery, Sender, Sending

SESSIONS: Final = SessionPolicy()
"""What a gateway has that says nothing of its sessions."""


class Gateway(Bridges):
    """Sends messages and owes them until they have arrived; what may be asked of it stands in `Reads`,
    what it does for gateways that deliver by themselves in `Bridges`.

    Made by `msgledger.open`; use it with `async with`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        channels: Sequence[Channel] = (),
        *,
        durability: Durable = "required",
        lock_wait_s: float = APPEND_WAIT_MS / 1000,
        on_message: Handler | None = None,
        authorize: Authorize | None = None,
        ack: Choice | None = None,
        sessions: SessionPolicy = SESSIONS,
        bots: BotPolicy = BOTS,
        turns_max: int = TURNS_MAX,
        turn_timeout_s: float = TURN_TIMEOUT_S,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        super().__init__(clock)
        self._settings = Settings(
            handler=on_message,
            authorize=authorize,
            ack=ack,
            sessions=sessions,
            bots=bots,
            turns_max=turns_max,
            turn_timeout_s=turn_timeout_s,
        )
        self._path = path
        self._channels = _by_account(channels)
        self._durability: Durable = durability
        self._lock_wait_ms = int(lock_wait_s * 1000)
        self._chance = chance if chance is not None else random.Random()
        self._subscribers: list[Subscriber] = []
        self._wanted: list[tuple[str, When, Fn]] = []

    # ---- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the ledger, take a worker's lock, and begin with what is owed."""
        if self._store is not None:
            raise NotPossible("the gateway is open already")
        loop = asyncio.get_running_loop()
        store = await loop.run_in_executor(None, self._open_store)
        self._owner = Owner(store.path)
        try:
            await self._begin(store)
        except BaseException:
            for subscriber in self._subscribers:
                await subscriber.stop()
            self._owner.release()
            await loop.run_in_executor(None, store.close)
            raise
        self._store = store

    def _open_store(self) -> Store:
        return Store.open(self._path, VIEWS, wall_ms=self._clock.wall_ms, wait_ms=self._lock_wait_ms)

    async def _begin(self, store: Store) -> None:
        self.worker = new_id(self._clock.wall_ms())
        self._owner.hold(self.worker)
        running = await store.read(running_turns)
        handles = self._settings.handler is not None  # else it takes over none, and its start is no restart of theirs
        interrupted = [stream for stream, owner in running if handles and self._owner.is_dead(owner)]
        await self._append_started(store, len(interrupted))
        self._owner.sweep({self.worker, *await store.read(owners_in_flight), *(owner for _, owner in running)})
        self._dispatcher = Dispatcher(
            store,
            self._channels,
            worker=self.worker,
            clock=self._clock,
            chance=self._chance,
            is_dead=self._owner.is_dead,
        )
        self._direct = Direct(self._dispatcher)
        planner = Planner(self._channels, store.pseudonyms, worker=self.worker, clock=self._clock)
        self._sender = Sender(planner, self._dispatcher, self._direct)
        self._claims = Claims(self._sender)
        self._receiving = Receiving(
            store,
            self._channels,
            self._sender,
            self._settings,
            worker=self.worker,
            clock=self._clock,
            chance=self._chance,
            is_dead=self._owner.is_dead,
            is_alive=self._owner.is_alive,
            durability=self._durability,
        )
        self._stops: list[Callable[[], None]] = [
            store.on_foreign_commit(self._dispatcher.news),
            store.on_foreign_commit(self._receiving.news),
            store.on_commit(lambda _: self._receiving.committed()),
        ]
        await self._receiving.begin(interrupted)
        for channel in self._channels.values():
            if opens(channel):
                await channel.open()
        for name, when, fn in self._wanted:
            await self._subscribe(store, name, when, fn)
        await self._dispatcher.holds.tend()  # what this configuration lets go is owed from the start
        self._dispatcher.start()
        self._dispatcher.attempts.media.start()
        self._receiving.start()

    async def _append_started(self, store: Store, interrupted: int) -> None:
        started = e.WorkerStarted(
            at=self._clock.wall_ms(),
            by=f"worker:{self.worker}",
            host=host_name(),
            boot=self._clock.boot_id,
            pid=os.getpid(),
            msgledger=__version__,
            channels={f"{name}/{account}": channel.version for (name, account), channel in self._channels.items()},
            interrupted=interrupted,
        )
        [result] = await store.append(Append(self.worker, (started,), expected=NEW))
        if isinstance(result, Exception):
            raise result

    async def close(self) -> None:
        """Accept nothing new, let attempts in flight end until their deadline, and leave the rest owed."""
        store, self._store = self._store, None
        if store is None:
            return
        self._end_followers()
        try:
            await self._receiving.stop()
            await self._dispatcher.stop()
            await self._direct.stop()
            await self._dispatcher.attempts.media.close()
            for subscriber in self._subscribers:
                await subscriber.stop()
            for channel in self._channels.values():
                if opens(channel):
                    await channel.close()
            stopped = e.WorkerStopped(at=self._clock.wall_ms(), by=f"worker:{self.worker}")
            with contextlib.suppress(LedgerError):  # its free lock says the same
                await store.append(Append(self.worker, (stopped,)))
        finally:
            for stop in self._stops:
                stop()
            self._owner.release()
            await asyncio.get_running_loop().run_in_executor(None, store.close)

    # ---- sending

    async def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        producer: str | None = None,
        run: str | None = None,
        ordinal: int | None = None,
        session: str | None = None,
        durability: Durable | None = None,
        on_unknown: e.OnUnknown = "hold",
        ordered: bool = True,
        max_attempts: int = ATTEMPTS_MAX,
        max_age_s: float | None = None,
        not_before: int | None = None,
        traceparent: str | None = None,
        hooks: tuple[str, ...] = (),
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> Delivery:
        """Record the intent, send it, and say what came of it.

        Returns when the intent has ended, is unknown, held or waiting, at the latest after one attempt's deadline or
        `timeout_s`; `wait=False` returns once it is durable. `key` (or `producer` with `run`) makes a repetition return
        the intent that stands. `on_unknown="at_least_once"` allows a copy with the visible marker where nobody can say
        whether the first arrived. `ordered=False` takes the message out of its conversation's order. `not_before` is
        UTC milliseconds.

        Files of the message are copied before it is recorded, and the copies are sent (docs/media.md).

        Raises `InvalidMessage` (for a file `InvalidMedia`) with nothing recorded, `IdempotencyConflict`, a
        `StoreUnavailable` with nothing sent, and `WriteUncertain` where only asking again with the same key can tell.
        """
        options = Options(
            key=key,
            producer=producer,
            run=run,
            ordinal=ordinal,
            session=session,
            durability=durability if durability is not None else self._durability,
            on_unknown=on_unknown,
            ordered=ordered,
            max_attempts=max_attempts,
            max_age_s=max_age_s,
            not_before=not_before,
            traceparent=traceparent,
            hooks=hooks,
            wait=wait,
            timeout_s=timeout_s,
        )
        self._opened()
        return await self._sender.send(message, options)

    def sending(self, message: Message, **options: Any) -> AbstractAsyncContextManager[Sending]:
        """The same transaction held open: durable on entry, `send` or `fail` inside. Takes the options of `send`."""
        self._opened()
        options.setdefault("durability", self._durability)
        return self._sender.sending(message, Options(**options))

    async def edit(self, of: str | Delivery, message: Message, **options: Any) -> Delivery:
        """Change the text of a message that was sent: an intent of its own, in the same order."""
        self._opened()
        return await self._sender.change(_intent(of), message, "edit", Options(**options))

    async def delete(self, of: str | Delivery, **options: Any) -> Delivery:
        """Delete every part of a message that was sent: an intent of its own, in the same order."""
        self._opened()
        return await self._sender.change(_intent(of), None, "delete", Options(**options))

    async def cancel(self, of: str | Delivery, reason: str) -> Delivery:
        """Take back an intent of which nothing was sent. Raises `NotPossible` where something may have been."""
        self._opened()
        return await self._sender.cancel(_intent(of), reason, f"gateway:{self.worker}")

    # ---- receiving

    def receiving(
        self, event: Event, *, channel: str, account: str | None = None, ack: str | None = None
    ) -> AbstractAsyncContextManager[Inbound]:
        """One event of a platform, and its turn as a block: recorded on entry, done when the block ends.

        A repetition, an echo and what `authorize` refuses end the block at its first use of `inbound`, quietly; ask
        `inbound.skipped` for the reason. An exception in the block has the turn run again, by the handler if there is
        one, else when the platform delivers the event again. `ack`: the policy for this event. Raises `UnknownChannel`,
        and a `StoreUnavailable` where it could not be recorded: then the platform must not be told that we have it.
        """
        self._opened()
        return self._receiving.receiving(event, self._receiving.channel(channel, account), ack)

    async def receive(self, event: Event, *, channel: str, account: str | None = None, ack: str | None = None) -> Taken:
        """Record one event of a platform; the handler does the turn. `await taken.done` before the platform is told."""
        self._opened()
        found = self._receiving.channel(channel, account)
        return await self._receiving.take(event, found, self._receiving.policy(found, ack), "transport")

    def intake(self, channel: str, account: str | None = None, *, via: AckKind = "transport") -> Intake:
        """What a driver of one's own is given: the one way in, and the polling cursor. See docs/receiving.md."""
        self._opened()
        return self._receiving.intake(self._receiving.channel(channel, account), via)

    # ---- effects

    async def on_sent(self, name: str, fn: Fn) -> None:
        """Call `fn(effect)` when a unit's receipt is durable, live or recovered: at least once, also over restarts."""
        await self._register(name, "sent", fn)

    async def on_commit(self, name: str, fn: Fn) -> None:
        """The same for each intent that is committed."""
        await self._register(name, "commit", fn)

    async def _register(self, name: str, when: When, fn: Fn) -> None:
        self._wanted.append((name, when, fn))
        if self._store is not None:
            await self._subscribe(self._store, name, when, fn)

    async def _subscribe(self, store: Store, name: str, when: When, fn: Fn) -> None:
        subscriber = Subscriber(store, name, when, fn)
        self._stops.append(store.on_commit(lambda _: subscriber.notice()))
        self._stops.append(store.on_foreign_commit(subscriber.notice))
        self._subscribers.append(subscriber)
        await subscriber.start()


def open(
    path: str | os.PathLike[str],
    channels: Sequence[Channel] = (),
    *,
    durability: Durable = "required",
    lock_wait_s: float = APPEND_WAIT_MS / 1000,
    on_message: Handler | None = None,
    authorize: Authorize | None = None,
    ack: Choice | None = None,
    sessions: SessionPolicy = SESSIONS,
    bots: BotPolicy = BOTS,
    turns_max: int = TURNS_MAX,
    turn_timeout_s: float = TURN_TIMEOUT_S,
) -> Gateway:
    """A gateway over the ledger at `path`, which is made where there is none. Use it with `async with`.

    `durability`: what a send gets that says nothing of its own. `lock_wait_s`: how long anything waits for a ledger
    that another process has locked.

    `on_message(inbound)`: the handler of what comes in. With it every channel that polls or has a socket is received
    from; each message is recorded, handled in order per conversation, and handled again where that did not end well.
    `authorize(incoming)`: False, or why not, for what is not to be answered. `ack`: the acknowledgement policy, one or
    one a channel: `after_record`, `after_durable_send`, `manual`, `immediate:<reason>`; else the channel's own.
    `sessions`: who shares a conversation, and when it begins anew. `bots`: how much of other bots is answered
    (docs/origin.md). A run of a turn takes at most `turn_timeout_s`, and `turns_max` run at once.

    Raises a `CannotOpen` or `StoreUnavailable` when it is entered, `InvalidConfig` for a channel or setting that cannot
    be worked with.
    """
    return Gateway(
        path,
        channels,
        durability=durability,
        lock_wait_s=lock_wait_s,
        on_message=on_message,
        authorize=authorize,
        ack=ack,
        sessions=sessions,
        bots=bots,
        turns_max=turns_max,
        turn_timeout_s=turn_timeout_s,
    )


def _by_account(channels: Sequence[Channel]) -> dict[tuple[str, str], Channel]:
    found: dict[tuple[str, str], Channel] = {}
    for channel in channels:
        calls.check(channel)
        account = (channel.name, channel.account)
        if account in found:
            raise InvalidConfig(f"channel {channel.name!r} has the account {channel.account!r} twice: name them apart")
        found[account] = channel
    return found


def _intent(of: str | Delivery) -> str:
    return of.intent if isinstance(of, Delivery) else of
