"""The `intents` view: one row an intent, what it is and where it stands; and `obligations`, those still owed.

Nothing is ever deleted here. What the dispatcher asks for goes over partial indexes of open intents, so that it costs
as much as is owed, however long the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from ..ledger.errors import KeyTaken, LaneBusy
from ..ledger.fold import Member, State
from ..ledger.intent import IntentState, Status
from ..ledger.limits import GROUP_APPENDS_MAX, PARTITION_MEMBERS, UNRESOLVED_HOLDS_AFTER_MS

COLUMNS: Final = (
    ("id", "TEXT PRIMARY KEY"),
    ("key", "TEXT"),
    ("content_mac", "TEXT NOT NULL"),
    ("action", "TEXT NOT NULL"),
    ("of", "TEXT"),
    ("position", "INTEGER NOT NULL"),
    ("head", "INTEGER NOT NULL"),
    ("channel", "TEXT NOT NULL"),
    ("account", "TEXT NOT NULL"),
    ("lane", "TEXT NOT NULL"),
    ("holds_lane", "INTEGER"),
    ("place", "TEXT NOT NULL"),
    ("session", "TEXT"),
    ("inbound", "TEXT"),
    ("relation", "TEXT NOT NULL"),
    ("origin", "TEXT NOT NULL"),
    ("status", "TEXT NOT NULL"),
    ("hold", "TEXT"),
    ("config", "TEXT"),
    ("attempts", "INTEGER NOT NULL"),
    ("owner", "TEXT"),
    ("lease_ends_at", "INTEGER"),
    ("due_at", "INTEGER"),
    ("expires_at", "INTEGER NOT NULL"),
    ("failure", "TEXT"),
    ("reason", "TEXT"),
    ("dismissed", "INTEGER NOT NULL"),
    ("units", "INTEGER NOT NULL"),
    ("accepted", "INTEGER NOT NULL"),
    ("primary_platform_id", "TEXT"),
    ("accepted_at", "INTEGER"),
    ("delivery", "TEXT"),
    ("duplicates", "INTEGER NOT NULL"),
    ("contradictions", "INTEGER NOT NULL"),
    ("recorded_at", "INTEGER NOT NULL"),
    ("updated_at", "INTEGER NOT NULL"),
    ("callback", "TEXT"),
)
"""`key`: NULL where the id serves as one. `holds_lane`: until when (UTC ms) it is in its lane's way; `due_at`: when the
dispatcher looks at it next. `callback`: of a pending one, the worker that alone can send it."""

OPEN: Final = "status IN ('pending','sending','committing','unknown_after_send')"
OWED: Final = (
    f"{OPEN} AND id IN (SELECT id FROM intents WHERE holds_lane IS NOT NULL"
    " UNION ALL SELECT id FROM intents WHERE hold IS NOT NULL)"
)
"""The same, said so that two small indexes find it: what is open holds its lane, or is held."""


def look_at(state: IntentState) -> int | None:
    """When the dispatcher has something to decide about it (UTC ms); None: never by itself."""
    if state.terminal:
        return None
    if state.status is Status.SENDING:
        return state.lease_ends_at
    if state.status is Status.COMMITTING or state.refused:
        return 0
    if state.status is Status.UNKNOWN and state.hold is None:
        lease_end = state.lease_ends_at or 0
        return min(lease_end if state.due_at is None else state.due_at, lease_end + UNRESOLVED_HOLDS_AFTER_MS)
    if state.status is Status.UNKNOWN:
        return state.due_at
    if state.hold is not None:
        return state.policy.expires_at
    return min(state.due_at or 0, state.policy.expires_at)


class IntentsView:
    """See `ledger.store.view.View`."""

    name = "intents"
    version = 4
    columns = tuple(name for name, _ in COLUMNS)
    key = ("id",)
    fixed = (
        *("key", "content_mac", "action", "of", "position", "channel", "account", "lane", "place", "session"),
        *("inbound", "relation", "origin", "expires_at", "recorded_at"),
    )
    ddl = (
        f"CREATE TABLE IF NOT EXISTS intents ({', '.join(f'{name} {kind}' for name, kind in COLUMNS)})"
        " STRICT, WITHOUT ROWID",
        "CREATE UNIQUE INDEX IF NOT EXISTS intents_key ON intents(key) WHERE key IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS intents_lane ON intents(lane, position) WHERE holds_lane IS NOT NULL",
        "CREATE UNIQUE INDEX IF NOT EXISTS intents_in_flight ON intents(lane) WHERE status = 'sending'",
        "CREATE INDEX IF NOT EXISTS intents_held ON intents(due_at) WHERE hold IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS intents_callback ON intents(callback) WHERE callback IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS intents_place ON intents(place, position)",
        "CREATE INDEX IF NOT EXISTS intents_account ON intents(channel, account, position)",
        "CREATE INDEX IF NOT EXISTS intents_session ON intents(session, position) WHERE session IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS intents_failure ON intents(failure, position) WHERE failure IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS intents_seldom ON intents(status, position)"
        " WHERE status = 'failed' OR status = 'cancelled' OR status = 'unknown_after_send'",
        "CREATE INDEX IF NOT EXISTS intents_of ON intents(of, position) WHERE of IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS intents_inbound ON intents(inbound, position) WHERE inbound IS NOT NULL",
        f"CREATE VIEW IF NOT EXISTS obligations AS SELECT * FROM intents WHERE {OWED}",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, IntentState):
            return ()
        ids = state.platform_ids
        current = state.current
        return (
            (
                state.id,
                None if state.key == state.id else state.key,
                state.content_mac,
                state.action,
                state.of,
                state.position,
                state.head,
                state.channel,
                state.account,
                state.lane,
                state.holds_lane(),
                state.place,
                state.session,
                state.inbound,
                state.relation,
                state.origin,
                state.status.value,
                state.hold,
                state.config,
                state.attempts,
                None if current is None else current.owner,
                state.lease_ends_at,
                look_at(state),
                state.policy.expires_at,
                None if state.failure is None else state.failure.value,
                state.reason,
                int(state.dismissed),
                len(state.units),
                len(state.receipts),
                ids[0] if ids else None,
                state.accepted_at,
                state.delivery,
                state.copies,
                state.contradictions,
                state.recorded_at,
                state.updated_at,
                state.callback if state.status is Status.PENDING else None,
            ),
        )


class Cursor(Protocol):
    """What reads need of a database cursor."""

    def execute(self, statement: str, parameters: Any = ..., /) -> Any: ...


class KeyFree:
    """Guard of a record: the idempotency key has no intent yet. `text` is the key as it was given: it may be an id."""

    def __init__(self, key: str, text: str) -> None:
        self.partition = key
        self.text = text

    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        return {id: Member(position) for id, position in cursor.execute(BY_KEY, (self.partition, self.text))}

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        for id in members:
            raise KeyTaken(id)


class LaneFree:
    """Guard of a claim: nothing of the lane is in flight, and every earlier message is out of the way.

    `now`: UTC milliseconds.
    """

    def __init__(self, lane: str, now: int) -> None:
        self.partition = lane
        self.now = now

    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        found = cursor.execute(LANE_MEMBERS, (self.partition, self.now, limit, self.partition))
        return {id: Member(position, until, status == Status.SENDING) for id, position, until, status in found}

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        assert isinstance(state, IntentState)
        if len(members) >= PARTITION_MEMBERS and state.id not in members:
            raise LaneBusy(f"{len(members)} messages are before intent {state.id} in its lane")
        for id, member in members.items():
            if id != state.id and (
                member.in_flight or (member.position < state.position and member.holds_until > self.now)
            ):
                raise LaneBusy(f"intent {id} is before intent {state.id} in its lane, or in flight there")


BY_KEY: Final = (
    "SELECT id, position FROM intents WHERE key = ?"
    " UNION ALL SELECT id, position FROM intents WHERE id = ? AND key IS NULL"
)
"""The intent of a key: of its keyed digest, or of the text that is the id of one without a key of its own."""
LANE_MEMBERS: Final = """
SELECT * FROM (SELECT id, position, holds_lane, status FROM intents
  WHERE lane = ? AND holds_lane IS NOT NULL AND holds_lane > ? ORDER BY position LIMIT ?)
