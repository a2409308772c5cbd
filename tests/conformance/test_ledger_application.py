"""A ledger as an application of that library: repository, notification log, projections, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.application import AggregateNotFoundError
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate
from eventsourcing.persistence import (
    InfrastructureFactoryError,
    MapperDeserialisationError,
    ProgrammingError,
    StoredEvent,
    Tracking,
)
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.tests.application import BankAccounts
from eventsourcing.utils import TopicError, get_topic
from msgledger.ledger.errors import StreamHeld
from msgledger.ledger.events import IntentCommitted, IntentRecorded, UnitAccepted
from msgledger.ledger.intent import IntentState
from msgledger.ledger.store.append import Append
from msgledger.ledger.store.application import LedgerApplication
from msgledger.ledger.store.store import Store
from msgledger.ledger.store.transcoding import Unreadable

from ..unit.store_kit import accepted, committed, new, open_store, recorded, started


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "l.db"


@pytest.fixture
def gateway(path: Path) -> Iterator[Store]:
    """The store that a gateway has open."""
    with open_store(path) as store:
        yield store


@pytest.fixture
def app(path: Path, gateway: Store) -> Iterator[LedgerApplication]:
    with LedgerApplication({"MSGLEDGER_PATH": str(path)}) as opened:
        yield opened


def send(gateway: Store) -> str:
    """An intent that was sent; its id."""
    item = new()
    gateway.append_sync(item, Append(item.stream, (started(), accepted(), committed())))
    return item.stream


def insert(gateway: Store, stream: str, version: int, topic: str, body: bytes = b"{}") -> None:
    """As a later version of msgledger would, or damage."""
    gateway.transact_sync(lambda batch: batch.insert_raw([(stream, version, topic, body)]))


def test_an_intent_is_its_folded_state_at_any_version(app: LedgerApplication, gateway: Store) -> None:
    intent = send(gateway)
    state = app.repository.get(intent)
    assert isinstance(state, IntentState)
    assert state == gateway.state_of(intent) == app.repository.get(UUID(intent))
    statuses = [app.repository.get(intent, version=version).status for version in range(4)]
    assert statuses == ["pending", "sending", "committing", "sent"]
    assert app.repository.get(intent, version=99) == state
    assert intent in app.repository and "nothing" not in app.repository
    for wrong, version in ((intent, -1), ("nothing", None)):
        with pytest.raises(AggregateNotFoundError):
            app.repository.get(wrong, version=version)


def test_what_the_gateway_appends_is_there_at_once(app: LedgerApplication, gateway: Store) -> None:
    item = new()
    gateway.append_sync(item)
    assert app.repository.get(item.stream).head == 0
    gateway.append_sync(Append(item.stream, (started(),)))
    assert app.repository.get(item.stream).head == 1


def test_the_notification_log_has_all_events_as_they_stand_in_the_ledger(
    app: LedgerApplication, gateway: Store
) -> None:
    intent = send(gateway)
    section = app.notification_log["1,10"]
    assert [item.topic for item in section.items] == [
        "IntentRecorded",
        "AttemptStarted",
        "UnitAccepted",
        "IntentCommitted",
    ]
    assert {item.originator_id for item in section.items} == {intent}
    first: Any = app.mapper.to_domain_event(section.items[0])
    assert isinstance(first, IntentRecorded) and first.key == f"key {intent}"
    assert [type(event).__name__ for event in app.events.get(intent, gt=1)] == ["UnitAccepted", "IntentCommitted"]


def test_a_stream_with_an_event_that_cannot_be_read_is_held(app: LedgerApplication, gateway: Store) -> None:
    intent = send(gateway)
    insert(gateway, intent, 4, "IntentTeleported")
    with pytest.raises(StreamHeld, match="'IntentTeleported' is not known to this version"):
        app.repository.get(intent)
    assert app.repository.get(intent, version=3).status == "sent"
    insert(gateway, "later", 0, "SessionTeleported")
    with pytest.raises(StreamHeld, match="'SessionTeleported' is not known"):
        app.repository.get("later")


def test_everything_of_ours_is_refused_by_the_name_of_what_takes_it(app: LedgerApplication, gateway: Store) -> None:
    """Nothing that is handed over may be dropped in silence, as a state without events would be."""
    intent = send(gateway)
    read: Any = next(iter(app.events.get(intent)))
    state = app.repository.get(intent)
    for thing in (recorded("k"), read, state):
        with pytest.raises(ProgrammingError, match=rf"{type(thing).__name__} is of msgledger.*Store\.append"):
            app.save(Aggregate(), thing)
    with pytest.raises(ProgrammingError, match=r"Store\.append"):
        app.events.put([read])
    with pytest.raises(ProgrammingError, match=r"Store\.append"):
        app.recorder.insert_events([StoredEvent(intent, 4, "Theirs", b"{}")])
    assert app.recorder.max_notification_id() == gateway.head_position() == 4


def test_another_programs_aggregates_live_beside_ours(app: LedgerApplication, gateway: Store, path: Path) -> None:
    """Its own application finds them, and so does this one; with snapshots; ours are as they were."""
    intent = send(gateway)
    env = {"MSGLEDGER_PATH": str(path), "PERSISTENCE_MODULE": "msgledger.ledger.store.apsw"}
    with BankAccounts(env) as bank:
        account = bank.open_account("Alice", "alice@example.com")
        bank.take_snapshot(account)
        bank.credit_account(account, 10)
        assert bank.get_balance(account) == 10
    with pytest.raises(MapperDeserialisationError, match="email_address_as_str"):
        app.repository.get(account)
    aggregate = Aggregate()
    app.save(aggregate)
    aggregate.trigger_event(Aggregate.Event)
    app.save(aggregate)
    assert app.repository.get(aggregate.id) == app.repository.get(str(aggregate.id)) == aggregate
    assert app.repository.get(aggregate.id, version=1).version == 1
    assert app.repository.get(intent).status == "sent"
    assert gateway.verify_views() == []


class Seen(POPOTrackingRecorder):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[tuple[str, str]] = []

    def see(self, event: Any, tracking: Tracking) -> None:
        self.names.append((type(event).__name__, event.originator_id))
        self.insert_tracking(tracking)


class Everything(Projection[Seen]):
    @singledispatchmethod
    def process_event(self, event: Any, tracking: Tracking) -> None:
        self.view.see(event, tracking)


class Ends(Projection[Seen]):
    topics = (get_topic(IntentCommitted), "UnitAccepted")

    @singledispatchmethod
    def process_event(self, event: Any, tracking: Tracking) -> None:
        raise AssertionError(f"{event} was not asked for")

    @process_event.register
    def committed(self, event: IntentCommitted, tracking: Tracking) -> None:
        self.view.see(event, tracking)

    @process_event.register
    def accepted(self, event: UnitAccepted, tracking: Tracking) -> None:
        self.view.see(event, tracking)


def run(path: Path, projection: type[Projection[Seen]]) -> ProjectionRunner[LedgerApplication, Seen]:
    """As that library's users do; the application has its persistence module by itself, the view is in memory."""
    return ProjectionRunner(
        application_class=LedgerApplication,
        projection_class=projection,
        view_class=Seen,
        env={"MSGLEDGER_PATH": str(path), "PERSISTENCE_MODULE": "eventsourcing.popo"},
    )


