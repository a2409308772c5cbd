"""The `receipts` view: one row for each part that a platform holds, found by its platform id.

A message id is unique within a conversation only, so the key is (channel, account, place, platform id).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..ledger.fold import State
from ..ledger.intent import IntentState
from .intents import Cursor

BY_PLATFORM_ID: Final = "SELECT intent, unit, part FROM receipts WHERE channel = ? AND platform_id = ?"


class ReceiptsView:
    """See `ledger.store.view.View`."""

    name = "receipts"
    version = 1
    columns = (
        "channel",
        "account",
        "place",
        "platform_id",
        "intent",
        "unit",
        "part",
        "kind",
        "position",
        "accepted_at",
    )
    key = ("channel", "account", "place", "platform_id", "intent")
    fixed = ("position",)
    ddl = (
        "CREATE TABLE IF NOT EXISTS receipts (channel TEXT NOT NULL, account TEXT NOT NULL, place TEXT NOT NULL,"
        " platform_id TEXT NOT NULL, intent TEXT NOT NULL, unit INTEGER NOT NULL, part INTEGER NOT NULL,"
        " kind TEXT NOT NULL, position INTEGER NOT NULL, accepted_at INTEGER,"
        " PRIMARY KEY (channel, account, place, platform_id, intent)) STRICT, WITHOUT ROWID",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, IntentState) or not state.receipts:
            return ()
        return [
            (
                state.channel,
                state.account,
                state.place,
                part.id,
                state.id,
                unit,
                index,
                part.kind,
                state.position,
                state.accepted_at,
            )
            for unit, got in sorted(state.receipts.items())
            for index, part in enumerate(got.parts)
            if part.id is not None
        ]


def by_platform_id(cursor: Cursor, channel: str, platform_id: str) -> list[tuple[str, int, int]]:
    """(intent, unit, part) of every message with that id, newest first. An edit shares the id of its object."""
    found = cursor.execute(f"{BY_PLATFORM_ID} ORDER BY position DESC", (channel, platform_id))
    return [(row[0], row[1], row[2]) for row in found]