UNION
SELECT id, position, holds_lane, status FROM intents WHERE lane = ? AND status = 'sending'
"""
"""The first of a lane that are in the way, and what is in flight there."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """An intent that the dispatcher may have to do something about: the first of its lane, or a held one."""

    id: str
    lane: str
    channel: str
    account: str
    status: str
    head: int
    owner: str | None
    due_at: int
    """UTC milliseconds; of one that has ended and holds its lane still, until when."""
    updated_at: int


LANE_HEADS: Final = """
WITH RECURSIVE lanes(lane) AS (
  SELECT min(lane) FROM intents WHERE holds_lane IS NOT NULL
  UNION ALL
  SELECT (SELECT min(i.lane) FROM intents i WHERE i.holds_lane IS NOT NULL AND i.lane > lanes.lane)
  FROM lanes WHERE lanes.lane IS NOT NULL
), heads(id) AS (
  SELECT (SELECT i.id FROM intents i WHERE i.lane = lanes.lane AND i.holds_lane IS NOT NULL AND i.holds_lane > ?
          ORDER BY i.position LIMIT 1)
  FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT i.id, i.lane, i.channel, i.account, i.status, i.head, i.owner, coalesce(i.due_at, i.holds_lane, 0), i.updated_at
FROM heads JOIN intents i ON i.id = heads.id
UNION
SELECT id, lane, channel, account, status, head, owner, due_at, updated_at FROM intents
WHERE hold IS NOT NULL AND due_at <= ?
UNION
SELECT * FROM (SELECT id, lane, channel, account, status, head, owner, due_at, updated_at FROM intents
  WHERE hold IS NOT NULL AND due_at > ? ORDER BY due_at LIMIT 1)
UNION
SELECT id, lane, channel, account, status, head, owner, due_at, updated_at FROM intents
WHERE status = 'sending'
ORDER BY 8
"""
"""The first of each lane by hopping over the lane index (a hop a lane, whatever waits behind it), held ones that are
due and the next of them, and everything in flight. In the order of `due_at`."""


def heads(cursor: Cursor, now: int) -> list[Head]:
    """What may be due now or later, one a lane; the rest of a lane waits for its head anyway."""
    return [Head(*row) for row in cursor.execute(LANE_HEADS, (now, now, now))]


def by_key(cursor: Cursor, key: str) -> str | None:
    """The intent that a key stands for, as `IntentRecorded.key` has it."""
    row = cursor.execute(BY_KEY, (key, key)).fetchone()
    return None if row is None else row[0]


def head_of(cursor: Cursor, intent: str) -> int | None:
    """The newest version of an intent's stream, as the view has it."""
    row = cursor.execute("SELECT head FROM intents WHERE id = ?", (intent,)).fetchone()
    return None if row is None else row[0]


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of the view; the fields are its columns, times in UTC milliseconds."""

    id: str
    key: str | None
    content_mac: str
    action: str
    of: str | None
    position: int
    head: int
    channel: str
    account: str
    lane: str
    holds_lane: int | None
    place: str
    session: str | None
    inbound: str | None
    relation: str
    origin: str
    status: str
    hold: str | None
    config: str | None
    attempts: int
    owner: str | None
    lease_ends_at: int | None
    due_at: int | None
    expires_at: int
    failure: str | None
    reason: str | None
    dismissed: int
    units: int
    accepted: int
    primary_platform_id: str | None
    accepted_at: int | None
    delivery: str | None
    duplicates: int
    contradictions: int
    recorded_at: int
    updated_at: int
    callback: str | None


def not_moving(cursor: Cursor, ids: Sequence[str]) -> list[str]:
    """Those among these that have ended, are held or unknown, or wait after an attempt."""
    marks = ", ".join("?" * len(ids))
    rows = cursor.execute(
        f"SELECT id FROM intents WHERE id IN ({marks}) AND status NOT IN ('sending', 'committing')"
        " AND (status <> 'pending' OR attempts > 0 OR hold IS NOT NULL)",
        tuple(ids),
    )
    return [row[0] for row in rows]


ALL_COLUMNS: Final = ", ".join(name for name, _ in COLUMNS)


def owners_in_flight(cursor: Cursor) -> list[str]:
    """The workers whose attempts are in flight, or whose callbacks are waited for, as far as the ledger knows."""
    return [
        row[0]
        for row in cursor.execute(
            "SELECT owner FROM intents WHERE status = 'sending'"
            " UNION SELECT callback FROM intents WHERE callback IS NOT NULL"
        )
    ]


class HeldRow(msgspec.Struct, frozen=True, gc=False):
    """A pending intent that waits for, or lacks, its channel's configuration."""

    id: str
    head: int
    position: int
    channel: str
    account: str
    hold: str | None
    config: str | None


def held(cursor: Cursor, after: int, limit: int) -> list[HeldRow]:
    """Pending intents held for their configuration or channel, by position beyond `after`."""
    rows = cursor.execute(
        "SELECT id, head, position, channel, account, hold, config FROM intents"
        " WHERE hold IS NOT NULL AND hold IN ('config', 'channel') AND position > ? ORDER BY position LIMIT ?",
        (after, limit),
    )
    return [HeldRow(*row) for row in rows]


def pending_elsewhere(cursor: Cursor, channels: list[str]) -> list[HeldRow]:
    """A page of pending intents, not held yet, whose `channel/account` is none of these, oldest first."""
    rows = cursor.execute(
        "SELECT id, head, position, channel, account, hold, config FROM intents"
        " WHERE holds_lane IS NOT NULL AND status = 'pending' AND hold IS NULL"
        f" AND channel || '/' || account NOT IN ({', '.join('?' * len(channels))})"
        " ORDER BY position LIMIT ?",
        (*channels, GROUP_APPENDS_MAX),
    )
    return [HeldRow(*row) for row in rows]
