"""The boundary to the `eventsourcing` library, by the test cases that it ships."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest
from eventsourcing.persistence import InfrastructureFactory, ProgrammingError, StoredEvent

if importlib.util.find_spec("Crypto") is None:  # their module imports a cipher that these cases do not use
    sys.modules["eventsourcing.cipher"] = ModuleType("eventsourcing.cipher")
    sys.modules["eventsourcing.cipher"].AESCipher = None  # type: ignore[attr-defined]

from eventsourcing.tests.persistence import (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    ProcessRecorderTestCase,
    TrackingRecorderTestCase,
)
from msgledger.ledger.store import apsw

from .store_kit import new, open_store

WITHOUT = {
    "test_insert_subscribe": "needs subscriptions, which come later",
    "test_performance": "prints timings, checks nothing",
    "test_concurrent_throughput": "prints timings, checks nothing",
}


class OnAStore:
    def setUp(self) -> None:
        name = self._testMethodName  # type: ignore[attr-defined]
        if name in WITHOUT:
            self.skipTest(WITHOUT[name])  # type: ignore[attr-defined]
        self.folder = tempfile.mkdtemp()
        self.store = open_store(Path(self.folder) / "l.db", [])

    def tearDown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    def new_originator_id(self):
        return uuid4()


class TestAggregates(OnAStore, AggregateRecorderTestCase):
    def create_recorder(self):
        return apsw.ApswAggregateRecorder(self.store)


class TestApplications(OnAStore, ApplicationRecorderTestCase):
    def create_recorder(self):
        return apsw.ApswApplicationRecorder(self.store)


class TestTracking(OnAStore, TrackingRecorderTestCase):
    def create_recorder(self):
        return apsw.ApswTrackingRecorder(self.store)


class TestProcesses(OnAStore, ProcessRecorderTestCase):
    def create_recorder(self):
        return apsw.ApswProcessRecorder(self.store)


def test_the_module_is_a_persistence_module(tmp_path: Path) -> None:
    env = {"PERSISTENCE_MODULE": "msgledger.ledger.store.apsw", "MSGLEDGER_PATH": str(tmp_path / "l.db")}
    with InfrastructureFactory.construct(env) as factory:
        recorder = factory.application_recorder()
        assert recorder.insert_events([StoredEvent(uuid4(), 1, "topic", b"state")]) == [1]
        assert recorder.max_notification_id() == 1


def test_our_own_events_are_read_and_not_written_through_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        item = new()
        store.append_sync(item)
        recorder = apsw.ApswApplicationRecorder(store, "text")
        [event] = recorder.select_events(item.stream)
        assert (event.topic, event.originator_version) == ("IntentRecorded", 0)
        with pytest.raises(ProgrammingError, match=r"Store\.append"):
            recorder.insert_events([StoredEvent(item.stream, 1, "IntentCommitted", b"{}")])


def test_other_programs_events_touch_no_view_and_hold_only_their_own_stream(tmp_path: Path) -> None:
    with open_store(tmp_path / "l.db") as store:
        recorder = apsw.ApswApplicationRecorder(store)
        recorder.insert_events([StoredEvent(uuid4(), 1, "theirs", b"x")])
        [result] = store.append_sync(new())
        assert result.position == 2
        assert store.read_sync(lambda cursor: cursor.execute("SELECT count(*) FROM things").get) == 1
        assert not store.verify_views()
        assert not store.rebuild().streams - 2
