"""A ledger that updates a row in place, as chat gateways keep their send queue: the peer that ours is measured by.

One row a message that is kept: inserted as pending and claimed as sending in one commit, then updated to sent with its
receipt in another. It knows no history, no lanes, no leases and no digests.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from msgledger import Message, Target
from msgledger.ledger.codec import to_json
from msgledger.ledger.store.clock import new_id

from .drive import Round, drive
from .grouped import Grouped
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


class UpdateLedger:
    """`send` from the event loop, while its thread runs."""

    def __init__(self, thread: Grouped) -> None:
        self._write = thread.write
        self._ids = itertools.count(1)

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


def measure(folder: Path, senders: int, seconds: float) -> tuple[Round, float]:
    """A round over a fresh ledger, and its bytes on disk for each message."""
    path = folder / "update.db"

    async def work() -> Round:
        with Grouped(path, TABLES) as thread:
            return await drive(UpdateLedger(thread).send, senders, seconds)

    found = asyncio.run(work())
    return found, on_disk(path) / found.messages
