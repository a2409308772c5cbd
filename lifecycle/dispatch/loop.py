"""The dispatcher: live sending and recovery in one. It takes what is due, claims it, and has it sent.

It decides nothing: `ledger.steps` says what to do next, `ledger.decide` makes the events, the store refuses what comes
too late. No request leaves before its attempt is durable, and whatever the platform did is appended, whoever owns the
intent by then. It runs as long as the gateway does; its cost grows with what is owed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec.structs import replace

from ...adapters.gate import Account, Gate
from ...adapters.surface import Channel, is_external, starts
from ...ledger import decide
from ...ledger import events as e
from ...ledger.dossier import Dossier
from ...ledger.errors import Conflict, LaneBusy, StoreUnavailable
from ...ledger.intent import IntentState, Status
from ...ledger.limits import CLAIMS_PER_PASS, IN_FLIGHT_MAX
from ...ledger.outcome import FailureClass
from ...ledger.steps import (
    Check,
    End,
    Finish,
    Park,
    Release,
    Start,
    Step,
    TakeOver,
    Terms,
    Wait,
    next_step,
    same_request,
)
from ...ledger.store.append import Append
from ...ledger.store.clock import Clock
from ...ledger.store.store import Store
from ...projections.intents import Head, LaneFree, heads
from ...projections.waiting import Waiters
from .attempt import Attempts
from .callbacks import Callbacks
from .due import Due
from .holds import Holds
from .news import News

log = logging.getLogger("msgledger")

POLL_S = 0.5
"""How often readiness and the owners of other workers' attempts are looked at while nothing else happens."""
LATER_MS = 60_000
"""When to look again at what nothing here can move."""
CLOSE_EXTRA_S = 5.0
"""How long after the last deadline an outcome may wait for the ledger while the gateway closes."""
HANDED_S = 0.005
"""How often closing looks whether the claims that are with the writer have become attempts, which it waits for too."""


