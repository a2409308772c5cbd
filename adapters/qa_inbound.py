"""What comes in from our own platform: polled, pushed to a webhook, or over a socket. Sans-I/O.

An event is an object with `id`, `seq`, `type`, `place`, `kind`, `from` and, of a message, `message` and `text`. A push
is signed: HMAC-SHA256 over its time and its body, and one that is older than `SKEW_MS` is refused as a replay.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ..ledger.inbound_events import AckPolicy
from ..ledger.limits import ERROR_TEXT_MAX_CHARS, KEY_MAX_BYTES, MINUTE_MS
from ..ledger.message import Attachment, Body, Message, Reply, Target, TargetKind
from ..ledger.outcome import FailureClass, Rejected, Unknown
from ..ledger.source import ChatKind, SessionSource
from .exchange import Answer, Request, retry_after_s, without_class
from .qa_signature import SIGNATURE, TIMESTAMP, signature
from .receiving import Arrival, Event, Frame, Ignored, Incoming, Polled, Refused, Response

SKEW_MS: Final = 5 * MINUTE_MS
_KINDS: Final[dict[str, tuple[TargetKind, ChatKind]]] = {
    "dm": ("direct", "dm"),
    "group": ("group", "group"),
    "channel": ("channel", "channel"),
}


class QaInbound:
    """The receiving side of `QaAdapter`. `acknowledges=False` plays a platform whose cursor only reads."""

    ack_policy: AckPolicy = "after_record"
    name: str
    _secret: str
    _user: str
    _acknowledges: bool

    @property
    def poll_acknowledges(self) -> bool:
        return self._acknowledges

    def poll(self, cursor: str | None, wait_s: float) -> Request:
        """Asks behind `cursor`, and with the same cursor acknowledges what is before, where asking is that."""
        body: dict[str, Any] = {"cursor": cursor, "wait_s": wait_s}
        if self._acknowledges:
            body["acknowledged_cursor"] = cursor
        return Request.of_json("POST", "/v1/poll", body)

    def parse_poll(self, cursor: str | None, answer: Answer) -> Polled | Rejected | Unknown:
        """The events in the order of the platform, however it shuffled them."""
        said = answer.json()
        if said is None or answer.status >= 500:
            return without_class(answer)
        if answer.status != 200:
            return _refused(said, answer)
        events, last = _objects(said.get("events")), said.get("cursor")
        if events is None or not (last is None or isinstance(last, str)):
            return without_class(answer)
        numbered = sorted(((_seq(event), event) for event in events), key=lambda one: one[0])
        if not self._acknowledges:
            return Polled(tuple(Arrival(event) for _, event in numbered), last or cursor)
        return Polled(tuple(Arrival(event, str(seq)) for seq, event in numbered))

    def verify(self, headers: Mapping[str, str], body: bytes, at: int) -> None:
        timestamp, signed = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
        if not self._secret:
            raise Refused(401, "no secret is configured, so no push can be verified")
        if not signed or not timestamp:
            raise Refused(401, f"{SIGNATURE} or {TIMESTAMP} is missing")
        if not hmac.compare_digest(signature(self._secret, timestamp, body).encode(), signed.encode()):
            raise Refused(401, f"{SIGNATURE} is not of this secret, time and body")
        if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 17):
            raise Refused(403, f"{TIMESTAMP} is no time")
        if abs(at - int(timestamp)) > SKEW_MS:
            raise Refused(403, f"{TIMESTAMP} is {abs(at - int(timestamp)) // 1000} s away: a replay, or a wrong clock")

    def unpack(self, headers: Mapping[str, str], body: bytes) -> Sequence[Event] | Response:
        """`{"events": [...]}`, or `{"challenge": "..."}`, which is answered with itself."""
        try:
            said = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"the body is no JSON ({type(error).__name__})") from None
        found = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        challenge = found.get("challenge")
        if isinstance(challenge, str):
            return Response(body=challenge.encode("utf-8", "replace"))
        events = _objects(found.get("events"))
        if events is None:
            raise Refused(400, "the body has no list of events")
        return events

    def connect(self, cursor: str | None) -> Request:
        return Request("GET", "/v1/socket", () if cursor is None else (("cursor", cursor),))

    def opened(self, cursor: str | None) -> tuple[str, ...]:
        return ()

    def frame(self, text: str) -> Frame:
        """Raises `ValueError` for a frame that is none of this platform's."""
        said = msgspec.json.decode(text)
        found = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        if "ping" in found:
            return Frame(send=(_text({"pong": found["ping"]}),))
        events = _objects(found.get("events"))
        if events is None:
            raise ValueError("a frame without events")
        numbered = sorted(((_seq(event), event) for event in events), key=lambda one: one[0])
        return Frame(tuple(Arrival(event, str(seq)) for seq, event in numbered))

    def acknowledge(self, arrival: Arrival) -> str | None:
        return _text({"ack": arrival.event.get("id")})

    def dedupe_key(self, event: Event) -> str:
        return _word(event, "id")

    def normalize(self, event: Event) -> Incoming | Ignored:
        if event.get("type") != "message":
            return Ignored(f"a {_word(event, 'type')}"[:ERROR_TEXT_MAX_CHARS])
        kind, place = _word(event, "kind"), _word(event, "place")
        if kind not in _KINDS:
            raise ValueError(f"a place of kind {kind[:80]!r}")
        target_kind, chat_kind = _KINDS[kind]
        thread, sender, text = _maybe(event, "thread"), _word(event, "from"), _maybe(event, "text")
        names, reply_to = _objects(event.get("media", [])), _maybe(event, "reply_to")
        if names is None:
            raise ValueError("media that is no list of objects")
        mentions = event.get("mentions")
        at = event.get("at")
        message = Message(
            Target(target_kind, self.name, place, thread=thread),
            None if text is None else Body(text),
            tuple(Attachment(_word(one, "name"), url=_maybe(one, "url")) for one in names),
            relation=Reply(reply_to=reply_to, thread=thread),
            direction="inbound",
            id=_word(event, "message"),
            sender=sender,
            timestamp=at if isinstance(at, int) and not isinstance(at, bool) else None,
        )
        source = SessionSource(
            self.name,
            chat_kind,
            chat=place,
            thread=thread,
            sender=sender,
            sender_name=_maybe(event, "from_name"),
            is_bot=event.get("bot") is True,
            message_id=message.id,
        )
        spoken = chat_kind == "dm" or not isinstance(mentions, list) or self._user in cast("list[Any]", mentions)
        own = event.get("own") is True
        return Incoming(message=message, source=source, own=own, addressed=spoken, label=_maybe(event, "key"))


def _refused(said: Mapping[str, Any], answer: Answer) -> Rejected | Unknown:
    error = said.get("error")
    failure = cast("dict[str, Any]", error).get("class") if isinstance(error, dict) else None
    if not isinstance(failure, str) or failure not in FailureClass._value2member_map_:
        return without_class(answer)
    return Rejected(failure, status=answer.status, retry_after_s=retry_after_s(answer))


def _objects(value: object) -> list[dict[str, Any]] | None:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in cast("list[Any]", value)):
        return None
    return cast("list[dict[str, Any]]", value)


def _seq(event: Event) -> int:
    seq = event.get("seq")
    if isinstance(seq, bool) or not isinstance(seq, int):
        raise ValueError("an event without its number")
    return seq


def _word(event: Event, name: str) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "replace")) <= KEY_MAX_BYTES:
        raise ValueError(f"an event whose {name!r} is no text of up to {KEY_MAX_BYTES} bytes")
    return value


def _maybe(event: Event, name: str) -> str | None:
    value = event.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"an event whose {name!r} is no text")
    return value or None


def _text(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
