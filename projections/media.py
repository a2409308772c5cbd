"""The `media` view: one row for each file that is kept for an intent, and until when.

Files stand beside the ledger under their keyed digests, one for all intents with that content, so that a file may go
when the last of its rows needs it no more. An intent without files has no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ..ledger.fold import State
from ..ledger.intent import IntentState
from ..ledger.limits import PAGE_ROWS
from .intents import Cursor

NEEDED: Final = "needed_until IS NOT NULL AND needed_until > ?"


class MediaView:
    """See `ledger.store.view.View`. `needed_until`: UTC milliseconds; null, the intent needs the file no more."""

    name = "media"
    version = 1
    columns = ("digest", "intent", "size", "position", "needed_until")
    key = ("digest", "intent")
    fixed = ("size", "position")
    ddl = (
        "CREATE TABLE IF NOT EXISTS media (digest TEXT NOT NULL, intent TEXT NOT NULL, size INTEGER NOT NULL,"
        " position INTEGER NOT NULL, needed_until INTEGER, PRIMARY KEY (digest, intent)) STRICT, WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS media_needed ON media(digest) WHERE needed_until IS NOT NULL",
    )

    def rows(self, state: State) -> Iterable[tuple[object, ...]]:
        if not isinstance(state, IntentState) or not state.media:
            return ()
        until = state.needs_media()
        return [(digest, state.id, size, state.position, until) for digest, size in state.media.items()]


def needed_of(cursor: Cursor, digests: Sequence[str], now: int) -> set[str]:
    """Which of these files an intent needs at `now` (UTC ms)."""
    marks = ", ".join("?" * len(digests))
    rows = cursor.execute(f"SELECT digest FROM media WHERE digest IN ({marks}) AND {NEEDED}", (*digests, now))
    return {row[0] for row in rows}


class NeededFile(msgspec.Struct, frozen=True, gc=False):
    """A file that is needed, and the oldest intent that needs it. `size` in bytes."""

    digest: str
    size: int
    intent: str


def needed(cursor: Cursor, now: int, after: str = "", limit: int = PAGE_ROWS) -> list[NeededFile]:
    """A page of the files that are needed at `now` (UTC ms), by digest beyond `after`."""
    rows = cursor.execute(
        f"SELECT digest, max(size), min(intent) FROM media WHERE {NEEDED} AND digest > ?"
        " GROUP BY digest ORDER BY digest LIMIT ?",
        (now, after, limit),
    )
    return [NeededFile(*row) for row in rows]
