"""The events of what comes in: inbound messages, polling cursors, sessions. The same rules as in `events.py`.

An inbound message is a stream, from `InboundRecorded` (or `InboundDropped`, where nothing of it is kept) to its end; so
is a session, and so is a polling cursor.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .events import ErrorContent, Event
from .message import Message
from .origin import NO_ORIGIN, Origin
from .source import ChatKind, SessionSource

AckPolicy = Literal["immediate", "after_record", "after_durable_send", "manual"]
"""When the platform may be told that we have an event; it decides about `transport` and `offset` alone."""
AckKind = Literal["transport", "offset", "record", "visible"]
"""An envelope was accepted; a polling offset moved; enough is stored to know a redelivery; a sign for people."""
DropReason = Literal["echo", "own", "unauthorised", "unsupported", "pair_budget", "fuse", "operator"]
InboundHold = Literal["attempts", "restarts", "rejected"]
"""Its attempts are spent; the process restarted too often in the middle of turns; its handler refused it for good."""
RunWhy = Literal["first", "retry", "recovery", "operator"]
ResetReason = Literal["idle", "daily", "suspended", "resume_pending_expired", "operator"]


class InboundContent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    key: str
    """The platform's key of the event."""
    message: Message
    source: SessionSource
    session: str | None = None
    """The session's key in the open."""


class InboundRecorded(Event, frozen=True, gc=False, kw_only=True):
    """A message came in and is ours to answer. From here on its turn is owed, and the platform need not repeat it."""

    event_key: str
    """Keyed digest of (channel, account, the platform's key of the event)."""
    channel: str
    account: str
    lane: str
    place: str
    session: str | None = None
    """Keyed digest of the session's key."""
    message_id: str | None = None
    """The platform's id of the message."""
    sender: str | None = None
    """Pseudonym of who wrote it."""
    bot: bool = False
    addressed: bool = True
    """False: it does not speak to us. It starts no turn and is context for the next that does."""
    ack: AckPolicy = "after_record"
    via: AckKind = "transport"
    """What the platform waits for: `offset` where it was polled for."""
    origin: Origin = NO_ORIGIN
    sent_at: int | None = None
    """UTC milliseconds on the platform's clock."""
    traceparent: str | None = None
    content: InboundContent | None = None


class InboundDropped(Event, frozen=True, gc=False, kw_only=True):
    """Terminal: it starts no turn, and why. Before a record it begins the stream, and nothing of the text is kept."""

    reason: DropReason
    event_key: str = ""
    channel: str = ""
    account: str = ""
    place: str = ""
    message_id: str | None = None
    sender: str | None = None
    bot: bool = False
    note: str | None = None


class InboundDispatched(Event, frozen=True, gc=False, kw_only=True):
    """A worker begins the turn. There is no other claim; who owns it and lives is the one that runs it."""

    run: int
    owner: str
    why: RunWhy = "first"


class InboundCompleted(Event, frozen=True, gc=False, kw_only=True):
    """Terminal: the turn is done, and what it wants to be visible is owed by the ledger."""

    run: int
    intents: tuple[str, ...] = ()


class InboundFailed(Event, frozen=True, gc=False, kw_only=True):
    """A run of the turn ended badly. It will run again at `retry_at`, or it is held."""

    run: int
    error: str
    """The name of the error's type, or `owner_lost`, `timeout`."""
    retry_at: int | None = None
    hold: InboundHold | None = None
    content: ErrorContent | None = None


class InboundHeld(Event, frozen=True, gc=False, kw_only=True):
    """A person, or a guard, holds the turn; `hold` absent, it may run again at once."""

    hold: InboundHold | None = None
    reason: str | None = None


class Acknowledged(Event, frozen=True, gc=False, kw_only=True):
    """From here on the platform may be told so. Only `transport` and `offset` are a policy's to give."""

    ack: AckKind
    policy: AckPolicy


class CursorAdvanced(Event, frozen=True, gc=False, kw_only=True):
    """Everything before `cursor` is recorded or done as its policy asks: after a restart polling begins here."""

    key: str
    """Keyed digest of (channel, account, fingerprint of the credential)."""
    channel: str
    account: str
    credential: str
    """Keyed fingerprint of the credential: another one does not inherit the cursor."""
    cursor: str


class SessionContent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    key: str
    """The session's key in the open, as `ledger.source.session_key` makes it."""
    source: SessionSource


class SessionOpened(Event, frozen=True, gc=False, kw_only=True):
    """The first message of a conversation gave it a session."""

    key: str
    """Keyed digest of the session's key."""
    session_id: str
    shown: str
    """The key with pseudonyms in the places of chat and people: what is shown and may be logged."""
    channel: str
    kind: ChatKind
    profile: str | None = None
    content: SessionContent | None = None


class SessionRotated(Event, frozen=True, gc=False, kw_only=True):
    """The conversation begins anew under the same key."""

    session_id: str
    reason: ResetReason
    note: str | None = None
    """A person's reason."""


class SessionSuspended(Event, frozen=True, gc=False, kw_only=True):
    """No automatic resume; the next message begins anew, unless a person resumes the session before."""

    reason: Literal["interrupted", "operator"]
    note: str | None = None


class SessionResumed(Event, frozen=True, gc=False, kw_only=True):
    """A person lifted the suspension: the next message continues where the session was."""

    note: str | None = None


class ResumeMarked(Event, frozen=True, gc=False, kw_only=True):
    """A turn of the session was running when its worker died: the session is to be resumed."""

    inbound: str
    worker: str
    """Who died."""


class ResumeCleared(Event, frozen=True, gc=False, kw_only=True):
    """The interrupted turn was completed, or what it owed was sent."""

    inbound: str
    reason: Literal["completed", "sent", "dropped", "rotated"]
