"""The `cursors` view: how far each account was polled, under each credential."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ledger.cursor import CursorState
from ..ledger.errors import KeyTaken
from ..ledger.fold import Member, State, named
from .intents import Cursor


class CursorsView:
    """See `ledger.store.view.View`."""

    name = "cursors"
    version = 1
    columns = ("id", "key", "channel", "account", "credential", "cursor", "position", "head", "updated_at")
    key = ("id",)
    fixed = ("key", "channel", "account", "credential", "position")
    ddl = (
        "CREATE TABLE IF NOT EXISTS cursors (id TEXT PRIMARY KEY, key TEXT NOT NULL, channel TEXT NOT NULL,"
        " account TEXT NOT NULL, credential TEXT NOT NULL, cursor TEXT NOT NULL, position INTEGER NOT NULL,"
        " head INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE UNIQUE INDEX IF NOT EXISTS cursors_key ON cursors(key)",
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
    """Guard of a first advance: the account has no cursor under this credential yet."""

    def __init__(self, key: str) -> None:
        self.partition = named(key)
        self._key = key

    def members(self, cursor: Cursor, limit: int) -> dict[str, Member]:
        found = cursor.execute("SELECT id, position FROM cursors WHERE key = ?", (self._key,))
        return {id: Member(position) for id, position in found}

    def check(self, members: Mapping[str, Member], state: State | None) -> None:
        for id in members:
            raise KeyTaken(id, "cursor")


def cursor_of(cursor: Cursor, key: str) -> tuple[str, str] | None:
    """The stream and the cursor of a key."""
    return cursor.execute("SELECT id, cursor FROM cursors WHERE key = ?", (key,)).fetchone()
