"""A gateway of its own process on a Telegram server: it answers what comes, until so many messages are done.

    python telegram_process.py LEDGER URL POLICY DONE OFFSET     (the token in TELEGRAM_TOKEN)

It ends once so many turns are completed and the server may forget everything before OFFSET.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgledger
from msgledger.adapters.telegram import TelegramChannel
from msgspec.structs import replace

ENDS_S = 40.0


def ended(cursor: Any, done: int, offset: int) -> bool:
    count = "SELECT count(*) FROM inbound WHERE status = 'completed'"
    reached = "SELECT coalesce(max(CAST(cursor AS INTEGER)), 0) FROM cursors"
    owed = "SELECT count(*) FROM obligations WHERE status <> 'unknown_after_send'"
    [(completed,)], [(at,)], [(left,)] = (cursor.execute(text).fetchall() for text in (count, reached, owed))
    return completed >= done and at >= offset and left == 0


async def main(ledger: Path, url: str, policy: str, done: int, offset: int) -> None:
    async def handler(inbound: Any) -> None:
        await inbound.reply(f"re: {inbound.message.text}")

    channel = TelegramChannel(os.environ["TELEGRAM_TOKEN"], base_url=url)
    adapter: Any = channel.adapter
    adapter.poll_wait_s = 0.2  # nobody waits for a poll of a process that was killed
    adapter.capabilities = replace(adapter.capabilities, deadline_s=1.0, settle_s=0.0)  # nor long for its lane
    async with msgledger.open(ledger, [channel], on_message=handler, ack=policy) as gateway:
        async with asyncio.timeout(ENDS_S):
            while not await gateway._opened().read(ended, done, offset):
                await asyncio.sleep(0.01)


if __name__ == "__main__":
    path, url, policy, done, offset = sys.argv[1:]
    asyncio.run(main(Path(path), url, policy, int(done), int(offset)))
