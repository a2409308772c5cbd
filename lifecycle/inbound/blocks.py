"""Turns in blocks of the caller's own: how a block gets its turn, and what it does about one that stands before it.

A turn that nothing would ever run again is held for a person here, so that its conversation goes on: its worker is dead
or its block ended badly, the platform was told that we have it, and the gateway has no handler.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from ...ledger import inbound_events as i
from ...ledger.errors import Conflict, LaneBusy, NoSuchStream, NotPossible
from ...ledger.fold import HeldStream
from ...ledger.inbound import InboundState, InboundStatus
from ...ledger.limits import DECIDE_TRIES_MAX
from ...ledger.store.append import Append
from ...ledger.store.clock import Clock
from ...ledger.store.store import Store
from ...projections.inbound import in_the_way
from .context import Skip
from .turns import Refuse, Turn, Turns, load

log = logging.getLogger("msgledger")

AGAIN_S: Final = 1.0
"""How often a block looks whether its conversation is free, while it hears nothing."""
ORPHANED_MS: Final = 30_000
"""How long a turn that nobody runs may stand in the way, for another process that would run it."""


class Blocks:
    """One per gateway. `handled`: whether it has a handler, which runs what is owed."""

    def __init__(self, store: Store, turns: Turns, *, handled: bool, by: str, clock: Clock) -> None:
        self._store = store
        self._turns = turns
        self._handled = handled
        self._by = by
        self._clock = clock
        self._news = asyncio.Event()

    def news(self) -> None:
        """A turn may have ended, or a lane become free."""
        self._news.set()

    async def turn(self, turn: Turn) -> tuple[Turn, str | None]:
        """The turn for a block, once its lane is free; or why there is none."""
        stream, tries = turn.state.id, 0
        before = _Before()
        while (none := _none(turn.state)) is None:
            self._news.clear()
            try:
                return await self._with_content(
                    await self._turns.claim(stream, "first" if turn.state.runs == 0 else "retry")
                )
            except NotPossible:  # somebody runs it
                return await self._store.read(load, stream), "repeated"
            except LaneBusy:
                await self._clock.wait(self._news, AGAIN_S)
                await self._look(turn.state, before)
            except Conflict:
                tries += 1
                if tries > DECIDE_TRIES_MAX:
                    raise
            turn = await self._store.read(load, stream)
        return turn, none

    async def _with_content(self, turn: Turn) -> tuple[Turn, str | None]:
        """Where it was erased meanwhile there is nothing to run."""
        if turn.content is not None:
            return turn, None
        error = Refuse("its content is not there any more")
        try:
            return Turn(await self._turns.fail(turn.state, error, str(error), final=True), None), "erased"
        finally:
            self._turns.handed.discard(turn.state.id)

    async def _look(self, mine: InboundState, before: _Before) -> None:
        """What stands in the way of it, and whether anything will ever move that."""
        if self._handled:
            return
        first = await self._store.read(in_the_way, mine.lane, mine.position)
        if first is None or self._turns.in_hand(first):
            return
        try:
            state = (await self._store.read(load, first)).state
        except (HeldStream, NoSuchStream):
            return
        if not before.stood(state, self._clock.boot_ms()) or not self._orphaned(state):
            return
        why = f"nothing has run it for {ORPHANED_MS // 1000} s, and others of its conversation wait"
        held = i.InboundHeld(at=self._clock.wall_ms(), by=self._by, hold="attempts", reason=why)
        [result] = await self._store.append(Append(first, (held,), expected=state.head))
        if not isinstance(result, Conflict):
            log.warning("inbound %s is held: %s; see `msgledger inbound retry`", first, why)

    def _orphaned(self, state: InboundState) -> bool:
        if state.acknowledged_at is None or not state.holds_lane:
            return False  # the platform delivers it again
        return state.status is InboundStatus.PENDING or self._turns.lost(state.id, state.owner)


class _Before:
    """What stood in the way when a block looked last, and since when (boot clock)."""

    def __init__(self) -> None:
        self._seen = ("", -1)
        self._since = 0

    def stood(self, state: InboundState, boot: int) -> bool:
        """Whether it has not moved for so long."""
        if (state.id, state.head) != self._seen:
            self._seen, self._since = (state.id, state.head), boot
        return boot - self._since >= ORPHANED_MS


def _none(state: InboundState) -> str | None:
    """Why there is no turn, whoever asks."""
    if state.status is InboundStatus.DROPPED:
        return state.drop or "dropped"
    if state.status is InboundStatus.CONTEXT:
        return "context"
    if not state.open:
        return "repeated"
    return None if state.hold is None else "held"


def is_skip(error: BaseException) -> bool:
    """Whether a block ended because it has no turn: also where a group of tasks wrapped that."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_skip(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, Skip)
