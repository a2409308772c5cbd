"""The gateway of the demo, as a process of its own, so that it can be killed in mid-send.

    python -m msgledger.cli.demo_gateway LEDGER URL SEED

It asks for all messages anew with every start, as an agent would whose turn runs again: producer, run and ordinal make
the same message the same intent. It ends when nothing is owed any more, or with its standard input.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from typing import Final

from ..adapters.http import HttpChannel
from ..adapters.qa import qa_channel
from ..adapters.surface import Lookup
from ..ledger.message import Message, Target
from ..lifecycle.gateway import Gateway

CHANNEL: Final = "qa"
CONVERSATIONS: Final = ("deploys", "alerts", "support", "family")
MESSAGES: Final = 10
"""In each conversation."""
DEADLINE_S: Final = 1.0
PAUSE_S: Final = 0.12
"""Between two messages of a conversation."""
LOOK_EVERY_S: Final = 0.05
WAIT_PART: Final = 0.02


class Hasty(random.Random):
    """Waits after a failure are drawn below a ceiling; here from its lowest part, so that the demo stays short."""

    def random(self) -> float:
        return super().random() * WAIT_PART


def channel(url: str) -> HttpChannel:
    """A platform that does not deduplicate: what is sent twice is there twice. It can be asked what it has."""
    look = Lookup("by_key", can_prove_absence=True, evidence="proved")
    return qa_channel(url, name=CHANNEL, idempotency=None, reconcile=look, deadline_s=DEADLINE_S, settle_s=0.0)


def text_of(conversation: str, number: int) -> str:
    return f"{conversation} {number} of {MESSAGES}"


async def serve(ledger: str, url: str, seed: int) -> None:
    gateway = Gateway(ledger, [channel(url)], chance=Hasty(seed))
    async with gateway:
        await asyncio.gather(*(_talk(gateway, conversation) for conversation in CONVERSATIONS))
        while await gateway.owed():
            await asyncio.sleep(LOOK_EVERY_S)


async def _talk(gateway: Gateway, conversation: str) -> None:
    """The messages of one conversation, one after the other."""
    for number in range(1, MESSAGES + 1):
        message = Message.text(text_of(conversation, number), to=Target.group(CHANNEL, conversation))
        delivery = await gateway.send(message, producer="demo", run=conversation, ordinal=number)
        if not delivery.repeated:
            await asyncio.sleep(PAUSE_S)


def _end_with_stdin() -> None:
    """Whoever started this process holds its standard input; when they die, so does it."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def main() -> None:
    ledger, url, seed = sys.argv[1:]
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    asyncio.run(serve(ledger, url, int(seed)))


if __name__ == "__main__":
    main()
