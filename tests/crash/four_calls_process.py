"""A gateway that sends by itself, in a process of its own, and dies where it is told to.

    python four_calls_process.py LEDGER PLATFORM WAY DIE_AT

PLATFORM is a file to which it appends each message that it makes visible: its own send. WAY is `calls` or `prepared`;
DIE_AT a step, or `never`. It prints the id of the intent as soon as it knows it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from msgledger import External, Message, Target
from msgledger.lifecycle.gateway import Gateway

LIFE_MAX_S = 60
STEPS = ("opened", "recorded", "attempting", "requested", "delivered", "never")
TARGET = Target.group("own", "room-1")
DEADLINE_S, SETTLE_S = 0.5, 0.2
WORD_S = 20.0
"""The deadline of a life whose word has to come in time, however busy the machine is."""


def at(step: str) -> None:
    if step == sys.argv[4]:
        os.kill(os.getpid(), signal.SIGKILL)


def own_send(text: str) -> str:
    """The gateway's I/O: durable at once, as if a platform had it."""
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)
    return "m1"


async def calls(gateway: Gateway) -> None:
    intent = await gateway.record(Message.text("hello", to=TARGET), key="k1")
    print(intent.intent, flush=True)
    at("recorded")
    attempt = await gateway.attempting(intent)
    at("attempting")
    id = own_send("hello")
    at("requested")
    await gateway.delivered(attempt, id)
    at("delivered")


async def prepared(gateway: Gateway) -> None:
    async def deliver(payload: str) -> str:
        at("attempting")
        id = own_send(payload)
        at("requested")
        return id

    turn = gateway.bridge("own", deliver).turn(run="k1")
    await turn.run_prepared(lambda: deliver("hello"), record=Message.text("hello", to=TARGET))
    at("delivered")


async def main() -> None:
    patience_s = WORD_S if sys.argv[4] == "delivered" else DEADLINE_S
    channel = External("own", deadline_s=patience_s, settle_s=SETTLE_S)
    async with Gateway(Path(sys.argv[1]), [channel]) as gateway:
        at("opened")
        await (calls(gateway) if sys.argv[3] == "calls" else prepared(gateway))


if __name__ == "__main__":
    signal.alarm(LIFE_MAX_S)
    asyncio.run(main())