class Dispatcher:
    """One per gateway, on its event loop.

    `channels` by (channel, account). `is_dead` says whether a worker is provably dead.
    """

    def __init__(
        self,
        store: Store,
        channels: Mapping[tuple[str, str], Channel],
        *,
        worker: str,
        clock: Clock,
        chance: random.Random,
        is_dead: Callable[[str], bool],
        clock_bound_ms: int = 0,
    ) -> None:
        self.store = store
        self.channels = channels
        self.worker = worker
        self.by = f"worker:{worker}"
        self.clock = clock
        self.is_dead = is_dead
        self.gate = Gate(clock, chance, len(channels))
        self.attempts = Attempts(
            store,
            worker=worker,
            clock=clock,
            chance=chance,
            gate=self.gate,
            clock_bound_ms=clock_bound_ms,
            turned=self._turned,
        )
        self.holds = Holds(store, channels, by=self.by, clock=clock, terms=self.attempts.terms, is_dead=is_dead)
        self.callbacks = Callbacks(channels, worker=worker, is_dead=is_dead)
        self.busy: dict[str, asyncio.Task[None]] = {}
        self.handed: set[str] = set()
        """Intents whose claim is with the writer: they are ours before the task stands in `busy`."""
        self.waiters = Waiters()
        self._news = News(store, self.waiters, clock, in_hand=self.in_hand)
        self._wake = asyncio.Event()
        self._crowded: dict[str, int] = {}
        """Lanes in which a message may wait, each with the pass in which that was last said."""
        self._passes = 0
        self.due = Due(clock, worker=worker, is_dead=is_dead, poll_ms=lambda: int(POLL_S * 1000))
        self._loop_task: asyncio.Task[None] | None = None
        self._closing = False
        self._unsettled: set[str] = set()
        self._said: dict[str, Status] = {}
        self._foreign = False

    # ---- life

    def start(self) -> None:
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="msgledger-dispatch")

    def wake(self) -> None:
        """Something may be due now."""
        self._wake.set()

    def news(self) -> None:
        """Another process has written: what it did may free a lane, or settle what a caller waits for."""
        self.due.anew()
        self._wake.set()
        self._news.look()

    async def stop(self) -> None:
        """Start nothing more, let attempts in flight end until their deadline, record what is left as unknown."""
        self._closing = True
        self._wake.set()
        if self._loop_task is not None:
            await asyncio.gather(self._loop_task, return_exceptions=True)
        longest = max((channel.capabilities.deadline_s for channel in self.channels.values()), default=0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest + CLOSE_EXTRA_S):
                while self.busy or self.handed:
                    await (asyncio.wait([*self.busy.values()]) if self.busy else asyncio.sleep(HANDED_S))
        if late := [*self.busy.values()]:
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=CLOSE_EXTRA_S)
        self.waiters.dismiss()

    # ---- what callers see

    def may_claim(self, channel: Channel, lane: str) -> bool:
        """Whether a new message may be claimed in the commit that records it."""
        if self._closing or lane in self._crowded or not self._room():
            return False
        return self.reachable(channel, beside=len(self.handed))

    def reachable(self, channel: Channel, beside: int = 0) -> bool:
        """Whether the channel is ready and nothing has closed it for a while."""
        return starts(channel) and self.gate.open((channel.name, channel.account), redelivery=False, beside=beside)

    def _room(self, begun: int = 0) -> bool:
        return len(self.busy) + len(self.handed) + begun < IN_FLIGHT_MAX

    def note_waiting(self, lane: str) -> None:
        """A message waits in this lane: look for it when the one before it ends."""
        self._crowded[lane] = self._passes
        self.wake()

    def in_hand(self, stream: str) -> bool:
        """Whether this dispatcher is at it already."""
        return stream in self.busy or stream in self.handed

    async def claim_now(self, stream: str) -> None:
        """Claim one intent without waiting for its time; where its lane is taken, the loop will come to it."""
        dossier = await self.attempts.reload(stream)
        state = dossier.state
        channel = self.callbacks.channel(state)
        step = None
        if channel is not None and state.status is Status.PENDING and not self.in_hand(stream):
            step = self.step(replace(dossier, state=replace(state, due_at=None)), channel, self.attempts.terms(channel))
        if channel is not None and isinstance(step, Start):
            claim = self.attempts.claim(dossier, channel, step)
            free = LaneFree(state.lane, self.clock.wall_ms())
            self.handed.add(stream)
            try:
                [result] = await self.store.append(Append(stream, (claim,), expected=state.head, guard=free))
            finally:
                self.handed.discard(stream)
            if isinstance(result, Conflict):
                self._crowded[state.lane] = self._passes
            elif isinstance(result.state, IntentState):
                self.run_claimed(replace(dossier, state=result.state), channel)
        self.wake()

    def run_claimed(self, dossier: Dossier, channel: Channel) -> None:
        """Perform the attempt that was just claimed. The task belongs to the dispatcher, not to the caller."""
        self.spawn(dossier, self.attempts.run(dossier, channel, self._changed))

    # ---- the loop

    async def _run(self) -> None:
        next_at: int | None = self.clock.boot_ms()
        while not self._closing:
            try:
                due = next_at is not None and self.clock.boot_ms() >= next_at
                for account, ready in self.gate.readiness(self.channels):
                    self._turned(account, ready, None)
                if await self.holds.tend():
                    self._wake.set()
                if self._wake.is_set() or due or self._foreign:
                    self._wake.clear()
                    next_at = await self._pass()
            except StoreUnavailable as error:
                log.warning("the ledger cannot be used now: %s", error)
                next_at = self.clock.boot_ms() + int(POLL_S * 1000)  # what it was woken for is still to do
            except Exception:
                log.exception("the dispatcher met an error and goes on")
                next_at = self.clock.boot_ms() + int(POLL_S * 1000)
            until = POLL_S if next_at is None else min(POLL_S, (next_at - self.clock.boot_ms()) / 1000)
            if not self._closing:
                await self.clock.wait(self._wake, max(0.001, until))

    async def _pass(self) -> int | None:
        """Everything that can be done now; returns when to look again (boot clock), None where nothing is owed."""
        now = self.clock.wall_ms()
        self._passes += 1
        found = await self.store.read(heads, now)
        self._foreign = any(head.status == "sending" and head.owner != self.worker for head in found)
        alive = {head.id for head in found}
        lanes = {head.lane for head in found}
        self._crowded = {lane: at for lane, at in self._crowded.items() if lane in lanes or at == self._passes}
        self.due.keep(alive)
        self._said = {id: said for id, said in self._said.items() if id in alive}
        next_at: int | None = None
        ready: list[Head] = []
        for head in found:
            if self.in_hand(head.id):
                continue
            at = self.due.at(head, now)
            if at <= now and len(ready) < CLAIMS_PER_PASS:
                ready.append(head)
            else:
                next_at = max(at, now + 1) if next_at is None else min(next_at, max(at, now + 1))
        if ready:
            await self._handle(ready)
            self._wake.set()
        return None if next_at is None else self.clock.boot_ms() + next_at - now

    async def _handle(self, ready: list[Head]) -> None:
        dossiers = await self.store.read(self.due.load, [head.id for head in ready])
        appends: list[Append] = []
        plans: list[tuple[Dossier, Channel | None, bool]] = []
        for head, dossier in zip(ready, dossiers, strict=True):
            if self.in_hand(head.id):
                continue
            if dossier is None:
                self.due.later(head.id, head.head, LATER_MS)
                continue
            channel = self.callbacks.channel(dossier.state)
            try:
                events, claims = self._decide(dossier, channel, [one for _, one, claims in plans if claims])
            except Exception:
                log.exception("intent %s cannot be handled now", head.id)
                self.due.later(head.id, head.head, LATER_MS)
                continue
            if events:
                state = dossier.state
                guard = LaneFree(state.lane, self.clock.wall_ms()) if claims else None
                appends.append(Append(state.id, events, expected=state.head, guard=guard))
                plans.append((dossier, channel, claims))
        if not appends:
            return
        results = await self.store.append(*appends)
        for (dossier, channel, claims), result in zip(plans, results, strict=True):
            if isinstance(result, Conflict):
                if isinstance(result, LaneBusy):
                    self._crowded[dossier.state.lane] = self._passes
                    self.due.later(dossier.state.id, dossier.state.head, 50)
                continue
            assert isinstance(result.state, IntentState)
            now_is = replace(dossier, state=result.state)
            if claims and channel is not None:
                self._crowded[now_is.state.lane] = self._passes  # others may wait behind it: nobody has looked
                self.run_claimed(now_is, channel)
            else:
                self._changed(now_is)

    def _decide(
        self, dossier: Dossier, channel: Channel | None, begun: list[Channel | None]
    ) -> tuple[tuple[e.Event, ...], bool]:
        """The events of the next step, and whether they are a claim. `begun`: where this pass claims already."""
        state = dossier.state
        at = self.clock.wall_ms()
        terms = Terms() if channel is None else self.attempts.terms(channel)
        step = self.step(dossier, channel, terms)
        match step:
            case Finish():
                event = decide.finish(state, at=at, by=self.by)
                return ((event,) if event is not None else ()), False
            case End(reason=reason):
                return (decide.end(state, reason, at=at, by=self.by),), False
            case TakeOver():
                return (decide.taken_over(state, at=at, by=self.by),), False
            case Park() if channel is not None and channel.ready:
                return (decide.parked(state, at=at, by=self.by),), False
            case Release() if channel is not None and channel.ready:
                return (e.IntentHeld(at=at, by=self.by),), False
            case Check() if channel is not None and channel.ready and self._room(len(begun)):
                self.spawn(dossier, self.attempts.check(dossier, channel, step, self._changed))
            case Start() if channel is not None and self._may_start(channel, state, begun):
                return (self.attempts.claim(dossier, channel, step),), True
            case Wait(until=until):
                self.due.later(state.id, state.head, LATER_MS if until is None else until - at)
            case _:
                closed_ms = self.gate.closed_for_ms((state.channel, state.account)) or int(POLL_S * 1000)
                self.due.later(state.id, state.head, LATER_MS if channel is None or is_external(channel) else closed_ms)
        return (), False

    def step(self, dossier: Dossier, channel: Channel | None, terms: Terms) -> Step:
        """What may happen to it next, as far as is known here."""
        state = dossier.state
        at = self.due.now(state)
        over = self.due.lease_over(state)
        current = state.current
        dead = current is not None and (current.owner == self.worker or self.is_dead(current.owner))
        step = next_step(state, terms, at, lease_over=over, owner_dead=dead, callback_gone=self.callbacks.gone(state))
        if (
            isinstance(step, Start)
            and step.licence == "window"
            and channel is not None
            and not same_request(state, self.attempts.tries(channel, dossier))
        ):
            closed = replace(terms, window_ms=None)
            return next_step(state, closed, at, lease_over=over, owner_dead=dead)
        return step

    def _may_start(self, channel: Channel, state: IntentState, begun: list[Channel | None]) -> bool:
        if not starts(channel) or not self._room(len(begun)):
            return False
        return self.gate.open(
            (channel.name, channel.account),
            redelivery=state.attempts > 0 or state.id not in self.waiters,
            beside=begun.count(channel),
        )

    # ---- tasks and news

    def spawn(self, dossier: Dossier, work: Coroutine[Any, Any, None]) -> None:
        id, lane = dossier.state.id, dossier.state.lane
        task = asyncio.get_running_loop().create_task(work)
        self.busy[id] = task

        def ended(task: asyncio.Task[None]) -> None:
            if self.busy.get(id) is task:
                del self.busy[id]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("intent %s: its attempt ended with an error", id, exc_info=error)
                self.due.later(id, dossier.state.head, 0)  # what it was about is still to do
                self._wake.set()
            if lane in self._crowded or id in self._unsettled:
                self._unsettled.discard(id)
                self._wake.set()

        task.add_done_callback(ended)

    def _changed(self, dossier: Dossier) -> None:
        """An intent has a new status here: tell who waits, and look again where it is still owed."""
        state = dossier.state
        if self._said.pop(state.id, None) is not state.status:
            log.info("intent %s is %s", state.id, state.status.value)
        if not state.terminal:
            self._said[state.id] = state.status
        else:
            self.callbacks.drop(state.id)
            self.attempts.media.release(state.media)
        if not state.terminal and state.status is not Status.SENDING:
            self._unsettled.add(state.id)
            if state.looked:
                self.due.at_once(state.id, state.head)  # its next look-up has a time, what is safe now has not
            if state.id not in self.busy:
                self._wake.set()
        self.waiters.tell(dossier, self.clock.wall_ms())

    def _turned(self, account: Account, up: bool, failure: FailureClass | None) -> None:
        """A channel came or went: that is a fact of this worker, and what was put off for it may be due."""
        self.due.anew()
        self._wake.set()
        channel, name = account
        log.info("channel %s/%s is %s", channel, name, "ready" if up else "down")
        at = self.clock.wall_ms()
        event: e.Event = e.ChannelDown(at=at, by=self.by, channel=channel, account=name, failure=failure)
        if up:
            event = e.ChannelReady(at=at, by=self.by, channel=channel, account=name)
        with contextlib.suppress(StoreUnavailable):  # the attempt that found it out goes on
            self.store.append(Append(self.worker, (event,))).add_done_callback(_noted)


def _noted(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("a channel's change was not recorded: %s", error)
