"""The `inbound` view: one row an inbound message, whose turn is owed, runs, or has ended. Nothing is ever deleted here.

What the receiving side asks for goes over partial indexes of open turns, so that it costs as much as is owed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ..ledger.errors import AlreadyReceived, LaneBusy
from ..ledger.fold import Member, State, turns_of
from ..ledger.inbound import InboundState, InboundStatus
from .intents import Cursor

COLUMNS: Final = (
    ("id", "TEXT PRIMARY KEY"),
    ("event_key", "TEXT NOT NULL"),
    ("position", "INTEGER NOT NULL"),
    ("head", "INTEGER NOT NULL"),
    ("channel", "TEXT NOT NULL"),
    ("account", "TEXT NOT NULL"),
    ("lane", "TEXT NOT NULL"),
    ("place", "TEXT NOT NULL"),
    ("session", "TEXT"),
    ("message_id", "TEXT"),
    ("sender", "TEXT"),
    ("bot", "INTEGER NOT NULL"),
    ("addressed", "INTEGER NOT NULL"),
    ("ack", "TEXT NOT NULL"),
    ("status", "TEXT NOT NULL"),
    ("hold", "TEXT"),
    ("dropped", "TEXT"),
    ("runs", "INTEGER NOT NULL"),
    ("owner", "TEXT"),
    ("due_at", "INTEGER"),
    ("error", "TEXT"),
    ("acknowledged_at", "INTEGER"),
    ("recorded_at", "INTEGER NOT NULL"),
    ("updated_at", "INTEGER NOT NULL"),
)
"""`due_at`: when the next run may begin (UTC ms)."""
OWED: Final = "status IN ('pending','running')"
SPOKEN: Final = "(dropped IS NULL OR dropped = 'fuse')"
"""Messages that count for how much bots say in a place."""


class InboundView:
    """See `ledger.store.view.View`."""

    name = "inbound"
    version = 2
    columns = tuple(name for name, _ in COLUMNS)
    key = ("id",)
    fixed = (
        *("event_key", "position", "channel", "account", "lane", "place", "session", "message_id", "sender", "bot"),
        *("addressed", "ack", "recorded_at"),
    )
    ddl = (
        f"CREATE TABLE IF NOT EXISTS inbound ({', '.join(f'{name} {kind}' for name, kind in COLUMNS)})"
        " STRICT, WITHOUT ROWID",
        "CREATE UNIQUE INDEX IF NOT EXISTS inbound_event ON inbound(event_key)",
        f"CREATE INDEX IF NOT EXISTS inbound_lane ON inbound(lane, position) WHERE {OWED} AND hold IS NULL",
        "CREATE INDEX IF NOT EXISTS inbound_held ON inbound(position) WHERE hold IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS inbound_in_lane ON inbound(lane, position, addressed)",
        "CREATE INDEX IF NOT EXISTS inbound_session ON inbound(session, position) WHERE session IS NOT NULL",
        f"CREATE INDEX IF NOT EXISTS inbound_spoken ON inbound(place, bot, position) WHERE {SPOKEN}",
        "CREATE INDEX IF NOT EXISTS inbound_heard ON inbound(session, position) WHERE addressed = 1",
        "CREATE INDEX IF NOT EXISTS inbound_message ON inbound(place, message_id) WHERE message_id IS NOT NULL",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, InboundState):
            return ()
        return (
            (
                state.id,
                state.event_key,
                state.position,
                state.head,
                state.channel,
                state.account,
                state.lane,
                state.place,
                state.session,
                state.message_id,
                state.sender,
                int(state.bot),
                int(state.addressed),
                state.ack,
                state.status.value,
                state.hold,
                state.drop,
                state.runs,
                state.owner,
                state.due_at,
                state.error,
                state.acknowledged_at,
                state.recorded_at,
                state.updated_at,
            ),
        )


class EventFree:
    """Guard of a record: the platform's event has no stream yet."""

    def __init__(self, event_key: str) -> None:
        self.partition = event_key

    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        found = cursor.execute("SELECT id, position FROM inbound WHERE event_key = ?", (self.partition,))
        return {id: Member(position) for id, position in found}

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        for id in members:
            raise AlreadyReceived(id)


