"""The conversation of a session: what came in and what was sent, in the order of their positions.

It is read from the events themselves, so nothing has to be copied into a transcript, and nothing is missing from it
after a restart. A page is a bounded number of streams; the message of each is read where it was recorded.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final, Literal

import msgspec

from ..ledger import inbound_events as i
from ..ledger.dossier import Dossier, compile_dossier
from ..ledger.errors import NoSuchIntent, NoSuchStream
from ..ledger.fold import HeldStream
from ..ledger.intent import Status
from ..ledger.limits import MENTIONS_MAX
from ..ledger.message import Message
from ..ledger.session import SessionState
from ..ledger.store.history import Recorded, events_of, state_of
from ..ledger.store.sql import Cursor
from .as_of import Cut, kept
from .log import checked
from .query import LARGEST

_CAME_IN: Final = (
    "SELECT position, id, 'in' FROM inbound INDEXED BY inbound_session WHERE session = ? AND position > ?"
    " AND position < ? ORDER BY position DESC LIMIT ?"
)
_WENT_OUT: Final = (
    "SELECT position, id, 'out' FROM intents INDEXED BY intents_session WHERE session = ? AND position > ?"
    " AND position < ? AND action = 'send' ORDER BY position DESC LIMIT ?"
)
_PAGE: Final = (
    f"SELECT * FROM (SELECT * FROM ({_CAME_IN}) UNION ALL SELECT * FROM ({_WENT_OUT})) ORDER BY 1 DESC LIMIT ?"
)
_NAMED: Final = (
    "SELECT id FROM sessions WHERE key = ? UNION ALL SELECT id FROM sessions WHERE id = ?"
    " UNION ALL SELECT session FROM session_spans WHERE session_id = ? LIMIT 1"
)
_CHANGES: Final = "SELECT id FROM intents WHERE of = ? AND action IN ('edit', 'delete') ORDER BY position"
_BEFORE_IN_LANE: Final = (
    "SELECT id, addressed FROM inbound INDEXED BY inbound_in_lane WHERE lane = ? AND position < ?"
    " ORDER BY position DESC LIMIT ?"
)


PAGE_STREAMS: Final = 50
"""How many messages one read goes through, so that nobody waits long behind it."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation. Times in UTC milliseconds."""

    position: int
    """Where it was recorded: the order of the conversation."""
    at: int
    role: Literal["user", "assistant"]
    text: str
    """As it stands: after edits, and empty where it was deleted or its content is not there any more."""
    message: Message | None
    """Likewise: of an edited reply what it was changed to."""
    inbound: str | None = None
    """The stream of what came in; of a reply, what it answers."""
    intent: str | None = None
    sender: str | None = None
    edited: bool = False
    deleted: bool = False
    erased: bool = False
    """Its content is not in the ledger any more."""
    addressed: bool = True
    """False: it did not speak to us."""


class Page(msgspec.Struct, frozen=True):
    """The oldest first. `before`: where the page before it ends; None where nothing is older."""

    entries: list[Entry]
    before: int | None


def span_named(
    cursor: Cursor, name: str, key: str, cut: Cut | None, everything: bool
) -> tuple[str, tuple[int, int | None]]:
    """The key's digest, and the positions between which the conversation lies: what `name` names as it was at `cut`.

    `name` is a session id, the id of a session's stream, or a key, whose digest is `key`. Raises `NoSuchStream`.
    """
    if cut is not None and cut.by == "position":
        checked(cursor, cut.value)
    row = cursor.execute(_NAMED, (key, name, name)).fetchone()
    state = None if row is None else state_of(cursor, row[0])
    if not isinstance(state, SessionState):
        raise NoSuchStream(f"no session {name[:80]!r}: give its key, its id, or the id of its stream")
    then = {one.position for one in _until(cursor, state.id, cut)}
    spans = [span for span in state.spans if span.since in then]
    later = {span.session_id for span in state.spans if span.since not in then}
    if not spans or (name in later and name not in {span.session_id for span in spans}):
        raise NoSuchStream(f"session {name[:80]!r} did not exist yet {cut}")
    if everything:
        return state.key, (0, None)
    index = next((n for n, span in enumerate(spans) if span.session_id == name), len(spans) - 1)
    return state.key, (spans[index].since, spans[index + 1].since if index + 1 < len(spans) else None)


