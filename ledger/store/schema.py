"""Every SQL text of the store, each with a name and a sentence. No Python of ours builds SQL anywhere else.

The table of events is append-only: nothing here updates or deletes a row of it. Columns are those of the
`eventsourcing` library and one of ours, so that its tools can read the ledger; people read the SQL view `events`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

APPLICATION_ID: Final = 0x6D73676C
"""`msgl`, in the header of the file: how a ledger is told from any other database."""
SCHEMA_VERSION: Final = 1
"""In the header as `user_version`. Raised when the tables below change."""

TABLES: Final = (
    """CREATE TABLE stored_events (
    notification_id INTEGER PRIMARY KEY AUTOINCREMENT,
    originator_id TEXT NOT NULL,
    originator_version INTEGER NOT NULL,
    topic TEXT NOT NULL,
    state BLOB NOT NULL,
    recorded_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    UNIQUE (originator_id, originator_version)
) STRICT""",
    """CREATE VIEW events AS
    SELECT notification_id AS position, recorded_at, originator_id AS stream, originator_version AS version,
        topic AS type, CAST(state AS TEXT) AS data
    FROM stored_events""",
    "CREATE TABLE tracking (name TEXT PRIMARY KEY, position INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE views (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
)
"""What a new ledger consists of. `views` says at which version each view stands; negative while it is being built."""

BEGIN: Final = "BEGIN IMMEDIATE"
"""Take the write lock at once: a transaction that reads first and writes later could not be retried."""
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
SNAPSHOT: Final = "BEGIN"
"""Reads that follow see one state of the ledger."""

DATA_VERSION: Final = "PRAGMA data_version"
"""Another value than before: another connection committed."""
SCHEMA_COOKIE: Final = "PRAGMA schema_version"
"""Another value than before: somebody changed the tables."""
OBJECTS: Final = "SELECT count(*) FROM sqlite_schema"
"""How many tables, indexes and views the file has."""

LAST_POSITION: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'stored_events'"
"""The highest position ever given. AUTOINCREMENT keeps it also where rows are gone."""
LAST_RECORDED_AT: Final = "SELECT recorded_at FROM stored_events ORDER BY notification_id DESC LIMIT 1"
"""When the last event was recorded: no later one may be earlier."""
STREAM_AFTER: Final = (
    "SELECT originator_version, topic, state, notification_id, recorded_at FROM stored_events"
    " WHERE originator_id = ? AND originator_version > ? ORDER BY originator_version LIMIT ?"
)
"""What a stream has beyond a head that is known."""
BEFORE_ALL: Final = -(2**63)
BEHIND_ALL: Final = 2**63 - 1
STREAM_BETWEEN: Final = (
    "SELECT originator_version, topic, state FROM stored_events WHERE originator_id = ?"
    " AND originator_version > ? AND originator_version <= ? ORDER BY originator_version LIMIT ?"
)
"""A part of a stream, for the boundary to `eventsourcing`."""
STREAM_BACKWARDS: Final = STREAM_BETWEEN.replace("BY originator_version", "BY originator_version DESC")
"""The same from its end."""
FIRST_TOPIC: Final = "SELECT topic FROM stored_events WHERE originator_id = ? ORDER BY originator_version LIMIT 1"
"""What a stream begins with says whose it is."""
SNAPSHOTS: Final = """CREATE TABLE IF NOT EXISTS stored_snapshots (
    originator_id TEXT NOT NULL,
    originator_version INTEGER NOT NULL,
    topic TEXT NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (originator_id, originator_version)
) STRICT"""
"""Other programs' snapshots of their aggregates, made when the first of them asks. Ours need none."""
INSERT_SNAPSHOT: Final = (
    "INSERT INTO stored_snapshots (originator_id, originator_version, topic, state) VALUES (?, ?, ?, ?)"
)
SNAPSHOTS_BETWEEN: Final = STREAM_BETWEEN.replace("stored_events", "stored_snapshots")
SNAPSHOTS_BACKWARDS: Final = STREAM_BACKWARDS.replace("stored_events", "stored_snapshots")
STREAMS_AFTER: Final = (
    "SELECT originator_id, originator_version, topic, state, notification_id, recorded_at FROM stored_events"
    " WHERE originator_id > ? ORDER BY originator_id, originator_version"
)
"""Whole streams in the order of their ids: what a rebuild folds."""
STREAMS_SINCE: Final = "SELECT DISTINCT originator_id FROM stored_events WHERE notification_id > ?"
"""Streams that grew after a position."""
COUNT_EVENTS: Final = "SELECT count(*) FROM stored_events"

