"""What the echo gate asks: whether a message is one of ours, and what bots have said in a place. Reads only.

Each read is bounded by a name in `ledger/limits.py`, and goes over an index however long the history is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..ledger.limits import BOT_ROWS_MAX, ECHO_CANDIDATES_MAX, ECHO_DOUBTS_MAX, MINUTE_MS
from .inbound import SPOKEN
from .intents import Cursor

ON_THEIR_WAY: Final = f"""
WITH busy AS MATERIALIZED (
  SELECT id, place, channel, account, position, action FROM intents WHERE status = 'sending'
), doubt AS MATERIALIZED (
  SELECT id, place, channel, account, position, action FROM intents WHERE status = 'unknown_after_send'
  ORDER BY position DESC LIMIT {ECHO_DOUBTS_MAX}
)
SELECT id FROM (SELECT * FROM busy UNION ALL SELECT * FROM doubt)
WHERE place = ? AND channel = ? AND account = ? AND action = 'send' ORDER BY position DESC LIMIT {ECHO_CANDIDATES_MAX}
"""
"""Messages of ours to a place of which no receipt may be there yet. First over small indexes of all that is in flight
or in doubt, so that the place's history costs nothing."""
BY_BOTS: Final = f"""
SELECT position, sender, dropped, addressed, recorded_at FROM inbound WHERE place = ? AND bot = 1 AND {SPOKEN}
ORDER BY position DESC LIMIT {BOT_ROWS_MAX}
"""
LAST_PERSON: Final = f"SELECT max(position) FROM inbound WHERE place = ? AND bot = 0 AND {SPOKEN}"


def is_ours(cursor: Cursor, intent: str, channel: str, account: str) -> bool:
    """Whether the account has an intent of that id."""
    found = cursor.execute(
        "SELECT 1 FROM intents WHERE id = ? AND channel = ? AND account = ?", (intent, channel, account)
    )
    return found.fetchone() is not None


def was_sent(cursor: Cursor, channel: str, account: str, place: str, platform_id: str, since: int) -> bool:
    """Whether the account has a receipt with that id in that place, of `since` (UTC ms) or later."""
    found = cursor.execute(
        "SELECT 1 FROM receipts WHERE platform_id = ? AND channel = ? AND account = ? AND place = ?"
        " AND accepted_at >= ? LIMIT 1",
        (platform_id, channel, account, place, since),
    )
    return found.fetchone() is not None


def on_their_way(cursor: Cursor, channel: str, account: str, place: str) -> list[str]:
    """The intents that may have become visible there without our knowing their ids, the newest first."""
    return [row[0] for row in cursor.execute(ON_THEIR_WAY, (place, channel, account))]


class BotTurns(msgspec.Struct, frozen=True):
    """What bots did in one place. A person's message there sets `by_sender` back to 0."""

    by_sender: int
    """Turns that one of them caused within its window."""
    within_a_minute: int
    """Messages of all of them that wanted a turn, those that a blown fuse dropped included."""


def bot_turns(cursor: Cursor, place: str, sender: str | None, *, now: int, window_ms: int) -> BotTurns:
    """Of the newest messages of bots there, as far back as counts. Times in UTC milliseconds."""
    [(person,)] = cursor.execute(LAST_PERSON, (place,)).fetchall()
    by_sender = within_a_minute = 0
    for position, who, dropped, addressed, at in cursor.execute(BY_BOTS, (place,)):
        if at < now - max(window_ms, MINUTE_MS):
            break
        within_a_minute += bool(addressed) and at >= now - MINUTE_MS
        turn = dropped is None and addressed and who == sender
        by_sender += bool(turn) and at >= now - window_ms and position > (person or 0)
    return BotTurns(by_sender, within_a_minute)
