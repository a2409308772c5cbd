"""The cases that `eventsourcing` ships for recorders, over ours, with ids as UUIDs and as text."""

from __future__ import annotations

from uuid import uuid4

from eventsourcing.tests import persistence as cases
from msgledger.ledger.store import apsw

from .kit import OnADatastore


class AsText:
    """The same with ids that are text."""

    id_type = "text"

    def new_originator_id(self) -> str:
        return f"order-{uuid4()}"


class TestAggregateRecorder(OnADatastore, cases.AggregateRecorderTestCase):
    def create_recorder(self) -> apsw.ApswAggregateRecorder:
        return apsw.ApswAggregateRecorder(self.datastore)


class TestAggregateRecorderWithText(AsText, TestAggregateRecorder):
    pass


class TestSnapshotRecorder(OnADatastore, cases.AggregateRecorderTestCase):
    def create_recorder(self) -> apsw.ApswSnapshotRecorder:
        recorder = apsw.ApswSnapshotRecorder(self.datastore)
        recorder.create_table()
        return recorder


class TestApplicationRecorder(OnADatastore, cases.ApplicationRecorderTestCase):
    def create_recorder(self) -> apsw.ApswApplicationRecorder:
        return apsw.ApswApplicationRecorder(self.datastore)

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestApplicationRecorderWithText(AsText, TestApplicationRecorder):
    pass


class TestNonInterleavingPositions(OnADatastore, cases.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> apsw.ApswApplicationRecorder:
        return apsw.ApswApplicationRecorder(self.datastore)


class TestTrackingRecorder(OnADatastore, cases.TrackingRecorderTestCase):
    def create_recorder(self) -> apsw.ApswTrackingRecorder:
        return apsw.ApswTrackingRecorder(self.datastore)


class TestProcessRecorder(OnADatastore, cases.ProcessRecorderTestCase):
    def create_recorder(self) -> apsw.ApswProcessRecorder:
        return apsw.ApswProcessRecorder(self.datastore)


class TestProcessRecorderAsApplicationRecorder(TestApplicationRecorder):
    def create_recorder(self) -> apsw.ApswProcessRecorder:
        return apsw.ApswProcessRecorder(self.datastore)


class TestProcessRecorderAsTrackingRecorder(TestTrackingRecorder):
    def create_recorder(self) -> apsw.ApswProcessRecorder:
        return apsw.ApswProcessRecorder(self.datastore)
