"""The `receipts` view: one row for each part that a platform holds, found by its platform id. Also of a copy, and of
what was accepted after the end: it can be seen, so people ask for it.

A message id is unique within a conversation only, so the key is (platform id, channel, account, place, intent): the id
first, since that is what people have in their hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..ledger.errors import InvalidQuery
from ..ledger.fold import State
from ..ledger.intent import IntentState
from .intents import Cursor

FOUND_MAX: Final = 2_000
"""So many messages may share a platform id before the conversation must be named."""
BY_PLATFORM_ID: Final = "SELECT intent, position FROM receipts WHERE platform_id = ? AND channel = ?"


class ReceiptsView:
    """See `ledger.store.view.View`."""

    name = "receipts"
    version = 3
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
    key = ("platform_id", "channel", "account", "place", "intent")
    fixed = ("position",)
    ddl = (
        "CREATE TABLE IF NOT EXISTS receipts (channel TEXT NOT NULL, account TEXT NOT NULL, place TEXT NOT NULL,"
        " platform_id TEXT NOT NULL, intent TEXT NOT NULL, unit INTEGER NOT NULL, part INTEGER NOT NULL,"
        " kind TEXT NOT NULL, position INTEGER NOT NULL, accepted_at INTEGER,"
        " PRIMARY KEY (platform_id, channel, account, place, intent)) STRICT, WITHOUT ROWID",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, IntentState) or not (state.receipts or state.beside):
            return ()
        receipts = [(unit, got.parts) for unit, got in sorted(state.receipts.items())]
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
            for unit, parts in (*state.beside, *receipts)
            for index, part in enumerate(parts)
            if part.id is not None
        ]


def by_platform_id(cursor: Cursor, channel: str, platform_id: str, place: str | None = None) -> list[str]:
    """The intents with that id, newest first: an edit shares the id of its object, other conversations may have it too.

    Raises `InvalidQuery` for an id of so many conversations that one must be named.
    """
    found: list[tuple[str, int]]
    if place is not None:
        found = cursor.execute(f"{BY_PLATFORM_ID} AND place = ?", (platform_id, channel, place)).fetchall()
    else:
        found = cursor.execute(f"{BY_PLATFORM_ID} LIMIT {FOUND_MAX + 1}", (platform_id, channel)).fetchall()
    if place is None and len(found) > FOUND_MAX:
        raise InvalidQuery(
            f"platform id {platform_id!r} stands for more than {FOUND_MAX} messages of {channel!r}:"
            " an id is unique in one conversation only, name it with target="
        )
    return list(dict.fromkeys(intent for intent, _ in sorted(found, key=lambda one: -one[1])))
