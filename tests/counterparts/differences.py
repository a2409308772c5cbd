"""What the servers of the tests cannot do or be made to do, in one place: a test names what it needs, and is skipped
with this reason where it is not there. The tables of docs/matrix.md and docs/telegram.md say the same for readers, and
tests compare them.
"""

from __future__ import annotations

CANNOT: dict[str, dict[str, str]] = {
    "synapse": {
        "not found": "it says 403 M_FORBIDDEN of a room that does not exist",
    },
    "crabline": {
        "edit": "it keeps an edit as one more event and never applies it",
        "redact": "it has no redaction: 404 M_UNRECOGNIZED",
        "read": "it has no /messages and no /event: a look-up is unresolved",
        "relations": "it takes a relation to an event that is not there",
        "restart": "everything it knows is in memory; it remembers a transaction for 10 minutes",
        "devices": "it has one bot on one device with one token",
        "rate limit": "it never says 429",
        "forbidden": "it says 404 M_NOT_FOUND of any room that it does not know",
        "missing token": "it says M_UNKNOWN_TOKEN also where there is no token",
    },
}

TELEGRAM: dict[str, str] = {
    "history": "it keeps no message that could be asked for: what was sent is read from its answers",
    "edit": "it takes an edit or a delete of a message that is not there",
    "modified": "it never says that a message is not modified",
    "token": "it says a bare 404 of a wrong token: the channel is never ready, where Telegram's 401 holds",
    "refusals": "it refuses only what is empty, too long or without a chat: no 403, no 429, no unknown chat",
    "entities": "it does not look at entities, and parses no reply",
    "voice": "it has no sendVoice, no editMessageCaption and no sendMessageDraft",
    "topic": "it gives a message of a topic its number and leaves is_topic_message out",
    "updates": "its people send texts only: no file, no callback, no edit, no post of a channel",
    "restart": "everything it knows is in memory",
}
"""Where Crabline's Telegram server differs from the Bot API's documentation."""
