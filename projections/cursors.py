"""The `cursors` view: how far each account was polled, under each credential."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ..ledger.cursor import CursorState
from ..ledger.errors import KeyTaken
from ..ledger.fold import Member, State, named
from .intents import Cursor


class CursorsView:
    """See `ledger.store.view.View`."""

    name = "cursors"
    version = 2
    columns = ("id", "key", "channel", "account", "credential", "cursor", "position", "head", "updated_at")
    key = ("id",)
    fixed = ("key", "channel", "account", "credential", "position")
    ddl = (
        "CREATE TABLE IF NOT EXISTS cursors (id TEXT PRIMARY KEY, key TEXT NOT NULL, channel TEXT NOT NULL,"
        " account TEXT NOT NULL, credential TEXT NOT NULL, cursor TEXT NOT NULL, position INTEGER NOT NULL,"
        " head INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS cursors_key ON cursors(key, position)",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, CursorState):
            return ()
        return (
            (
                state.id,
                state.key,
                state.channel,
                state.account,
                state.credential,
                state.cursor,
                state.position,
                state.head,
                state.updated_at,
            ),
        )


class CursorFree:
    """Guard of a stream's first advance: the account has no cursor under this credential, but in streams `before`."""

    def __init__(self, key: str, before: Collection[str] = ()) -> None:
        self.partition = named(key)
        self._key = key
        self._before = before

    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        return {one.id: Member(one.position) for one in cursors_of(cursor, self._key)}

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        for id in members:
            if id not in self._before:
                raise KeyTaken(id, "cursor")


class CursorRow(NamedTuple):
    """A stream of a cursor. When one is full the next one goes on."""

    id: str
    cursor: str
    position: int
    head: int


def cursors_of(cursor: Cursor, key: str) -> list[CursorRow]:
    """The streams of a key, the one that counts first."""
    rows = cursor.execute("SELECT id, cursor, position, head FROM cursors WHERE key = ? ORDER BY position DESC", (key,))
    return [CursorRow(*row) for row in rows]
