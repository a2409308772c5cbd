"""Events to stored events and back for the `eventsourcing` library, all of it JSON by msgspec.

Ours come as the structs of `events.py`, read only. Other programs' events are written as that library writes them, so
that either transcoder reads what the other wrote, or whole where their events are msgspec structs themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import (
    JSONTranscoder,
    Mapper,
    MapperDeserialisationError,
    ProgrammingError,
    StoredEvent,
    Transcoding,
)
from eventsourcing.utils import TopicError, get_topic, resolve_topic
from msgspec.structs import force_setattr

from .. import codec
from ..codec import Opaque
from ..events import Event

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_ATOMS: Final = frozenset({str, int, bool, type(None)})


class TupleAsList(Transcoding):
    """A tuple comes back as a tuple; that library's own transcoder gives a list."""

    type = tuple
    name = "tuple_as_list"

    def encode(self, obj: tuple[Any, ...]) -> list[Any]:
        return list(obj)

    def decode(self, data: list[Any]) -> tuple[Any, ...]:
        return tuple(data)


class FloatAsStr(Transcoding):
    """Infinities and NaN, for which JSON has no number."""

    type = float
    name = "float_as_str"

    def encode(self, obj: float) -> str:
        return str(obj)

    def decode(self, data: str) -> float:
        return float(data)


class MsgspecTranscoder(JSONTranscoder):
    """That library's JSON, `{"_type_": name, "_data_": ...}` for registered types, by msgspec."""

    def __init__(self) -> None:
        super().__init__()
        self.register(TupleAsList())
        self.register(FloatAsStr())

    def encode(self, obj: Any) -> bytes:
        """Raises `TranscodingNotRegisteredError` for a type that nobody registered."""
        return _encode(self._plain(obj))

    def decode(self, data: bytes) -> Any:
        return self._revive(_decode(data))

    def _plain(self, value: Any) -> Any:
        """The value in what JSON has. msgspec itself would write a UUID or a time as text, and not know it again."""
        kind = cast("type[Any]", type(value))
        if kind in _ATOMS or (kind is float and math.isfinite(value)):
            return value
        if kind in self.types:
            return self._plain_fields(self._encode_obj(value))
        if isinstance(value, dict):
            return self._plain_fields(cast("dict[Any, Any]", value))
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in cast("list[Any]", value)]
        if isinstance(value, str):  # what is left of these three are subclasses: written as what they extend
            return str.__str__(value)
        if isinstance(value, int):
            return int.__int__(value)
        if isinstance(value, float):
            return self._plain(float.__float__(value))
        return self._encode_obj(value)  # which refuses it

    def _plain_fields(self, fields: dict[Any, Any]) -> dict[str, Any]:
        return {_key(name): self._plain(item) for name, item in fields.items()}

    def _revive(self, found: Any) -> Any:
        if isinstance(found, dict):
            fields = cast("dict[str, Any]", found)
            return self._decode_obj({name: self._revive(item) for name, item in fields.items()})
        if isinstance(found, list):
            return [self._revive(item) for item in cast("list[Any]", found)]
        return found


def _key(name: Any) -> str:
    """The keys that JSON can have, as Python's own encoder writes them."""
    if isinstance(name, str):
        return str.__str__(name)
    if name is None or isinstance(name, int | float):
        return _encode(name).decode()
    raise TypeError(f"a key of a dict must be str, int, float, bool or None, not {type(name).__name__}: {name!r}")


class MsgspecMapper(Mapper[Any]):
    """Other programs' events: msgspec structs whole, all others through the transcoder."""

    def to_stored_event(self, domain_event: DomainEventProtocol[Any]) -> StoredEvent:
        if not isinstance(domain_event, msgspec.Struct):
            return super().to_stored_event(domain_event)
        state = _encode(domain_event)
        if self.compressor:
            state = self.compressor.compress(state)
        if self.cipher:
            state = self.cipher.encrypt(state)
        topic = get_topic(type(domain_event))
        return StoredEvent(domain_event.originator_id, domain_event.originator_version, topic, state)

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[Any]:
        cls = resolve_topic(stored_event.topic)
        if not (isinstance(cls, type) and issubclass(cls, msgspec.Struct)):
            return super().to_domain_event(stored_event)
        state = stored_event.state
        try:
            if self.cipher:
                state = self.cipher.decrypt(state)
            if self.compressor:
                state = self.compressor.decompress(state)
            return cast("DomainEventProtocol[Any]", _decoder(cls)(state))
        except Exception as error:
            raise MapperDeserialisationError(
                f"{stored_event.topic} of stream {stored_event.originator_id}, version"
                f" {stored_event.originator_version}, does not decode: {error}"
            ) from error


@lru_cache
def _decoder(cls: type[msgspec.Struct]) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(cls).decode


class Unreadable(Opaque, frozen=True):
    """An event of ours that this version cannot read, in its place. It is never dropped."""

    originator_id: str = ""
    originator_version: int = 0


def _in_place(cls: type[Event]) -> type[Event]:
    """The event with its place in its stream, which the ledger keeps in columns and that library wants as fields.

    `TOPIC` is what that library's `get_topic` asks for: its name in the ledger.
    """
    place = [("originator_id", str, ""), ("originator_version", int, 0)]
    made = msgspec.defstruct(
        cls.__name__,
        place,
        bases=(cls,),
        module=__name__,
        namespace={"TOPIC": cls.__name__},
        frozen=True,
        gc=False,
        kw_only=True,
    )
    return cast("type[Event]", made)


_READERS: Final = {name: msgspec.json.Decoder(_in_place(cls)).decode for name, cls in codec.TOPICS.items()}


class LedgerMapper(Mapper[Any]):
    """Our events as our structs, with `originator_id` and `originator_version`; all others through `theirs`."""

    def __init__(self, theirs: Mapper[Any]) -> None:
        super().__init__(theirs.transcoder, theirs.compressor, theirs.cipher)
        self.theirs = theirs

    def to_stored_event(self, domain_event: DomainEventProtocol[Any]) -> StoredEvent:
        if isinstance(domain_event, Event | Opaque):
            raise refusal(type(domain_event).__name__)
        return self.theirs.to_stored_event(domain_event)

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[Any]:
        """Raises `TopicError` for an event of a program whose code is not here; leave it out with `topics`."""
        topic, state = stored_event.topic, stored_event.state
        reader = _READERS.get(topic)
        if reader is None:
            try:
                return self.theirs.to_domain_event(stored_event)
            except TopicError:
                if codec.is_foreign(topic):
                    raise
                found: msgspec.Struct = Unreadable(topic, state, f"event type {topic!r} is not known to this version")
        else:
            try:
                found = reader(state)
            except msgspec.MsgspecError as error:
                found = Unreadable(topic, state, f"{topic} does not decode: {error}")
        force_setattr(found, "originator_id", str(stored_event.originator_id))
        force_setattr(found, "originator_version", stored_event.originator_version)
        return cast("DomainEventProtocol[Any]", found)


def refusal(what: str) -> ProgrammingError:
    return ProgrammingError(f"{what} is of msgledger: append it with Store.append, which checks and folds it")
