"""What the persistence module promises beyond the shipped cases: whose events are whose, its environment, its life."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
from eventsourcing.persistence import (
    InfrastructureFactory,
    InfrastructureFactoryError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    StoredEvent,
    Tracking,
)
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.utils import get_topic
from msgledger.ledger import errors
from msgledger.ledger.events import IntentCommitted
from msgledger.ledger.store import apsw
from msgledger.ledger.store.datastore import Datastore
from msgledger.ledger.store.store import Store

from ..unit.store_kit import committed, new, open_store
from .kit import environment


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "l.db") as opened:
        yield opened


def theirs(stream: UUID | str | None = None, version: int = 1, topic: str = "theirs") -> StoredEvent:
    return StoredEvent(stream or uuid4(), version, topic, b"{}")


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("msgledger ")}


@pytest.mark.parametrize("topic", ["IntentCommitted", get_topic(IntentCommitted)])
def test_our_own_events_are_read_and_not_written_through_it(store: Store, topic: str) -> None:
    """They would be neither checked nor folded."""
    item = new()
    store.append_sync(item)
    recorder = apsw.ApswProcessRecorder(Datastore(store, "text"))
    [event] = recorder.select_events(item.stream)
    assert (event.topic, event.originator_version) == ("IntentRecorded", 0)
    for stream in (item.stream, "new"):
        with pytest.raises(ProgrammingError, match=r"IntentCommitted is of msgledger.*Store\.append"):
            recorder.insert_events([theirs(), theirs(stream, 1, topic)], tracking=Tracking("app", 7))
    assert recorder.max_notification_id() == 1 and recorder.max_tracking_id("app") is None


def test_a_foreign_event_in_a_stream_of_ours_is_refused(store: Store) -> None:
    """It would hold the stream for good: nothing of ours could be appended any more."""
    item = new()
    store.append_sync(item)
    recorder = apsw.ApswApplicationRecorder(Datastore(store))
    for stream in (item.stream, UUID(item.stream)):
        with pytest.raises(ProgrammingError, match=f"stream {item.stream} is of msgledger"):
            recorder.insert_events([theirs(), theirs(stream)])
    [result] = store.append_sync(type(item)(item.stream, (committed(),)))
    assert result.head == 1 and result.position == 2


def test_other_programs_events_touch_no_view_and_keep_ours_out_of_their_streams(store: Store) -> None:
    recorder = apsw.ApswApplicationRecorder(Datastore(store))
    foreign = theirs(version=0)
    recorder.insert_events([foreign])
    [result] = store.append_sync(new())
    assert result.position == 2
    with pytest.raises(errors.Unappendable):
        store.append_sync(new(stream=str(foreign.originator_id)))
    assert store.read_sync(lambda cursor: cursor.execute("SELECT count(*) FROM things").get) == 1
    assert store.verify_views() == []
    assert store.rebuild().streams == 2


def test_ids_that_are_no_uuids_stay_text_among_those_that_are(store: Store) -> None:
    """Several programs share the sequence: one's ids must not end another's reading. Only the text that a UUID is
    written as names its stream, so any other text is left as it is."""
    ids = [uuid4(), "invoice-7", uuid4().hex, str(uuid4()).upper()]
    recorder = apsw.ApswApplicationRecorder(Datastore(store, "uuid"))
    recorder.insert_events([theirs(stream) for stream in ids])
    found = [notification.originator_id for notification in recorder.select_notifications(1, 10)]
    assert found == ids
    assert all(recorder.select_events(stream) for stream in found)
    assert recorder.select_events(str(ids[0])) == [theirs(str(ids[0]))]


def test_positions_are_never_given_twice_also_where_the_last_events_are_gone(store: Store) -> None:
    """A follower that saw them would pass over what came in their place. The stock SQLite module gives them again."""
    recorder = apsw.ApswApplicationRecorder(Datastore(store))
    recorder.insert_events([theirs(), theirs()])
    store.transact_sync(lambda batch: batch.cursor.execute("DELETE FROM stored_events"))
    assert recorder.insert_events([theirs()]) == [3]


def test_a_view_and_its_tracking_change_together_or_not_at_all(store: Store) -> None:
    class View(apsw.ApswTrackingRecorder):
        tables = ("CREATE TABLE IF NOT EXISTS seen (name TEXT UNIQUE) STRICT",)

        def see(self, name: str, position: int) -> None:
            self.record(Tracking("app", position), lambda c: c.execute("INSERT INTO seen VALUES (?)", (name,)))

        def seen(self) -> list[str]:
            return self.datastore.read(lambda cursor: [name for (name,) in cursor.execute("SELECT name FROM seen")])

    view = View(Datastore(store))
    view.create_table()
    view.see("a", 1)
    for name, position in (("b", 1), ("a", 2)):
        with pytest.raises(IntegrityError):
            view.see(name, position)
    assert (view.seen(), view.max_tracking_id("app")) == (["a"], 1)
    with pytest.raises(OperationalError, match="readonly"):
        view.datastore.read(lambda cursor: cursor.execute("DELETE FROM seen"))


def test_snapshots_have_a_table_of_their_own(tmp_path: Path) -> None:
    with InfrastructureFactory.construct(environment(tmp_path / "l.db")) as factory:
        recorder = factory.aggregate_recorder("snapshots")
        recorder.insert_events([theirs("s", 5)])
        assert factory.aggregate_recorder("snapshots").select_events("s", desc=True, limit=1) == [theirs("s", 5)]
        assert factory.application_recorder().max_notification_id() is None
        with pytest.raises(ProgrammingError, match="'events' and 'snapshots', no 'drafts'"):
            factory.aggregate_recorder("drafts")
    with (
        InfrastructureFactory.construct(environment(tmp_path / "other.db", CREATE_TABLE="no")) as factory,
        pytest.raises(OperationalError, match="no such table: stored_snapshots"),
    ):
        factory.aggregate_recorder("snapshots").select_events("s")


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"MSGLEDGER_PATH": ""}, OSError, "set MSGLEDGER_PATH"),
        ({"MSGLEDGER_PATH": ":memory:"}, OSError, "':memory:'; a ledger is a file"),
        ({"MSGLEDGER_PATH": "file:l.db?mode=memory"}, OSError, "a ledger is a file"),
        ({"MSGLEDGER_CREATE": "no"}, InfrastructureFactoryError, r"l\.db is not there; check the path"),
        ({"MSGLEDGER_CREATE": "perhaps"}, OSError, "MSGLEDGER_CREATE is 'perhaps'; it must be 'yes' or 'no'"),
        ({"ORIGINATOR_ID_TYPE": "int"}, OSError, "'int'; it must be 'uuid' or 'text'"),
    ],
)
def test_a_wrong_environment_is_told_and_makes_no_file(
    tmp_path: Path, changes: dict[str, str], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        InfrastructureFactory.construct(environment(tmp_path / "l.db") | changes)
    assert list(tmp_path.iterdir()) == []


def test_a_key_may_have_the_name_of_the_application_before_it(tmp_path: Path) -> None:
    class Orders(Application[UUID]):
        pass

    env = environment(tmp_path / "l.db", ORDERS_MSGLEDGER_PATH=str(tmp_path / "orders.db"))
    with Orders(env) as app:
        assert app.factory.datastore.store.path == tmp_path / "orders.db"


def test_recorders_come_from_the_environment_and_must_fit(tmp_path: Path) -> None:
    env = environment(tmp_path / "l.db", APPLICATION_RECORDER_TOPIC=get_topic(apsw.ApswProcessRecorder))
    with InfrastructureFactory.construct(env) as factory:
        assert type(factory.application_recorder()) is apsw.ApswProcessRecorder
        with pytest.raises(ProgrammingError, match=r"POPOTrackingRecorder.*extend ApswTrackingRecorder"):
            factory.tracking_recorder(POPOTrackingRecorder)


def test_several_factories_in_one_process_share_a_file(tmp_path: Path) -> None:
    first, second = (Application[UUID](environment(tmp_path / "l.db")) for _ in range(2))
    with first, second, second.recorder.subscribe() as subscription:
        aggregate = Aggregate()
        first.save(aggregate)
        assert next(subscription).originator_id == aggregate.id
        assert second.repository.get(aggregate.id) == aggregate
        aggregate.trigger_event(Aggregate.Event)
        second.save(aggregate)
        stale = first.repository.get(aggregate.id, version=1)
        stale.trigger_event(Aggregate.Event)
        with pytest.raises(IntegrityError):
            first.save(stale)
        assert next(subscription).originator_version == 2


@pytest.mark.parametrize("end", ["close", "with", "forget"])
def test_a_factory_leaves_no_thread_behind(tmp_path: Path, end: str) -> None:
    """That library's runners drop the factory of a view at once, and the view later: the ledger is closed with the
    last that holds it."""
    before = threads()
    factory = InfrastructureFactory.construct(environment(tmp_path / f"{end}.db"))
    view = factory.tracking_recorder()
    if end == "close":
        factory.close()
    elif end == "with":
        with factory:
            pass
    del factory
    gc.collect()
    if end == "forget":
        view.insert_tracking(Tracking("app", 1))
        assert view.max_tracking_id("app") == 1
        assert threads() > before
    else:
        with pytest.raises(OperationalError, match="closed"):
            view.max_tracking_id("app")
    del view
    gc.collect()
    deadline = time.monotonic() + 5
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert threads() <= before


def test_the_collector_of_garbage_may_close_it_on_a_thread_of_its_own(tmp_path: Path) -> None:
    """An application that is forgotten is closed wherever garbage happens to be collected."""
    app = Application[UUID](environment(tmp_path / "l.db"))
    store = app.factory.datastore.store
    closed = threading.Event()

    def on_the_writer_thread(_: int) -> None:
        app.close()
        closed.set()

    store.on_commit(on_the_writer_thread)
    app.save(Aggregate())
    assert closed.wait(5)
    deadline = time.monotonic() + 5
    while store._writer._thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not store._writer._thread.is_alive()
