"""What goes into the ledger through that library comes out as it went in, ours as our structs, all of it as JSON."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import msgspec
import pytest
from eventsourcing.application import Application
from eventsourcing.cipher import AESCipher
from eventsourcing.domain import Aggregate, DomainEventProtocol, event
from eventsourcing.persistence import (
    DatetimeAsISO,
    DecimalAsStr,
    JSONTranscoder,
    Mapper,
    MapperDeserialisationError,
    ProgrammingError,
    StoredEvent,
    UUIDAsHex,
)
from eventsourcing.utils import TopicError, get_topic
from msgledger.ledger import codec
from msgledger.ledger.events import Event, IntentRecorded
from msgledger.ledger.store.transcoding import (
    FloatAsStr,
    LedgerMapper,
    MsgspecMapper,
    MsgspecTranscoder,
    TupleAsList,
    Unreadable,
)

from ..unit.store_kit import recorded
from .kit import environment

GOLDEN = Path(__file__).parents[1] / "unit" / "golden_events.jsonl"


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Ratio(float):
    pass


class Pair(NamedTuple):
    left: int
    right: str


class Opened(msgspec.Struct, frozen=True):
    """An event of a program that writes its events as msgspec structs."""

    originator_id: UUID
    originator_version: int
    amount: Decimal
    tags: tuple[str, ...] = ()


class Dog(Aggregate):
    @event("Registered")
    def __init__(self, name: str, born: datetime, weight: Decimal) -> None:
        self.name, self.born, self.weight = name, born, weight
        self.tricks: list[Any] = []

    @event("TrickAdded")
    def add_trick(self, trick: Any) -> None:
        self.tricks.append(trick)


def with_types(transcoder: JSONTranscoder) -> JSONTranscoder:
    for transcoding in (UUIDAsHex(), DecimalAsStr(), DatetimeAsISO()):
        transcoder.register(transcoding)
    return transcoder


OURS, STOCK = with_types(MsgspecTranscoder()), with_types(JSONTranscoder())
STOCK_WITH_OURS = with_types(JSONTranscoder())
STOCK_WITH_OURS.register(TupleAsList())
STOCK_WITH_OURS.register(FloatAsStr())
VALUES = [
    None,
    True,
    0.1,
    2**80,
    -(2**70),
    "a\u2028\x00é",
    {"a": [1, {"b": None}]},
    uuid4(),
    Decimal("1.10"),
    datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    {"id": uuid4(), "nested": [{"when": datetime.now(UTC)}]},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_it_reads_and_writes_the_json_of_that_librarys_transcoder(value: object) -> None:
    """A program may go over to it, and back, with the events that it has."""
    assert OURS.decode(STOCK.encode(value)) == value
    assert STOCK.decode(OURS.encode(value)) == value
    assert OURS.encode(value) == STOCK.encode(value)


@pytest.mark.parametrize("value", [(), (1, (2, [3])), {"a": (1,)}, math.inf, -math.inf, [Ratio("inf")]], ids=repr)
def test_what_json_has_not_comes_back_all_the_same(value: object) -> None:
    """That library gives a list for a tuple, and writes infinity as what no JSON reader takes."""
    assert repr(OURS.decode(OURS.encode(value))) == repr(value).replace("Ratio", "")
    assert repr(STOCK_WITH_OURS.decode(OURS.encode(value))) == repr(value).replace("Ratio", "")
    assert json.loads(OURS.encode(value), parse_constant=lambda name: pytest.fail(name)) is not None


def test_not_a_number() -> None:
    assert math.isnan(OURS.decode(OURS.encode({"a": math.nan}))["a"])


def test_classes_that_extend_built_in_ones_are_written_as_what_they_extend() -> None:
    value = {"colour": Colour.RED, "level": Level.HIGH, "ratio": Ratio(0.5), "pair": Pair(1, "x"), Colour.RED: 1}
    assert OURS.encode(value) == STOCK.encode(value)


def test_keys_are_what_json_has() -> None:
    value = {1: "a", None: "b", False: "c", 1.5: "d"}
    assert OURS.encode(value) == STOCK.encode(value)
    with pytest.raises(TypeError, match="a key of a dict must be"):
        OURS.encode({uuid4(): 1})


def test_an_application_over_the_module_keeps_its_types(tmp_path: Path) -> None:
    with Application[UUID](environment(tmp_path / "l.db")) as app:
        dog = Dog("Fido", datetime(2020, 1, 2, tzinfo=UTC), Decimal("12.50"))
        dog.add_trick(("roll", 3))
        app.save(dog)
        found = app.repository.get(dog.id)
        assert found == dog and found.tricks == [("roll", 3)]
        rows = app.factory.datastore.read(lambda cursor: cursor.execute("SELECT data FROM events").fetchall())
        assert [json.loads(data)["timestamp"]["_type_"] for (data,) in rows] == ["datetime_iso"] * 2


@pytest.mark.parametrize("sealed", [False, True])
def test_structs_of_another_program_are_written_whole(tmp_path: Path, sealed: bool) -> None:
    more = {"CIPHER_KEY": AESCipher.create_key(16), "COMPRESSOR_TOPIC": "zlib"} if sealed else {}
    with Application[UUID](environment(tmp_path / "l.db", **more)) as app:
        opened = Opened(uuid4(), 1, Decimal("0.10"), ("new",))
        app.save(opened)
        [stored] = app.recorder.select_events(opened.originator_id)
        assert (b"0.10" in stored.state) is not sealed
        assert app.mapper.to_domain_event(stored) == opened
        broken = StoredEvent(opened.originator_id, 1, stored.topic, b"{")
        with pytest.raises(MapperDeserialisationError, match=r"Opened of stream .*, version 1, does not decode"):
            app.mapper.to_domain_event(broken)


@pytest.mark.parametrize("topic", sorted(codec.TOPICS))
def test_every_event_of_ours_is_read_as_our_struct_in_its_place(topic: str) -> None:
    """Also for that library's own checks; what it does not read, it would not hand to a projection."""
    mapper = LedgerMapper(MsgspecMapper(OURS))
    lines = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    bodies = [json.dumps(line["body"]).encode() for line in lines if line["topic"] == topic]
    assert bodies
    for body in bodies:
        plain = codec.decode(topic, body)
        found: Any = mapper.to_domain_event(StoredEvent("stream", 3, topic, body))
        assert isinstance(found, codec.TOPICS[topic]) and isinstance(found, DomainEventProtocol)
        assert (found.originator_id, found.originator_version) == ("stream", 3)
        assert all(getattr(found, name) == getattr(plain, name) for name in type(plain).__struct_fields__)
        assert get_topic(type(found)) == topic


