"""What the store's tests share: a small view and guard of their own, events, and a store in a folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from msgledger.ledger import events as e
from msgledger.ledger.errors import KeyTaken
from msgledger.ledger.fold import Member, State
from msgledger.ledger.intent import IntentState
from msgledger.ledger.outcome import Cause, FailureClass, Proof
from msgledger.ledger.store.append import NEW, Append
from msgledger.ledger.store.store import Store

AT = 1_700_000_000_000
BY = "worker:w"
_ids = itertools.count(1)


def stream_id() -> str:
    return f"01890000-0000-7000-8000-{next(_ids):012x}"


class Things:
    """One row a stream; the key is unique, as an intent's is."""

    name = "things"
    version = 1
    columns = ("id", "key", "lane", "status", "head", "updated_at")
    key = ("id",)
    fixed = ()
    ddl = (
        "CREATE TABLE IF NOT EXISTS things (id TEXT PRIMARY KEY, key TEXT UNIQUE, lane TEXT, status TEXT,"
        " head INTEGER, updated_at INTEGER) STRICT",
        "CREATE INDEX IF NOT EXISTS things_lane ON things(lane)",
        "CREATE VIEW IF NOT EXISTS open_things AS SELECT * FROM things WHERE status = 'pending'",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if isinstance(state, IntentState):
            yield state.id, state.key, state.lane, str(state.status), state.head, state.updated_at


class Free:
    """The key has no row yet."""

    def __init__(self, key: str) -> None:
        self.partition = key

    def members(self, cursor: Any, limit: int) -> dict[str, Member]:
        found = cursor.execute("SELECT id FROM things WHERE key = ? LIMIT ?", (self.partition, limit))
        return {id: Member(0) for (id,) in found}

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        for id in members:
            raise KeyTaken(id)


class Clock:
    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> int:
        return self.now


def open_store(path: Any, views: Any = (), **more: Any) -> Store:
    return Store.open(path, views or [Things()], wall_ms=more.pop("wall_ms", Clock()), **more)


def recorded(key: str, lane: str = "lane", units: int = 1) -> e.IntentRecorded:
    return e.IntentRecorded(
        at=AT,
        by=BY,
        key=key,
        content_mac="mac",
        channel="qa",
        account="a",
        lane=lane,
        place="place",
        relation="followup",
        policy=e.Policy(max_attempts=6, expires_at=AT + 3_600_000),
        units=(e.PlannedUnit(),) * units,
    )


def started(attempt: int = 1, owner: str = "w") -> e.AttemptStarted:
    return e.AttemptStarted(
        at=AT,
        by=BY,
        attempt=attempt,
        owner=owner,
        units=(e.UnitTry(0, "k", "sha"),),
        deadline_ms=30_000,
        margin_ms=15_000,
        boot_ms=1,
        credential="c",
    )


def accepted(attempt: int = 1, unit: int = 0, id: str = "m1") -> e.UnitAccepted:
    return e.UnitAccepted(at=AT, by=BY, attempt=attempt, unit=unit, parts=(e.AcceptedPart(id),))


def failed(attempt: int = 1) -> e.AttemptFailed:
    return e.AttemptFailed(
        at=AT,
        by=BY,
        attempt=attempt,
        unit=0,
        failure=FailureClass.TRANSIENT,
        proof=Proof.NEVER_DISPATCHED,
        next_attempt_at=AT,
    )


def unknown(attempt: int = 1) -> e.OutcomeUnknown:
    return e.OutcomeUnknown(at=AT, by=BY, attempt=attempt, unit=0, cause=Cause.TIMEOUT)


def committed() -> e.IntentCommitted:
    return e.IntentCommitted(at=AT, by=BY, platform_ids=("m1",))


def new(key: str | None = None, stream: str | None = None, guarded: bool = False, lane: str = "lane") -> Append:
    """The record of a new intent."""
    stream = stream or stream_id()
    key = key or f"key {stream}"
    return Append(stream, (recorded(key, lane),), NEW, Free(key) if guarded else None)