def bounds(
    cursor: Cursor, name: str, key: str, before: int | None, cut: Cut | None, everything: bool
) -> tuple[str, int, int]:
    """The key's digest, and the positions between which the asked part lies, both left out. See `span_named`."""
    found, (low, end) = span_named(cursor, name, key, cut, everything)
    until = None if cut is None or cut.by != "position" else cut.value + 1
    return found, low, min(one for one in (before, end, until, LARGEST) if one is not None)


def page(cursor: Cursor, key: str, after: int, before: int, limit: int, cut: Cut | None) -> Page:
    """So many entries between two positions, the newest of them, both bounds left out."""
    found = cursor.execute(_PAGE, (key, after, before, limit, key, after, before, limit, limit)).fetchall()
    entries = [
        entry
        for position, id, way in reversed(found)
        if (entry := (_came_in if way == "in" else _went_out)(cursor, id, position, cut)) is not None
    ]
    return Page(entries, found[-1][0] if len(found) == limit else None)


def _came_in(cursor: Cursor, stream: str, position: int, cut: Cut | None) -> Entry | None:
    """What came in and is no echo and no stranger's."""
    events = _until(cursor, stream, cut)
    first = events[0].event if events else None
    if not isinstance(first, i.InboundRecorded):
        return None
    message = None if first.content is None else first.content.message
    return Entry(
        position=position,
        at=first.sent_at if first.sent_at is not None else first.at,
        role="user",
        text="" if message is None else message.text,
        message=message,
        inbound=stream,
        sender=None if message is None else message.sender,
        erased=message is None,
        addressed=first.addressed,
    )


def _went_out(cursor: Cursor, stream: str, position: int, cut: Cut | None) -> Entry | None:
    """What was sent, as it stands after the edits and deletions of it that were sent too."""
    dossier = _dossier(cursor, stream, cut)
    if dossier is None or dossier.state.status is not Status.SENT:
        return None
    message, text, edited, deleted = dossier.message, _words(dossier), False, False
    for (change,) in cursor.execute(_CHANGES, (stream,)).fetchall():
        changed = _dossier(cursor, change, cut)
        if changed is None or changed.state.status is not Status.SENT:
            continue
        if changed.state.action == "delete":
            message, text, deleted = None, "", True
        elif not deleted:
            message, text, edited = changed.message, _words(changed), True
    return Entry(
        position=position,
        at=dossier.state.accepted_at or dossier.state.at,
        role="assistant",
        text=text,
        message=message,
        inbound=dossier.state.inbound,
        intent=stream,
        edited=edited,
        deleted=deleted,
        erased=dossier.message is None,
    )


def _words(dossier: Dossier) -> str:
    """The text of a message; it stands in the batch where that holds the same."""
    if dossier.message is not None and dossier.message.body is not None:
        return dossier.message.text
    return "\n".join(unit.text for unit in dossier.units if unit.text)


def _dossier(cursor: Cursor, stream: str, cut: Cut | None) -> Dossier | None:
    events = _until(cursor, stream, cut)
    try:
        return (
            compile_dossier(stream, ((one.event, one.position, one.recorded_at) for one in events)) if events else None
        )
    except HeldStream:
        return None


def _until(cursor: Cursor, stream: str, cut: Cut | None) -> list[Recorded]:
    """The events that count; none where it did not exist yet."""
    try:
        return kept(events_of(cursor, stream), cut)
    except NoSuchIntent:
        return []


def mentions(cursor: Cursor, lane: str, position: int) -> tuple[Message, ...]:
    """What was said in a room since the last message before `position` that spoke to us, the oldest first."""
    rows = cursor.execute(_BEFORE_IN_LANE, (lane, position, MENTIONS_MAX)).fetchall()
    unheard = [stream for stream, _ in takewhile(lambda row: not row[1], rows)]
    first = [_until(cursor, stream, None)[0].event for stream in reversed(unheard)]
    return tuple(
        event.content.message for event in first if isinstance(event, i.InboundRecorded) and event.content is not None
    )