def test_what_this_version_cannot_read_comes_in_its_place_and_says_why() -> None:
    """As the ledger itself does: a name without a module is ours, of a later version."""
    mapper = LedgerMapper(MsgspecMapper(OURS))
    for topic, says in (("IntentRecorded", "does not decode"), ("IntentTeleported", "is not known to this version")):
        found = mapper.to_domain_event(StoredEvent("stream", 3, topic, b"{}"))
        assert isinstance(found, Unreadable) and isinstance(found, DomainEventProtocol)
        assert (found.originator_id, found.originator_version, found.state) == ("stream", 3, b"{}")
        assert says in found.error
        with pytest.raises(ProgrammingError):
            mapper.to_stored_event(found)


def test_a_class_of_another_program_that_is_not_here_is_an_error_and_is_not_passed_over() -> None:
    """A projection that follows that program would lose what it was for."""
    with pytest.raises(TopicError, match="orders:Placed"):
        LedgerMapper(MsgspecMapper(OURS)).to_domain_event(StoredEvent("s", 1, "orders:Placed", b"{}"))


def test_ours_are_refused_and_others_go_through_the_mapper_that_is_given() -> None:
    class Theirs(Mapper[Any]):
        def to_domain_event(self, stored_event: StoredEvent) -> Any:
            return stored_event.state

    mapper = LedgerMapper(Theirs(OURS))
    assert mapper.to_domain_event(StoredEvent("s", 1, "x", b"theirs")) == b"theirs"
    body = codec.encode(recorded("k"))[1]
    ours: Any = mapper.to_domain_event(StoredEvent("s", 0, "IntentRecorded", body))
    assert isinstance(ours, IntentRecorded) and isinstance(ours, Event)
    with pytest.raises(ProgrammingError, match=r"IntentRecorded is of msgledger.*Store\.append"):
        mapper.to_stored_event(ours)