class TurnFree:
    """Guard of a dispatch: no turn of the lane runs, and every earlier one is out of the way."""

    def __init__(self, lane: str) -> None:
        self.partition = turns_of(lane)
        self._lane = lane

    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        found = cursor.execute(LANE_TURNS, (self._lane, limit, self._lane))
        return {id: Member(position, in_flight=status == InboundStatus.RUNNING) for id, position, status in found}

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        assert isinstance(state, InboundState)
        for id, member in members.items():
            if id != state.id and (member.in_flight or member.position < state.position):
                raise LaneBusy(f"the turn of inbound {id} is before that of {state.id}, or runs")


_IN_THE_WAY: Final = f"{OWED} AND hold IS NULL"
LANE_TURNS: Final = f"""
SELECT * FROM (SELECT id, position, status FROM inbound
  WHERE lane = ? AND {_IN_THE_WAY} ORDER BY position LIMIT ?)
UNION
SELECT id, position, status FROM inbound WHERE lane = ? AND {_IN_THE_WAY} AND status = 'running'
"""
"""The first open turns of a lane, and what runs there."""


TURN_HEADS: Final = f"""
WITH RECURSIVE lanes(lane) AS (
  SELECT min(lane) FROM inbound WHERE {_IN_THE_WAY}
  UNION ALL
  SELECT (SELECT min(i.lane) FROM inbound i WHERE i.{OWED} AND i.hold IS NULL AND i.lane > lanes.lane)
  FROM lanes WHERE lanes.lane IS NOT NULL
), heads(id) AS (
  SELECT (SELECT i.id FROM inbound i WHERE i.lane = lanes.lane AND i.{OWED} AND i.hold IS NULL
          ORDER BY i.position LIMIT 1)
  FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT i.id, i.lane, i.status, i.owner, coalesce(i.due_at, 0), i.head, i.updated_at
FROM heads JOIN inbound i ON i.id = heads.id
ORDER BY 5
"""
"""The first open turn of each lane, by hopping over the lane index: what waits behind it costs nothing."""


class TurnHead(msgspec.Struct, frozen=True, gc=False):
    """The turn that a lane is at."""

    id: str
    lane: str
    status: str
    owner: str | None
    due_at: int
    """UTC milliseconds."""
    head: int
    updated_at: int
    """UTC milliseconds."""


def turn_heads(cursor: Cursor) -> list[TurnHead]:
    """One a lane, the one that is due first in front."""
    return [TurnHead(*row) for row in cursor.execute(TURN_HEADS)]


def in_the_way(cursor: Cursor, lane: str, position: int) -> str | None:
    """The first turn of a lane that one at that position waits for."""
    row = cursor.execute(
        f"SELECT id FROM inbound WHERE lane = ? AND {_IN_THE_WAY} AND (position < ? OR status = 'running')"
        " AND position != ? ORDER BY position LIMIT 1",
        (lane, position, position),
    ).fetchone()
    return None if row is None else row[0]


def running_turns(cursor: Cursor) -> list[tuple[str, str]]:
    """(stream, owner) of every turn that runs."""
    return cursor.execute(f"SELECT id, owner FROM inbound WHERE {_IN_THE_WAY} AND status = 'running'").fetchall()


class InboundRow(msgspec.Struct, frozen=True, gc=False):
    """One row of the view; the fields are its columns, times in UTC milliseconds."""

    id: str
    event_key: str
    position: int
    head: int
    channel: str
    account: str
    lane: str
    place: str
    session: str | None
    message_id: str | None
    sender: str | None
    bot: int
    addressed: int
    ack: str
    status: str
    hold: str | None
    dropped: str | None
    runs: int
    owner: str | None
    due_at: int | None
    error: str | None
    acknowledged_at: int | None
    recorded_at: int
    updated_at: int


def by_event(cursor: Cursor, event_key: str) -> str | None:
    """The stream of a platform's event."""
    row = cursor.execute("SELECT id FROM inbound WHERE event_key = ?", (event_key,)).fetchone()
    return None if row is None else row[0]