def test_a_projection_follows_the_ledger_by_the_classes_of_its_events(path: Path, gateway: Store) -> None:
    before = send(gateway)
    with run(path, Ends) as runner:
        runner.wait(4)
        after = send(gateway)
        runner.wait(8)
        assert runner.view.names == [
            (name, intent) for intent in (before, after) for name in ("UnitAccepted", "IntentCommitted")
        ]


def test_a_projection_goes_on_over_what_this_version_cannot_read(path: Path, gateway: Store) -> None:
    send(gateway)
    insert(gateway, "later", 0, "SessionTeleported")
    intent = send(gateway)
    with run(path, Everything) as runner:
        runner.wait(9)
        assert runner.view.names[4:6] == [(Unreadable.__name__, "later"), ("IntentRecorded", intent)]


def test_a_projection_stops_at_a_class_that_is_not_here_and_can_leave_it_out(path: Path, gateway: Store) -> None:
    insert(gateway, "order", 1, "orders:Placed")
    send(gateway)
    with pytest.raises(TopicError, match="orders:Placed"), run(path, Everything) as runner:
        runner.run_forever(5)
    with run(path, Ends) as runner:
        runner.wait(5)


def test_a_wrong_path_makes_no_ledger(path: Path) -> None:
    """A reader with a wrong path would wait for ever for what never comes."""
    with pytest.raises(InfrastructureFactoryError, match=r"l\.db is not there"):
        LedgerApplication({"MSGLEDGER_PATH": str(path)})
    assert not path.exists()
    with LedgerApplication({"MSGLEDGER_PATH": str(path), "MSGLEDGER_CREATE": "yes"}) as app:
        assert app.recorder.max_notification_id() is None
