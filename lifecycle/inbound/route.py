"""Which conversation a message belongs to, and what an agent is told of it.

A known session costs one read of its row, however many there are. Whatever is derived here is derived from positions
in the ledger, so that a turn that runs again is told the same.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ...ledger import inbound_events as i
from ...ledger.errors import InvalidConfig
from ...ledger.inbound import InboundState
from ...ledger.message import Target
from ...ledger.safe import check_session_key
from ...ledger.session import (
    RESETS,
    SessionPolicy,
    Span,
    freshness_s,
    is_fresh,
    must_begin_anew,
    reset_due,
)
from ...ledger.source import MAIN, SessionSource, key_parts, session_key, shown_key
from ...ledger.store.append import NEW, Append
from ...ledger.store.calendar import day_began_at, session_id, zone
from ...ledger.store.clock import Clock, new_id
from ...ledger.store.sql import Cursor
from ...ledger.store.store import Store
from ...projections.sessions import (
    SessionFree,
    SessionRow,
    before_in_session,
    by_session_key,
    is_busy,
    last_heard,
    settled_by,
    span_at,
    waits_for_a_person,
)

VARIABLE: Final = "MSGLEDGER_AUTO_CONTINUE_FRESHNESS"
How = Literal["new", "continued", "resumed", "reset"]


class SessionContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told of the conversation that a message belongs to. Times in UTC milliseconds."""

    session_id: str
    key: str
    """In the open: for the agent's own storage, not for logs."""
    shown: str
    """The key with pseudonyms."""
    source: SessionSource
    how: How
    """`resumed`: the turn was interrupted before."""
    reason: i.ResetReason | None = None
    """Why it was reset."""
    last_at: int | None = None
    """When the message before it that spoke to us came; None for the first."""
    age_s: float | None = None
    fresh: bool = True
    """Whether that was within the window of freshness."""
    shared: bool = False
    """Whether several people speak in it."""
    home: Mapping[str, Target] = {}
    """Channel to the place where its unasked messages go."""


class Route(msgspec.Struct, frozen=True):
    """Where a message belongs."""

    key: str
    session: str
    """The key's digest: the `session` of everything in it."""
    appends: tuple[Append, ...] = ()
    """What goes before the record, in its transaction. Where somebody else was first it is refused, which does no harm:
    the key is the same."""


