"""What the two Matrix servers cannot do or be made to do, in one place: a test names what it needs, and is skipped with
this reason where it is not there. The table of docs/matrix.md says the same for readers, and a test compares them.
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
