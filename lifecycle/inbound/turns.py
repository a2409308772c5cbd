"""The dispatcher of turns: what was recorded and is not done is run, in order per lane, until it is.

It decides nothing: `ledger.inbound` makes the events, the store refuses what comes too late. A turn runs at most once
at a time, on one worker; one whose worker died, or that ended badly, runs again. It goes on as long as the gateway
does; its cost grows with what is owed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

import msgspec

from ...ledger import inbound
from ...ledger import inbound_events as i
from ...ledger.errors import (
    Conflict,
    LaneBusy,
    LedgerError,
    NoSuchStream,
    NotPossible,
    StoreClosed,
    StoreUnavailable,
    WriteUncertain,
)
from ...ledger.fold import HeldStream, fold
from ...ledger.inbound import InboundState, InboundStatus, acknowledgement
from ...ledger.limits import ERROR_TEXT_MAX_CHARS, TURNS_MAX
from ...ledger.store.append import Append
from ...ledger.store.clock import Clock
from ...ledger.store.crash import crash_point
from ...ledger.store.history import events_of
from ...ledger.store.sql import Cursor
from ...ledger.store.store import Store
from ...projections.inbound import TurnFree, TurnHead, turn_heads

log = logging.getLogger("msgledger")

POLL_S = 0.5
"""How often the owners of other workers' turns are looked at while nothing else happens."""
LATER_MS = 60_000
"""When to look again at what nothing here can move."""
CLOSE_WAIT_S = 10.0
"""How long turns may go on once the gateway closes; then they are cancelled, and run again at the next start."""


class Turn(msgspec.Struct, frozen=True):
    """An inbound message with its content. `content` is None where it was dropped or erased."""

    state: InboundState
    content: i.InboundContent | None


def load(cursor: Cursor, stream: str) -> Turn:
    """Raises `NoSuchStream`, or `HeldStream` where it cannot be read."""
    found = events_of(cursor, stream)
    if not found:
        raise NoSuchStream(f"no inbound message {stream}")
    state = fold(stream, ((one.event, one.position, one.recorded_at) for one in found))
    first = found[0].event
    if not isinstance(state, InboundState):
        raise HeldStream(f"stream {stream} is no inbound message")
    return Turn(state, first.content if isinstance(first, i.InboundRecorded) else None)


class Refuse(Exception):
    """The handler refuses the message for good."""


def shown(text: str) -> str:
    """As it may be kept: not longer than that, and nothing in it that cannot be written."""
    return text[:ERROR_TEXT_MAX_CHARS].encode("utf-8", "replace").decode("utf-8")


