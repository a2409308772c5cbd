"""Turns that were interrupted: the mark on their session, and when it goes.

A turn whose worker died marks its session as to be resumed, and is run again. Three restarts within a minute that each
cut turns off, or three interruptions of one session in a row, end that: the turns are held for a person, and that is
said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...ledger import inbound_events as i
from ...ledger import session
from ...ledger.errors import Conflict, NotPossible
from ...ledger.inbound import InboundState, InboundStatus, acknowledgement, evolve
from ...ledger.limits import DECIDE_TRIES_MAX, RESTARTS_MAX, RESTARTS_WITHIN_MS
from ...ledger.session import SessionState
from ...ledger.store.append import Append
from ...ledger.store.clock import Clock
from ...ledger.store.history import state_of
from ...ledger.store.sql import Cursor
from ...ledger.store.store import Store
from ...projections.sessions import by_session_key, pending_resumes, settled_by
from ...projections.workers import interrupted_starts
from .turns import load

log = logging.getLogger("msgledger")


class Resume:
    """One per gateway."""

    def __init__(
        self, store: Store, *, by: str, clock: Clock, is_dead: Callable[[str], bool], is_alive: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._by = by
        self._clock = clock
        self._is_dead = is_dead
        self._is_alive = is_alive
        self._pending: dict[str, str] = {}
        """Inbound message to the session whose resume waits for it."""
        self._unsure = False
        """Whether a turn has ended that another process may have marked."""

    # ---- at the start

    async def begin(self, interrupted: list[str]) -> None:
        """Once, before any turn is taken over: hold what a loop of restarts would run for ever, and clear the marks
        whose turn has come to its end meanwhile. `interrupted`: the running turns of dead workers."""
        if interrupted and await self._restarts() >= RESTARTS_MAX:
            log.warning(
                "%d restarts within %d s with turns in flight: %d turns are held; see `msgledger inbound retry`",
                RESTARTS_MAX,
                RESTARTS_WITHIN_MS // 1000,
                len(interrupted),
            )
            for stream in interrupted:
                await self._hold(stream, f"{RESTARTS_MAX} restarts within {RESTARTS_WITHIN_MS // 1000} s")
        await self.look()

    async def _restarts(self) -> int:
        """This start, and those before it that came to nothing: one whose worker lives is no restart, however many
        processes saw the same death."""
        now = self._clock.wall_ms()
        started = await self._store.read(interrupted_starts, now - RESTARTS_WITHIN_MS, now)
        return 1 + sum(not self._is_alive(worker) for worker in started)

    async def _hold(self, stream: str, reason: str) -> None:
        turn = await self._store.read(load, stream)
        state = turn.state
        if state.status is not InboundStatus.RUNNING or state.owner is None or not self._is_dead(state.owner):
            return
        at = self._clock.wall_ms()
        held = i.InboundHeld(at=at, by=self._by, hold="restarts", reason=reason)
        after = evolve(state, held, state.recorded_at)
        acknowledged = acknowledgement(after, at=at, by=self._by)
        await self._store.append(Append(stream, (held, *acknowledged), expected=state.head))
        await self._mark(state)

    # ---- while turns are taken over

    async def interrupted(self, state: InboundState) -> bool:
        """A worker that died ran this turn. Whether it may run again by itself."""
        if state.session is None or state.owner is None:
            return True
        marked = await self._mark(state)
        if marked is None or marked.suspended is None:
            return True
        log.warning("session %s is suspended (%s): inbound %s is held", marked.shown, marked.suspended, state.id)
        await self._hold(state.id, f"its session is suspended ({marked.suspended})")
        return False

    async def _mark(self, state: InboundState) -> SessionState | None:
        """The session once it has the mark, or is suspended and has none; None where there is none to mark."""
        assert state.owner is not None
        for _ in range(DECIDE_TRIES_MAX):
            found = None if state.session is None else await self._store.read(_session, state.session)
            if found is None:
                return None
            try:
                at = self._clock.wall_ms()
                events = session.marked(found, state.id, state.owner, at=at, by=self._by)
            except NotPossible as error:
                log.info("inbound %s: %s", state.id, error)
                return found
            if events:
                [result] = await self._store.append(Append(found.id, events, expected=found.head))
                if isinstance(result, Conflict):
                    continue
                assert isinstance(result.state, SessionState)
                found = result.state
            if found.resume is not None:
                self._pending[found.resume] = found.id
            return found
        return None

    # ---- when the mark goes

    async def look(self) -> None:
        """Clear what was completed, dropped, or whose owed reply is sent. Cheap where nothing is pending."""
        before, self._unsure = set(self._pending), False
        found = dict(await self._store.read(pending_resumes))
        marked_meanwhile = {one: session for one, session in self._pending.items() if one not in before}
        self._pending = found | marked_meanwhile
        for inbound, stream in list(self._pending.items()):
            reason = await self._store.read(settled_by, inbound)
            if reason is not None:
                await self._clear(inbound, stream, reason)

    @property
    def waits(self) -> bool:
        """Whether any session waits to be resumed, as far as is known here."""
        return self._unsure or bool(self._pending)

    def changed(self, state: InboundState) -> None:
        """A turn has ended that ran before: it may have a mark that another process made, which is gone."""
        self._unsure = self._unsure or (state.runs > 1 and not state.open)

    async def _clear(self, inbound: str, stream: str, reason: str) -> None:
        found = await self._store.read(state_of, stream)
        if not isinstance(found, SessionState) or found.resume != inbound:
            return
        event = i.ResumeCleared(at=self._clock.wall_ms(), by=self._by, inbound=inbound, reason=reason)  # pyright: ignore[reportArgumentType]
        [result] = await self._store.append(Append(stream, (event,), expected=found.head))
        if not isinstance(result, Conflict):
            self._pending.pop(inbound, None)


def _session(cursor: Cursor, key: str) -> SessionState | None:
    row = by_session_key(cursor, key)
    found = None if row is None else state_of(cursor, row.id)
    return found if isinstance(found, SessionState) else None