META_GET: Final = "SELECT value FROM meta WHERE name = ?"
META_PUT: Final = "INSERT INTO meta (name, value) VALUES (?, ?)"
KEYS_CHECK: Final = "keys"
"""The name in `meta` of what tells the right keys file from another."""

TRACKED: Final = "SELECT position FROM tracking WHERE name = ?"
"""How far a follower of events has come."""
TRACK: Final = (
    "INSERT INTO tracking (name, position) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET position = excluded.position WHERE excluded.position > tracking.position"
)
"""A follower comes forward, never back."""
TRACK_OR_NOTHING: Final = f"{TRACK} RETURNING position"
"""The same, with a row only where it came forward."""

VIEW_VERSIONS: Final = "SELECT name, version FROM views"
VIEW_STANDS: Final = (
    "INSERT INTO views (name, version) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version"
)
"""A view stands at a version now."""


def page(topics: Sequence[str] | None, *, until: bool = False) -> str:
    """Events after a position in their order; arguments: position, the last one if `until`, topics if any, limit."""
    last = " AND notification_id <= ?" if until else ""
    among = "" if topics is None else f" AND topic IN ({', '.join('?' * len(topics))})"
    return (
        "SELECT originator_id, originator_version, topic, state, notification_id, recorded_at FROM stored_events"
        f" WHERE notification_id > ?{last}{among} ORDER BY notification_id LIMIT ?"
    )


def insert_events(rows: int = 1) -> str:
    """Events, at positions that the writer gives: the next ones, since it holds the write lock."""
    return (
        "INSERT INTO stored_events (notification_id, originator_id, originator_version, topic, state, recorded_at)"
        f" VALUES {_values(6, rows)}"
    )


def upsert(table: str, columns: Sequence[str], key: Sequence[str], fixed: Sequence[str] = (), rows: int = 1) -> str:
    """Put rows of a view in their places. Where one stands, its `fixed` columns are left alone, with their indexes."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key and name not in fixed)
    action = f"UPDATE SET {changed}" if changed else "NOTHING"
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES {_values(len(columns), rows)}"
        f" ON CONFLICT ({', '.join(key)}) DO {action}"
    )


def put(table: str, columns: Sequence[str], rows: int = 1) -> str:
    """Put whole rows of a view in their places, and remove whatever contradicts them."""
    return f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES {_values(len(columns), rows)}"


def drop(kind: str, name: str) -> str:
    """Remove a table, index or view of the read side before it is made anew."""
    return f"DROP {kind} IF EXISTS {name}"


def rows_of(table: str, columns: Sequence[str]) -> str:
    """All rows of a view."""
    return f"SELECT {', '.join(columns)} FROM {table}"


def kept(table: str) -> str:
    """The name of the temporary table of keys that a rebuild has seen."""
    return f"temp.kept_{table}"


def make_kept(table: str, key: Sequence[str]) -> str:
    return f"CREATE TEMP TABLE kept_{table} ({', '.join(key)}, PRIMARY KEY ({', '.join(key)}))"


def keep(table: str, key: Sequence[str]) -> str:
    return f"INSERT OR IGNORE INTO {kept(table)} VALUES ({', '.join('?' * len(key))})"


def drop_unkept(table: str, key: Sequence[str]) -> str:
    """Rows of a view that no state produces: damage, or another program's."""
    same = " AND ".join(f"kept.{name} IS {table}.{name}" for name in key)
    return f"DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM {kept(table)} AS kept WHERE {same})"


def _values(columns: int, rows: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)