def asked_to_end() -> bool:
    """Whether a cancellation that is met here is meant for this task, and not for something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


Run = Callable[[Turn], Awaitable[tuple[str, ...]]]
"""Runs the handler over a turn, and gives the intents that it led to."""
Changed = Callable[[InboundState], None]
Interrupted = Callable[[InboundState], Awaitable[bool]]
"""Told of a turn whose worker died, before it is taken over: whether it may run again by itself."""


class Turns:
    """One per gateway, on its event loop. `run` is None where nobody handles messages here: then turns that others
    record are left to others."""

    def __init__(
        self,
        store: Store,
        run: Run | None,
        *,
        worker: str,
        clock: Clock,
        chance: random.Random,
        is_dead: Callable[[str], bool],
        changed: Changed,
        interrupted: Interrupted,
        most: int = TURNS_MAX,
        timeout_s: float,
    ) -> None:
        self.store = store
        self.worker = worker
        self.by = f"worker:{worker}"
        self.clock = clock
        self.busy: dict[str, asyncio.Task[None]] = {}
        self.handed: set[str] = set()
        """Turns whose claim is on its way to the ledger, or back."""
        self.blocks: dict[str, asyncio.Event] = {}
        """Turns in a caller's own block; the event tells of its end."""
        self._run_turn = run
        self._chance = chance
        self._is_dead = is_dead
        self._changed = changed
        self._interrupted = interrupted
        self._most = most
        self._timeout_s = timeout_s
        self._wake = asyncio.Event()
        self._later: dict[str, tuple[int, int]] = {}
        """Stream to (head, boot clock): nothing is done about it before, while it has that head."""
        self._set_back: dict[tuple[str, int], int] = {}
        """Stream and head to the boot clock when it was first seen with its last event in the future."""
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    # ---- life

    def start(self) -> None:
        if self._run_turn is not None:
            self._wake.set()
            self._task = asyncio.get_running_loop().create_task(self._loop(), name="msgledger-turns")

    def wake(self) -> None:
        """Something may be due now."""
        self._wake.set()

    @property
    def pending(self) -> bool:
        """Whether it was told to look and has not looked yet."""
        return self._task is not None and self._wake.is_set()

    @property
    def may_begin(self) -> bool:
        """Whether a new message's turn may be begun in the commit that records it."""
        return self._run_turn is not None and not self._closing and len(self.busy) + len(self.handed) < self._most

    @property
    def closing(self) -> bool:
        return self._closing

    async def stop(self) -> None:
        """Begin nothing more; let turns end for a while, then cancel them: they run again at the next start."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        blocks = [asyncio.ensure_future(ended.wait()) for ended in self.blocks.values()]
        if under_way := [*self.busy.values(), *blocks]:
            await asyncio.wait(under_way, timeout=CLOSE_WAIT_S)
        for block in blocks:
            block.cancel()
        if late := [*self.busy.values()]:
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=CLOSE_WAIT_S)

    # ---- one turn

    def begin(self, turn: Turn) -> None:
        """Run a turn that this worker has claimed. The task is the gateway's, not that of who handed the event in."""
        assert self._run_turn is not None
        task = asyncio.get_running_loop().create_task(self._perform(turn, self._run_turn))
        self.busy[turn.state.id] = task
        self.handed.discard(turn.state.id)
        task.add_done_callback(lambda _: self._ended(turn.state.id))

    def _ended(self, stream: str) -> None:
        self.busy.pop(stream, None)
        self._wake.set()

    def enter(self, stream: str) -> None:
        """A turn that this worker has claimed runs in a block of a caller's."""
        self.blocks[stream] = asyncio.Event()
        self.handed.discard(stream)

    def leave(self, stream: str) -> None:
        """That block is over. Where its turn has not ended, nobody runs it from here on."""
        self.blocks.pop(stream).set()
        self._wake.set()

    async def _perform(self, turn: Turn, run: Run) -> None:
        state, limit = turn.state, asyncio.timeout(self._timeout_s)
        try:
            if turn.content is None:
                raise Refuse("its content is not there any more")
            async with limit:
                intents = await run(turn)
        except TimeoutError as error:
            over = f"no end within {self._timeout_s:g} s" if limit.expired() else str(error)
            await self.fail(state, error, over)
        except asyncio.CancelledError as error:
            if asked_to_end():
                raise
            await self.fail(state, error, "it waited for something that was cancelled")
        except Exception as error:
            await self.fail(state, error, str(error), final=isinstance(error, Refuse))
        else:
            crash_point("after-handler")
            await self.complete(state, intents)

    async def claim(self, stream: str, why: i.RunWhy) -> Turn:
        """Begin a run here; it is `handed` until `begin` or `enter`. Raises `LaneBusy` while an earlier turn is in the
        way, a `Conflict` where somebody else was first, `NotPossible` where there is nothing to run."""
        if self._closing:
            raise StoreClosed("the gateway closes: no turn begins")
        if self.in_hand(stream):
            raise NotPossible(f"inbound {stream} is run here already")
        self.handed.add(stream)
        try:
            return await self._claim(stream, why)
        except BaseException as error:
            self.handed.discard(stream)
            if isinstance(error, asyncio.CancelledError | WriteUncertain):  # it may stand, and then nobody runs it
                self._wake.set()
            raise

    async def _claim(self, stream: str, why: i.RunWhy) -> Turn:
        turn = await self.store.read(load, stream)
        state = turn.state
        at = self.clock.wall_ms()
        events: tuple[i.Event, ...] = ()
        if state.status is InboundStatus.RUNNING and (state.owner == self.worker or self.lost(stream, state.owner)):
            if not await self._interrupted(state):
                raise NotPossible(f"inbound {stream} is held")
            lost = inbound.taken_over(state, at=at, by=self.by)
            after = inbound.evolve(state, lost, state.recorded_at)
            events, why = (lost, *acknowledgement(after, at=at, by=self.by)), "recovery"
            state = after
        if state.hold is None:
            events += (inbound.dispatched(state, why, at=at, by=self.by, owner=self.worker),)
        crash_point("before-dispatch")
        state = await self._append(turn.state, *events, guard=TurnFree(state.lane))
        crash_point("after-dispatch")
        if state.status is not InboundStatus.RUNNING:
            raise NotPossible(f"inbound {stream} is held: its runs killed their workers too often")
        return Turn(state, turn.content)

    async def complete(self, state: InboundState, intents: tuple[str, ...]) -> InboundState:
        """The turn is done: what it wants to be visible is owed by the ledger."""
        at = self.clock.wall_ms()
        return await self._end(state, inbound.completed(state, state.runs, intents, at=at, by=self.by))

    async def fail(
        self, state: InboundState, error: BaseException, detail: str, *, final: bool = False
    ) -> InboundState:
        """The run ended badly: again after a while, or held. Where it was acknowledged and there is no handler, nothing
        would run it again: then a person decides, and its conversation goes on."""
        again = self._run_turn is not None or state.acknowledged_at is None
        log.warning("inbound %s: run %d ended with %s", state.id, state.runs, type(error).__name__, exc_info=error)
        event = inbound.failed(
            state,
            state.runs,
            type(error).__name__,
            shown(detail),
            at=self.clock.wall_ms(),
            by=self.by,
            final=final,
            again=again,
            chance=self._chance.random(),
        )
        return await self._end(state, event)

    async def _end(self, state: InboundState, event: i.Event) -> InboundState:
        """Append the end of a run, and the acknowledgement that it allows.

        It waits for a ledger that cannot be written: until then the turn is not done. Where the run is not ours any
        more, the end of it is lost and only told.
        """
        run, refused, uncertain = state.runs, None, False
        while True:
            try:
                if refused is not None:
                    state = (await self.store.read(load, state.id)).state
                    if state.status is not InboundStatus.RUNNING or (state.runs, state.owner) != (run, self.worker):
                        if not uncertain:
                            log.warning("inbound %s: run %d was over before it ended: %s", state.id, run, refused)
                        self._changed(state)
                        return state
                after = inbound.evolve(state, event, state.recorded_at)
                ended = await self._append(state, event, *acknowledgement(after, at=event.at, by=self.by))
                break
            except Conflict as error:
                refused = error
            except (StoreUnavailable, WriteUncertain) as error:
                if isinstance(error, StoreClosed):
                    raise
                uncertain = uncertain or isinstance(error, WriteUncertain)
                log.warning("inbound %s waits for the ledger: %s", state.id, error)
                await self.clock.wait(asyncio.Event(), POLL_S)
        crash_point("after-completion")
        log.info("inbound %s is %s%s", ended.id, ended.status.value, f" ({ended.hold})" if ended.hold else "")
        return ended

    async def _append(self, state: InboundState, *events: i.Event, guard: TurnFree | None = None) -> InboundState:
        [result] = await self.store.append(Append(state.id, events, expected=state.head, guard=guard))
        if isinstance(result, Conflict):
            raise result
        assert isinstance(result.state, InboundState)
        self._changed(result.state)
        return result.state

    # ---- the loop

    async def _loop(self) -> None:
        next_at = self.clock.boot_ms()
        while not self._closing:
            try:
                if self._wake.is_set() or self.clock.boot_ms() >= next_at:
                    self._wake.clear()
                    next_at = await self._pass()
            except StoreUnavailable as error:
                log.warning("the ledger cannot be used now: %s", error)
                next_at = self.clock.boot_ms() + int(POLL_S * 1000)
            except Exception:
                log.exception("the dispatcher of turns met an error and goes on")
                next_at = self.clock.boot_ms() + int(POLL_S * 1000)
            if not self._closing:
                await self.clock.wait(self._wake, max(0.001, (next_at - self.clock.boot_ms()) / 1000))

    async def _pass(self) -> int:
        """Begin everything that can be begun; returns when to look again (boot clock)."""
        heads = await self.store.read(turn_heads)
        now, boot = self.clock.wall_ms(), self.clock.boot_ms()
        alive = {head.id for head in heads}
        self._later = {id: late for id, late in self._later.items() if id in alive}
        self._set_back = {key: since for key, since in self._set_back.items() if key[0] in alive}
        next_at = boot + LATER_MS
        for head in heads:
            if self.in_hand(head.id) or self._closing:
                continue
            at = self._at(head, now, boot)
            if at > boot or len(self.busy) + len(self.handed) >= self._most:
                next_at = min(next_at, max(at, boot + 1) if at > boot else boot + int(POLL_S * 1000))
                continue
            await self._begin(head)
        return next_at

    def _at(self, head: TurnHead, now: int, boot: int) -> int:
        """When it can be begun (boot clock)."""
        seen, until = self._later.get(head.id, (-1, 0))
        if seen == head.head and until > boot:
            return until
        if head.status == InboundStatus.RUNNING:
            return boot if self.lost(head.id, head.owner) else boot + int(POLL_S * 1000)
        if head.updated_at > now:  # the wall clock was set back: the wait is measured here
            since = self._set_back.setdefault((head.id, head.head), boot)
            return since + max(0, head.due_at - head.updated_at)
        return boot + max(0, head.due_at - now)

    def in_hand(self, stream: str) -> bool:
        """Whether this worker is at it."""
        return stream in self.busy or stream in self.handed or stream in self.blocks

    def lost(self, stream: str, owner: str | None) -> bool:
        """Whether a running turn has nobody any more who runs it."""
        if owner == self.worker:
            return not self.in_hand(stream)
        return owner is not None and self._is_dead(owner)

    async def _begin(self, head: TurnHead) -> None:
        try:
            turn = await self.claim(head.id, "first" if head.status == InboundStatus.PENDING else "recovery")
        except LaneBusy:
            self._put_off(head, 50)
        except Conflict:
            self._wake.set()
        except (HeldStream, NotPossible, NoSuchStream) as error:
            log.warning("inbound %s cannot be run now: %s", head.id, error)
            self._put_off(head, LATER_MS)
            self._wake.set()
        except StoreUnavailable:
            raise
        except LedgerError:
            log.exception("inbound %s cannot be run now", head.id)
            self._put_off(head, LATER_MS)
        else:
            self.begin(turn)

    def _put_off(self, head: TurnHead, ms: int) -> None:
        self._later[head.id] = (head.head, self.clock.boot_ms() + ms)