class Router:
    """One per gateway. Raises `InvalidConfig` for a policy that cannot be."""

    def __init__(
        self,
        store: Store,
        policy: SessionPolicy,
        *,
        by: str,
        clock: Clock,
        chance: random.Random,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        _check(policy)
        self._store = store
        self._policy = policy
        self._by = by
        self._clock = clock
        self._chance = chance
        self._zone = zone(policy.timezone)
        self.window_s = freshness_s(policy.freshness_s, environment.get(VARIABLE))

    async def route(self, source: SessionSource, *, addressed: bool = True) -> Route:
        """What is not addressed to us belongs to a session and has none begin anew. Raises `UnroutableSource`."""
        policy = self._policy
        source = policy.sourced(source)
        key = session_key(
            source,
            per_user=policy.group_sessions_per_user,
            per_user_in_threads=policy.thread_sessions_per_user,
        )
        digest = self._store.pseudonyms.session(key)
        row, last_at = await self._store.read(_standing, digest)
        if row is None:
            return Route(key, digest, (self._opening(key, digest, source),))
        reason = await self._reason(row, last_at) if addressed else None
        return Route(key, digest, () if reason is None else (self._rotation(row, reason),))

    async def _reason(self, row: SessionRow, last_at: int | None) -> i.ResetReason | None:
        """Whether it begins anew. A mode resets nothing while a run or an obligation of the session is open, and a
        resume that is pending expires where nobody came back for the turn: not while it runs, nor once it is done."""
        now = self._clock.wall_ms()
        reason = must_begin_anew(row, now, self.window_s)
        if reason == "suspended":
            return reason
        if row.resume is not None and await self._store.read(settled_by, row.resume) is None:
            return reason if await self._store.read(waits_for_a_person, row.resume) else None
        if self._policy.reset == "none":
            return None
        due = reset_due(self._policy, last_at, now, day_began_at(now, self._policy.at_hour, self._zone))
        if due is None or await self._store.read(is_busy, row.key):
            return None
        return due

    def _opening(self, key: str, digest: str, source: SessionSource) -> Append:
        at = self._clock.wall_ms()
        policy = self._policy
        event = i.SessionOpened(
            at=at,
            by=self._by,
            key=digest,
            session_id=self._fresh_id(at),
            shown=shown_key(
                source,
                self._store.pseudonyms,
                per_user=policy.group_sessions_per_user,
                threads=policy.thread_sessions_per_user,
            ),
            channel=source.platform,
            kind=source.kind,
            profile=source.profile,
            content=i.SessionContent(key=key, source=source),
        )
        return Append(new_id(at), (event,), expected=NEW, guard=SessionFree(digest))

    def _rotation(self, row: SessionRow, reason: i.ResetReason) -> Append:
        at = self._clock.wall_ms()
        event = i.SessionRotated(at=at, by=self._by, session_id=self._fresh_id(at, row.session_id), reason=reason)
        return Append(row.id, (event,), expected=row.head)

    def _fresh_id(self, at: int, before: str | None = None) -> str:
        found = before
        while found == before:
            found = session_id(at, f"{self._chance.getrandbits(32):08x}")
        assert found is not None
        return found

    async def context(self, state: InboundState, content: i.InboundContent) -> SessionContext | None:
        """What the agent is told when the turn begins; None where the message has no session."""
        if state.session is None or content.session is None:
            return None
        span, last_at, first = await self._store.read(_around, state.session, state.position)
        if span is None:
            return None
        policy = self._policy
        source = policy.sourced(content.source)
        user = key_parts(
            source,
            per_user=policy.group_sessions_per_user,
            per_user_in_threads=policy.thread_sessions_per_user,
        ).user
        how: How = "resumed" if state.runs > 1 and state.interrupted else "continued"
        if how == "continued" and (first is None or first <= span.since):
            how = "new" if span.reason is None else "reset"
        return SessionContext(
            session_id=span.session_id,
            key=content.session,
            shown=shown_key(
                source,
                self._store.pseudonyms,
                per_user=policy.group_sessions_per_user,
                threads=policy.thread_sessions_per_user,
            ),
            source=source,
            how=how,
            reason=span.reason if how == "reset" else None,
            last_at=last_at,
            age_s=None if last_at is None else max(0, state.recorded_at - last_at) / 1000,
            fresh=is_fresh(last_at, state.recorded_at, self.window_s),
            shared=source.kind != "dm" and user is None,
            home=policy.home,
        )


def _standing(cursor: Cursor, key: str) -> tuple[SessionRow | None, int | None]:
    """The session's row, and when it was last spoken in."""
    row = by_session_key(cursor, key)
    return (None, None) if row is None else (row, last_heard(cursor, key))


def _around(cursor: Cursor, key: str, position: int) -> tuple[Span | None, int | None, int | None]:
    """The session id at that position, when the message before it came, and the position of that message."""
    row = by_session_key(cursor, key)
    span = None if row is None else span_at(cursor, row.id, position)
    at, where = before_in_session(cursor, key, position) or (None, None)
    return span, at, where


def _check(policy: SessionPolicy) -> None:
    """Raises `InvalidConfig`."""
    if policy.reset not in RESETS:
        raise InvalidConfig(f"reset {policy.reset!r}: there is {', '.join(RESETS)}")
    if not 0 <= policy.at_hour <= 23:
        raise InvalidConfig(f"at_hour {policy.at_hour} is no hour: 0 to 23")
    if not policy.idle_minutes > 0:
        raise InvalidConfig(f"idle_minutes {policy.idle_minutes} must be above 0; reset='none' resets never")
    if policy.profile == MAIN:
        raise InvalidConfig(f"profile {MAIN!r} is what a gateway without a profile has: give it another name")
    if policy.profile is not None:
        try:
            check_session_key(policy.profile)
        except ValueError as error:
            raise InvalidConfig(f"profile: {error}") from error
