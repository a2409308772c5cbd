"""A gateway of its own process that polls a platform made of files, and answers what came. Killed by the test.

The platform remembers what it was told: an update is delivered again until an offset beyond it was asked for. Every
poll and every message that becomes visible is a line in its books, written before anything goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgledger
from msgledger import Accepted, Capabilities, Idempotency, Ignored, Incoming, Message, SessionSource, Target
from msgledger.adapters.exchange import Answer, Request
from msgledger.adapters.polling import Polling
from msgledger.adapters.receiving import Arrival, Polled
from msgledger.ledger.message import Body
from msgledger.projections.inbound import turn_heads

ENDS_S = 30.0


class Books:
    """What the platform has, as lines of JSON that a crash cannot take back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, book: str, **line: Any) -> None:
        with (self.folder / book).open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self, book: str) -> list[dict[str, Any]]:
        path = self.folder / book
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Updates:
    """Sans-I/O: numbers below the offset are forgotten."""

    poll_acknowledges = True

    def poll(self, cursor: str | None, wait_s: float) -> Request:
        return Request("GET", f"/{cursor or 0}")

    def parse_poll(self, cursor: str | None, answer: Answer) -> Polled:
        updates = json.loads(answer.body)
        return Polled(tuple(Arrival(update, str(update["n"] + 1)) for update in updates))


def normalize(event: Any) -> Incoming | Ignored:
    target = Target.group("plat", event["chat"])
    message = Message(target, Body(event["text"]), direction="inbound", id=f"m{event['n']}", sender="ann")
    return Incoming(message=message, source=SessionSource("plat", "group", chat=event["chat"], sender="ann"))


async def main(folder: Path, policy: str) -> None:
    books = Books(folder)
    updates = json.loads((folder / "updates.json").read_text())

    async def deliver(unit: Any, context: Any) -> Accepted:
        for line in books.read("visible"):
            if line["key"] == context.provider_key:
                return Accepted(line["id"], duplicate=True)
        id = f"v{len(books.read('visible'))}"
        books.write("visible", key=context.provider_key, id=id, text=unit.text, chat=context.target.id)
        return Accepted(id)

    async def ask(request: Request, wait_s: float) -> Answer:
        offset = int(request.path[1:])
        books.write("polls", offset=offset)
        waiting = [update for update in updates if update["n"] >= offset]
        if not waiting:
            await asyncio.Event().wait()
        return Answer(200, {}, json.dumps(waiting[:2]).encode())

    capabilities = Capabilities(
        idempotency=Idempotency("client_key", "key", 3600.0, evidence="documented"), deadline_s=2.0, settle_s=0.0
    )
    plat: Any = msgledger.CallableChannel(
        "plat",
        deliver,
        capabilities=capabilities,
        normalize=normalize,
        dedupe_key=lambda event: str(event["n"]),
    )

    async def receive(intake: Any) -> None:
        await Polling(Updates(), ask, intake, name="plat").run()

    plat.receive = receive

    async def handler(inbound: Any) -> None:
        books.write("runs", text=inbound.message.text, attempt=inbound.attempt)
        await inbound.reply(f"re: {inbound.message.text}")

    async with msgledger.open(folder / "ledger.db", [plat], on_message=handler, ack=policy) as gateway:
        async with asyncio.timeout(ENDS_S):
            while True:
                offsets = [line["offset"] for line in books.read("polls")]
                store = gateway._opened()
                idle = not await store.read(turn_heads) and not await gateway.owed(limit=1)
                if idle and max(offsets, default=0) > updates[-1]["n"]:
                    return
                await asyncio.sleep(0.005)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
