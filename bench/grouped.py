"""The thread that the ledgers measured beside ours share: what waits is written in one transaction, as ours does it.

The same bridge to the event loop, the same settings of SQLite; so what differs is what is written.
"""

from __future__ import annotations

import queue
import threading
from asyncio import Future
from collections.abc import Sequence
from pathlib import Path

from msgledger.ledger import limits
from msgledger.ledger.store.connection import connect, use_wal
from msgledger.ledger.store.waiting import Done, Ticket, deliver, here

Row = tuple[object, ...]
Job = tuple[Ticket, list[tuple[str, Row]]]
"""Who waits, and the statements that share a transaction."""


class Grouped:
    """Use it with `with`; `write` from the event loop."""

    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        path.touch()
        self._connection = connect(path, wait_ms=5_000).connection
        use_wal(self._connection, path, 5_000)
        for text in tables:
            self._connection.execute(text)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="grouped", daemon=True)

    def __enter__(self) -> Grouped:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._connection.close()

    def write(self, statements: list[tuple[str, Row]]) -> Future[None]:
        ticket = here()
        self._jobs.put((ticket, statements))
        return ticket.future  # type: ignore[return-value]

    def _run(self) -> None:
        """Each statement runs once for all who wait, in the order in which the statements were first asked for."""
        cursor = self._connection.cursor()
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while len(jobs) < limits.WRITER_BATCH_ITEMS and not self._jobs.empty():
                more = self._jobs.get()
                if more is None:
                    self._jobs.put(None)
                    break
                jobs.append(more)
            rows: dict[str, list[Row]] = {}
            for _, statements in jobs:
                for text, row in statements:
                    rows.setdefault(text, []).append(row)
            error: Exception | None = None
            try:
                cursor.execute("BEGIN IMMEDIATE")
                for text, many in rows.items():
                    cursor.executemany(text, many)
                cursor.execute("COMMIT")
            except Exception as failed:
                error = failed
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
            deliver([Done(ticket, None, error) for ticket, _ in jobs])
