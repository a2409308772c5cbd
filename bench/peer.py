"""A ledger that updates a row in place, as chat gateways keep their send queue: the peer that ours is measured by.

One row a message that is kept: inserted as pending and claimed as sending in one commit, then updated to sent with its
receipt in another. A writer thread with group commit, the same bridge to the event loop and the same settings of
SQLite as ours, so that what differs is the ledger. It knows no history, no lanes, no leases and no digests.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from pathlib import Path

from msgledger import Message, Target
from msgledger.ledger import limits
from msgledger.ledger.codec import to_json
from msgledger.ledger.store.clock import new_id
from msgledger.ledger.store.connection import connect, use_wal
from msgledger.ledger.store.waiting import Done, Ticket, deliver, here

from .drive import Round, drive
from .ours import CHANNEL, on_disk

TABLES = (
    """CREATE TABLE queue (
    id TEXT PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    target TEXT NOT NULL,
    payload TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    sending_at INTEGER,
    platform_id TEXT,
    receipt TEXT,
    last_error TEXT
) STRICT""",
    "CREATE INDEX queue_status ON queue(status, created_at)",
)
RECORD = (
    "INSERT INTO queue (id, idempotency_key, channel, account, target, payload, status, created_at, updated_at)"
    " VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?)"
)
CLAIM = (
    "UPDATE queue SET status = 'sending', attempts = attempts + 1, sending_at = ?, updated_at = ?"
    " WHERE id = ? AND status = 'pending'"
)
SENT = (
    "UPDATE queue SET status = 'sent', platform_id = ?, receipt = ?, updated_at = ? WHERE id = ? AND status = 'sending'"
)
Row = tuple[object, ...]
Job = tuple[Ticket, list[tuple[str, Row]]]
"""Who waits, and the statements that share a transaction."""


class UpdateLedger:
    """Use it with `with`; `send` from the event loop."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._connection = connect(path, wait_ms=5_000).connection
        use_wal(self._connection, path, 5_000)
        for text in TABLES:
            self._connection.execute(text)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="update ledger", daemon=True)
        self._ids = itertools.count(1)

    def __enter__(self) -> UpdateLedger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._connection.close()

    async def send(self, conversation: str, text: str) -> bool:
        """Durable before it leaves, and again when it has arrived."""
        now = time.time_ns() // 1_000_000
        id = new_id(now)
        payload = to_json(Message.text(text, to=Target.group(CHANNEL, conversation))).decode()
        row = (id, id, CHANNEL, "default", conversation, payload, now, now)
        await self._write([(RECORD, row), (CLAIM, (now, now, id))])
        async with asyncio.timeout(30):
            platform_id = await self._platform()
        now = time.time_ns() // 1_000_000
        receipt = to_json({"parts": [{"index": 0, "platform_id": platform_id}], "sent_at": now}).decode()
        await self._write([(SENT, (platform_id, receipt, now, id))])
        return True

    async def _platform(self) -> str:
        return f"{next(self._ids):010d}"

    def _write(self, statements: list[tuple[str, Row]]) -> asyncio.Future[None]:
        ticket = here()
        self._jobs.put((ticket, statements))
        return ticket.future  # type: ignore[return-value]

    def _run(self) -> None:
        """What waits shares a transaction, and each statement runs once for all of them."""
        cursor = self._connection.cursor()
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while len(jobs) < limits.WRITER_BATCH_ITEMS and not self._jobs.empty():
                more = self._jobs.get()
                if more is None:
                    self._jobs.put(None)
                    break
                jobs.append(more)
            rows: dict[str, list[Row]] = {RECORD: [], CLAIM: [], SENT: []}
            for _, statements in jobs:
                for text, row in statements:
                    rows[text].append(row)
            error: Exception | None = None
            try:
                cursor.execute("BEGIN IMMEDIATE")
                for text, many in rows.items():
                    if many:
                        cursor.executemany(text, many)
                cursor.execute("COMMIT")
            except Exception as failed:
                error = failed
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
            deliver([Done(ticket, None, error) for ticket, _ in jobs])


def measure(folder: Path, senders: int, seconds: float) -> tuple[Round, float]:
    """A round over a fresh ledger, and its bytes on disk for each message."""
    path = folder / "update.db"

    async def work() -> Round:
        with UpdateLedger(path) as ledger:
            return await drive(ledger.send, senders, seconds)

    found = asyncio.run(work())
    return found, on_disk(path) / found.messages
