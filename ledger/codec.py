"""Events to rows and back: the topic is the event's name, the body is JSON.

JSON, so that a person with any SQLite tool can read the ledger in twenty years. Reading is tolerant: fields that are
not known are ignored, a topic that is not known comes back as `Opaque`, never dropped.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, cast

import msgspec

from . import events, inbound_events
from .events import Event

TOPICS: Final[dict[str, type[Event]]] = {
    name: cls
    for name, cls in (vars(events) | vars(inbound_events)).items()
    if isinstance(cls, type) and issubclass(cls, Event) and cls is not Event
}
_encode = msgspec.json.Encoder().encode
_decoders: Final = {topic: msgspec.json.Decoder(cls).decode for topic, cls in TOPICS.items()}


class Opaque(msgspec.Struct, frozen=True):
    """A stored event that this version cannot read: a topic from the future, or a damaged body. It holds its stream."""

    topic: str
    state: bytes
    error: str


def is_foreign(topic: str) -> bool:
    """Whether it names an event of another program: module and class. What has no colon is ours, also if unknown."""
    return ":" in topic


def encode(event: Event) -> tuple[str, bytes]:
    """Topic and JSON body."""
    return type(event).__name__, _encode(event)


def decode(topic: str, state: bytes) -> Event | Opaque:
    """The event, or `Opaque` with the reason why it cannot be read."""
    decoder = _decoders.get(topic)
    if decoder is None:
        return Opaque(topic, state, f"event type {topic!r} is not known to this version")
    try:
        return decoder(state)
    except msgspec.MsgspecError as error:
        return Opaque(topic, state, f"{topic} does not decode: {error}")


def as_json(value: Any) -> bytes:
    """JSON of any of our values, as it is stored. Raises `UnicodeEncodeError` or `TypeError` where there is none."""
    return _encode(value)


def to_json(value: Any) -> bytes:
    """JSON of any of our values, keys in declaration order: what digests of content are taken over. Equal values give
    equal bytes: msgspec itself leaves out a default only where it is that very object."""
    return _encode(_canonical(value))


def _canonical(value: Any) -> Any:
    """The same value with every field that equals its default replaced by the default."""
    if isinstance(value, tuple):
        return tuple(_canonical(item) for item in cast("tuple[Any, ...]", value))
    if not isinstance(value, msgspec.Struct):
        return value
    changed: dict[str, Any] = {}
    for name, default in _defaults(type(value)):
        found = getattr(value, name)
        if found is default:
            continue
        put = default if type(found) is type(default) and found == default else _canonical(found)
        if put is not found:
            changed[name] = put
    return msgspec.structs.replace(value, **changed) if changed else value


@cache
def _defaults(cls: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """Each field with its default; one without any has an object that no value is."""
    return tuple((field.name, field.default) for field in msgspec.structs.fields(cls))
