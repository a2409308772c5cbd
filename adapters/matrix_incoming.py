"""A Matrix event in our words: who spoke where, what it answers, and whether it speaks to us. Pure.

Only messages start a turn. An edit, a redaction, an invitation, and what is encrypted (this channel has no keys) are
named and left alone.

Source: https://spec.matrix.org/latest/client-server-api/, Instant messaging, Rich replies, Threading, User mentions.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, cast

import msgspec

from ..ledger.limits import KEY_MAX_BYTES
from ..ledger.message import Attachment, Body, MediaKind, Message, Reply, Target
from ..ledger.source import SessionSource
from .matrix_events import HTML, MESSAGE, text_of
from .matrix_origin import by_a_program
from .receiving import Event, Ignored, Incoming

INVITE: Final = "msgledger.invite"
"""What an invitation is handed over as: it has no event of its own for whom it invites."""
GAP: Final = "msgledger.gap"
"""So many events came while we were away that the oldest of them were not read."""
_FILES: Final[dict[str, MediaKind]] = {"m.image": "image", "m.video": "video", "m.audio": "audio", "m.file": "file"}
_TEXTS: Final = ("m.text", "m.notice", "m.emote")
_QUOTED: Final = re.compile(r"\A> (?:\* )?<@[^>\n]*>[^\n]*\n(?:>[^\n]*\n)*\n?")
"""How older clients quote what they answer, at the start of the text."""


class MatrixIncoming:
    """The side of `MatrixAdapter` that reads events."""

    name: str
    user_id: str

    def dedupe_key(self, event: Event) -> str:
        """The event's own id."""
        if event.get("type") in (INVITE, GAP):
            return f"{event['type']}:{_digest(event)}"
        return _word(event, "event_id")

    def normalize(self, event: Event) -> Incoming | Ignored:
        if (left_alone := _left_alone(event)) is not None:
            return Ignored(left_alone)
        content = _inner(event, "content")
        room, sender, event_id = _word(event, "room_id"), _word(event, "sender"), _word(event, "event_id")
        kind = content.get("msgtype")
        if not isinstance(kind, str):
            return Ignored("a message that was redacted, or has no type")
        body = text_of(content, "body") or ""
        relates = _inner(content, "m.relates_to")
        thread = text_of(relates, "event_id") if relates.get("rel_type") == "m.thread" else None
        reply_to = text_of(_inner(relates, "m.in_reply_to"), "event_id")
        if relates.get("is_falling_back") is True:
            reply_to = None
        direct = event.get("direct") is True
        addressed = direct or self._spoken_to(content, body)
        if reply_to is not None:
            body = _QUOTED.sub("", body, count=1)
        files: tuple[Attachment, ...] = ()
        if kind in _FILES:
            files = (_file(_FILES[kind], content, body),)
            body = body if text_of(content, "filename") not in (None, body) else ""
        elif kind not in _TEXTS:
            return Ignored(f"a message of type {kind[:80]}")
        at = event.get("origin_server_ts")
        message = Message(
            Target("direct" if direct else "group", self.name, room, thread=thread),
            Body(body) if body else None,
            files,
            relation=Reply(reply_to=reply_to, thread=thread),
            direction="inbound",
            id=event_id,
            sender=sender,
            timestamp=at if isinstance(at, int) and not isinstance(at, bool) else None,
        )
        source = SessionSource(
            self.name,
            "dm" if direct else "group",
            chat=room,
            thread=thread,
            sender=sender,
            is_bot=kind == "m.notice" or by_a_program(event),
            message_id=event_id,
        )
        label = text_of(_inner(event, "unsigned"), "transaction_id")
        return Incoming(message=message, source=source, own=sender == self.user_id, addressed=addressed, label=label)

    def _spoken_to(self, content: dict[str, Any], body: str) -> bool:
        """Mentions decide; of a client that has none, our whole user id in the text, where replies quote it too."""
        mentions = content.get("m.mentions")
        if isinstance(mentions, dict):
            found = cast("dict[str, Any]", mentions)
            users = found.get("user_ids")
            return found.get("room") is True or (isinstance(users, list) and self.user_id in users)
        formatted = text_of(content, "formatted_body") if content.get("format") == HTML else None
        return any(re.search(rf"{re.escape(self.user_id)}(?![\w.:-])", text) for text in (body, formatted or ""))


def _left_alone(event: Event) -> str | None:
    """What the event is, where it is no message of its own."""
    kind = event.get("type")
    if kind == MESSAGE:
        relates = _inner(_inner(event, "content"), "m.relates_to")
        return "an edit" if relates.get("rel_type") == "m.replace" else None
    named = {
        INVITE: "an invitation to a room: join it to receive from it",
        GAP: "a gap: more was said while we were away than is read, and the oldest of it was left out",
        "m.room.redaction": "a redaction",
        "m.room.encrypted": "an encrypted message: this channel has no keys",
    }
    if not isinstance(kind, str):
        raise ValueError("an event without a type")
    return named.get(kind, f"an event of type {kind[:80]}")


def _file(kind: MediaKind, content: dict[str, Any], body: str) -> Attachment:
    info = _inner(content, "info")
    size = info.get("size")
    return Attachment(
        text_of(content, "filename") or body or "file",
        kind,
        url=text_of(content, "url"),
        media_type=text_of(info, "mimetype"),
        size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
    )


def _inner(value: Event, name: str) -> dict[str, Any]:
    found = value.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _word(event: Event, name: str) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "replace")) <= KEY_MAX_BYTES:
        raise ValueError(f"an event whose {name!r} is no text of up to {KEY_MAX_BYTES} bytes")
    return value


def _digest(event: Event) -> str:
    return hashlib.sha256(msgspec.json.encode(event, order="deterministic")).hexdigest()
