"""The cases that `eventsourcing` ships for projections and their runners, over our persistence module.

Those for tagged decisions (`eventsourcing.dcb`) are for another kind of store, without streams.
"""

from __future__ import annotations

from eventsourcing.persistence import Tracking
from eventsourcing.tests import projection as cases
from msgledger.ledger.store import apsw
from msgledger.ledger.store.sql import Cursor

from .kit import ByEnvironment, OnADatastore

ADD = "UPDATE counters SET created = created + ?, subsequent = subsequent + ?"


class Counters(apsw.ApswTrackingRecorder, cases.EventCountersView):
    """A view with a table of its own in the same file."""

    tables = (
        "CREATE TABLE IF NOT EXISTS counters (created INTEGER NOT NULL, subsequent INTEGER NOT NULL) STRICT",
        "INSERT INTO counters SELECT 0, 0 WHERE NOT EXISTS (SELECT 1 FROM counters)",
    )

    def get_created_event_counter(self) -> int:
        return self.datastore.read(_counted)[0]

    def get_subsequent_event_counter(self) -> int:
        return self.datastore.read(_counted)[1]

    def incr_created_event_counter(self, tracking: Tracking) -> None:
        self.record(tracking, lambda cursor: cursor.execute(ADD, (1, 0)))

    def incr_subsequent_event_counter(self, tracking: Tracking) -> None:
        self.record(tracking, lambda cursor: cursor.execute(ADD, (0, 1)))


def _counted(cursor: Cursor) -> tuple[int, int]:
    return cursor.execute("SELECT created, subsequent FROM counters").get


class TestView(OnADatastore, cases.EventCountersViewTestCase):
    def construct_event_counters_view(self) -> Counters:
        view = Counters(self.datastore)
        view.create_table()
        return view


class TestProjection(ByEnvironment, cases.AggregateEventCountersProjectionTestCase):
    """Application and view are two factories on one file."""

    view_class = Counters


class TestEventSourcedProjection(ByEnvironment, cases.EventSourcedProjectionTestCase):
    """The projection has a file of its own: its events in the sequence that it follows would be projected in turn."""

    def setUp(self) -> None:
        super().setUp()
        self.env["COUNTERS_MSGLEDGER_PATH"] = str(self.folder / "counters.db")
