"""How long do messages take, per channel? A projection over the ledger with the `eventsourcing` library.

    python examples/delivery_times.py ledger.db times.db             follow the ledger until interrupted
    python examples/delivery_times.py ledger.db times.db --once      come up to date, print the table, end

The ledger is a gateway's, which may go on sending meanwhile. `times.db` is ours: our tables beside that library's
record of how far we have come, changed together in one transaction per event. So the process may be killed at any
moment and started again: no message is missed and none is counted twice. Delete `times.db` to begin anew.
"""

from __future__ import annotations

import argparse
import contextlib

from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteCursor, SQLiteDatastore, SQLiteTrackingRecorder
from msgledger.ledger.events import IntentCancelled, IntentCommitted, IntentFailed, IntentRecorded
from msgledger.ledger.store.application import LedgerApplication

A_LONG_TIME_S = 86_400.0
OPEN = "CREATE TABLE IF NOT EXISTS open_messages (id TEXT PRIMARY KEY, channel TEXT NOT NULL, at INTEGER NOT NULL)"
TIMES = """CREATE TABLE IF NOT EXISTS times (
    channel TEXT PRIMARY KEY, recorded INTEGER DEFAULT 0, sent INTEGER DEFAULT 0, unsent INTEGER DEFAULT 0,
    total_ms INTEGER DEFAULT 0, longest_ms INTEGER DEFAULT 0)"""


class Times(SQLiteTrackingRecorder):
    """The view: what is open, and the sums per channel."""

    def __init__(self, datastore: SQLiteDatastore, **more: object) -> None:
        super().__init__(datastore, **more)
        self.create_table_statements += [OPEN, TIMES]

    def recorded(self, id: str, channel: str, at: int, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as c:
            self._insert_tracking(c, tracking)
            c.execute("INSERT INTO open_messages VALUES (?, ?, ?)", (id, channel, at))
            c.execute("INSERT OR IGNORE INTO times (channel) VALUES (?)", (channel,))
            c.execute("UPDATE times SET recorded = recorded + 1 WHERE channel = ?", (channel,))

    def ended(self, id: str, at: int, tracking: Tracking, *, sent: bool) -> None:
        with self.datastore.transaction(commit=True) as c:
            self._insert_tracking(c, tracking)
            channel, began = self._close(c, id)
            took_ms = at - began if sent else 0
            c.execute(
                "UPDATE times SET sent = sent + ?, unsent = unsent + ?, total_ms = total_ms + ?,"
                " longest_ms = max(longest_ms, ?) WHERE channel = ?",
                (sent, not sent, took_ms, took_ms, channel),
            )

    def table(self) -> list[tuple[str, int, int, int, int, int]]:
        with self.datastore.transaction(commit=False) as c:
            c.execute("SELECT channel, recorded, sent, unsent, total_ms, longest_ms FROM times ORDER BY channel")
            return [tuple(row) for row in c.fetchall()]

    @staticmethod
    def _close(c: SQLiteCursor, id: str) -> tuple[str, int]:
        c.execute("SELECT channel, at FROM open_messages WHERE id = ?", (id,))
        channel, began = c.fetchone()
        c.execute("DELETE FROM open_messages WHERE id = ?", (id,))
        return channel, began


class DeliveryTimes(Projection[Times]):
    """What each event does to the view. `originator_id` is the message's id in the ledger."""

    @singledispatchmethod
    def process_event(self, event: object, tracking: Tracking) -> None:
        """All other events: passed, and noted as passed."""
        self.view.insert_tracking(tracking)

    @process_event.register
    def recorded(self, event: IntentRecorded, tracking: Tracking) -> None:
        self.view.recorded(event.originator_id, event.channel, event.at, tracking)

    @process_event.register
    def sent(self, event: IntentCommitted, tracking: Tracking) -> None:
        self.view.ended(event.originator_id, event.at, tracking, sent=True)

    @process_event.register
    def failed(self, event: IntentFailed, tracking: Tracking) -> None:
        self.view.ended(event.originator_id, event.at, tracking, sent=False)

    @process_event.register
    def cancelled(self, event: IntentCancelled, tracking: Tracking) -> None:
        self.view.ended(event.originator_id, event.at, tracking, sent=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ledger", help="a ledger that is there")
    parser.add_argument("times", help="where the sums are kept")
    parser.add_argument("--once", action="store_true", help="end when everything that is there now is counted")
    arguments = parser.parse_args()
    env = {
        "MSGLEDGER_PATH": arguments.ledger,
        "DELIVERYTIMES_PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "DELIVERYTIMES_SQLITE_DBNAME": arguments.times,
    }
    with ProjectionRunner(
        application_class=LedgerApplication, projection_class=DeliveryTimes, view_class=Times, env=env
    ) as runner:
        with contextlib.suppress(KeyboardInterrupt):
            if arguments.once:
                runner.wait(runner.app.recorder.max_notification_id(), timeout=A_LONG_TIME_S)
            else:
                runner.run_forever()
        print(f"{'channel':12} {'recorded':>9} {'sent':>9} {'unsent':>9} {'mean ms':>9} {'longest':>9}")
        for channel, recorded, sent, unsent, total_ms, longest_ms in runner.view.table():
            mean = f"{total_ms / sent:9.1f}" if sent else f"{'-':>9}"
            print(f"{channel:12} {recorded:9} {sent:9} {unsent:9} {mean} {longest_ms:9}")


if __name__ == "__main__":
    main()
