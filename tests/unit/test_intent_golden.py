"""What is in the ledger stays readable: one body of every event that was ever shipped, kept for ever.

`golden_events.jsonl` only grows. A line has the event's topic, its JSON body as it was stored, and every field that it
had then with its value, defaults included: a later version may add fields, but reads these as they were meant.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgledger.ledger import codec, fold
from msgledger.ledger import events as e
from msgledger.ledger.codec import TOPICS, Opaque
from msgledger.ledger.message import RenderedUnit

from .intent_kit import STREAM, T0, Life, recorded

GOLDEN = [json.loads(line) for line in Path(__file__).with_name("golden_events.jsonl").read_text().splitlines()]


def plain(value: Any) -> Any:
    """Every field of a value with its defaults, as JSON has it."""
    if isinstance(value, msgspec.Struct):
        fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        tag = value.__struct_config__.tag
        return fields if tag is None else {value.__struct_config__.tag_field: tag, **fields}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def keeps(now: Any, then: Any) -> bool:
    """Whether everything that stood there then still reads the same."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(name in now and keeps(now[name], then[name]) for name in then)
    if isinstance(then, list):
        return isinstance(now, list) and len(now) == len(then) and all(map(keeps, now, then))
    return now == then


def golden_id(line: dict[str, Any]) -> str:
    return f"{line['topic']}-{len(line['body'])}"


@pytest.mark.parametrize("line", GOLDEN, ids=golden_id)
def test_a_stored_body_still_means_what_it_meant(line: dict[str, Any]) -> None:
    """CORE-1: field by field, with the defaults of its time."""
    event = codec.decode(line["topic"], json.dumps(line["body"]).encode())
    assert not isinstance(event, Opaque), event
    assert keeps(plain(event), line["means"])


@pytest.mark.parametrize("line", GOLDEN, ids=golden_id)
def test_nothing_of_a_stored_body_is_left_unread(line: dict[str, Any]) -> None:
    """CORE-1: what it is written as again has all that was written."""
    event = codec.decode(line["topic"], json.dumps(line["body"]).encode())
    assert not isinstance(event, Opaque), event
    assert json.loads(codec.encode(event)[1]) == line["body"]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_field_of_every_event_has_a_golden_value(topic: str) -> None:
    """CORE-1: also the one that is added tomorrow; nothing that was shipped is taken away."""
    stored = {name for line in GOLDEN if line["topic"] == topic for name in line["body"]}
    assert stored == set(TOPICS[topic].__struct_fields__)


def test_no_golden_event_has_lost_its_type() -> None:
    """CORE-1: a topic is for ever."""
    assert {line["topic"] for line in GOLDEN} == set(TOPICS)


def test_unknown_fields_are_ignored() -> None:
    """CORE-1: a later version added them."""
    topic, body = codec.encode(recorded())
    assert codec.decode(topic, body[:-1] + b',"added":{"later":[1,2]}}') == recorded()


def test_an_unknown_type_is_kept_as_it_is() -> None:
    """REC-12: never dropped; it holds its stream."""
    event = codec.decode("IntentTeleported", b'{"at":1}')
    assert isinstance(event, Opaque)
    assert (event.topic, event.state) == ("IntentTeleported", b'{"at":1}')
    with pytest.raises(fold.HeldStream, match="IntentTeleported"):
        fold.evolve(Life().state, STREAM, event, 8, T0)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"at":"noon","by":"w"}', b'{"by":"w"}', b"\xff"])
def test_a_damaged_body_is_kept_as_it_is(body: bytes) -> None:
    """REC-12: with the reason why it cannot be read."""
    event = codec.decode("IntentCancelled", body)
    assert isinstance(event, Opaque)
    assert event.state == body
    assert "IntentCancelled does not decode" in event.error


def test_a_stream_begins_with_an_event_that_begins_one() -> None:
    """REC-12: anything else is left alone and said."""
    with pytest.raises(fold.HeldStream, match="begins with IntentCancelled"):
        fold.fold(STREAM, [(e.IntentCancelled(at=T0, by="w", reason="r"), 1, T0)])


def test_the_facts_of_units_are_in_their_order() -> None:
    """BAT-2: the index of a planned unit is its place."""
    units = (RenderedUnit(0, "text", "a"), RenderedUnit(1, "media", required=False))
    assert e.planned(units) == (e.PlannedUnit("text", True), e.PlannedUnit("media", False))
