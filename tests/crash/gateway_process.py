"""A gateway in a process of its own, to be killed. What it is to do is a `Life`, as JSON.

    python gateway_process.py LIFE         one life
    python gateway_process.py --nursery    a life for each line of standard input, forked before anything is opened:
                                           prints its pid, and how it ended (as `subprocess` counts) once it has

Every message has a key, so that the same life lived again records none twice. `own` is a gateway's own async function,
which appends what it accepts to a file: none of our code, and a record that stands whoever dies.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

import msgledger
import msgspec
from msgledger import Attachment, Message, RenderedUnit, Reply, SendContext, Target
from msgledger.adapters import driver
from msgledger.adapters.matrix import MATRIX, MatrixChannel
from msgledger.adapters.qa import qa_channel
from msgledger.adapters.surface import Capabilities, Change, Channel, Lookup, TextLimit
from msgledger.ledger.store import crash
from msgledger.lifecycle.gateway import Gateway

LIFE_MAX_S = 60
"""No life is longer, whatever became of the test."""
TEXT_MAX = 200
PART_CHARS = 150


class Way(msgspec.Struct, kw_only=True):
    """The channel. `kind` is `qa`, `own` or `matrix`, `at` its URL or file; what the platform can do, and how fast."""

    kind: str
    at: str
    key: bool = True
    look_up: bool = True
    ready: bool = True
    deadline_s: float = 1.0
    settle_s: float = 0.0
    pause_s: float = 0.0
    """How long `own` thinks before it writes and before it answers, at most."""
    user: str = ""
    token: str = ""


class Op(msgspec.Struct, kw_only=True):
    """One thing to do. Those of one place are done one after the other, the places all at once."""

    key: str
    place: str
    text: str
    do: str = "send"
    of: str = ""
    """The key of the message that is edited or deleted; `of_text` its text."""
    of_text: str = ""
    parts: int = 1
    copies: bool = False
    """Whether a marked copy is allowed."""
    reply_to: str | None = None
    thread: str | None = None
    format: str = "plain"
    files: list[str] = []
    """Paths; the files are named after the key."""

    @property
    def names(self) -> list[str]:
        return [f"{self.key}.{number}.bin" for number in range(len(self.files))]


class Crash(msgspec.Struct, kw_only=True):
    """Where to die: at the `hits`-th passage of the point, counted from when the gateway is `open` or does its `ops`.
    Another signal than SIGKILL makes it a pause."""

    point: str
    hits: int = 1
    since: str = "ops"
    signal: int = signal.SIGKILL


class Life(msgspec.Struct, kw_only=True):
    ledger: str
    way: Way
    said: str
    """A file for what the caller was told: a JSON line for each op, written before the next one."""
    first: list[Op] = []
    """Done before the ops, and before a crash is armed."""
    ops: list[Op] = []
    crash: Crash | None = None
    then: Crash | None = None
    """A second one, armed with the first."""
    lock_wait_s: float = 5.0
    settles: bool = True
    """What is owed is finished before the ops begin."""
    wait: bool = True
    """Each op waits for its outcome, and the life for that of everything owed; else only until it is durable."""
    stays: bool = False
    """It goes on until SIGTERM, and closes then."""
    name: str = ""
    """What the kernel calls the process."""


class Hurried(random.Random):
    """Waits are drawn from a narrow range below a tenth of their ceiling, so that a test ends and steps stay apart."""

    def random(self) -> float:
        return 0.03 + super().random() * 0.07


def own_channel(way: Way) -> Channel:
    """What a gateway may already have: a function that sends, and one that reads the history."""
    file = os.open(way.at, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def think() -> None:
        if way.pause_s:
            await asyncio.sleep(random.random() * way.pause_s)

    async def deliver(unit: RenderedUnit, context: SendContext) -> str:
        await think()
        line = {
            "action": context.action,
            "key": context.provider_key,
            "text": unit.text,
            "place": context.target.id,
            "thread": context.target.thread,
            "reply_to": context.reply_to,
            "format": unit.format,
            "id": context.of_platform_id or f"m{context.provider_key}",
        }
        os.write(file, json.dumps(line).encode() + b"\n")
        await think()
        return line["id"]

    async def reconcile(unit: RenderedUnit, context: SendContext) -> msgledger.Sent | msgledger.NotSent:
        with open(way.at) as lines:
            for line in map(json.loads, lines):
                if line["key"] == context.provider_key:
                    return msgledger.Sent(msgledger.Accepted(line["id"]))
        return msgledger.NotSent()

    able = Capabilities(
        text=TextLimit(TEXT_MAX, chunking=True),
        reconcile=Lookup("by_key", can_prove_absence=True) if way.look_up else None,
        edit=Change(),
        delete=Change(),
        threads=True,
        deadline_s=way.deadline_s,
        settle_s=way.settle_s,
    )
    look = reconcile if way.look_up else None
    return msgledger.CallableChannel("own", deliver, reconcile=look, capabilities=able, ready=way.ready)


def channel_of(way: Way) -> Channel:
    if way.kind == "own":
        return own_channel(way)
    if way.kind == "matrix":
        channel = MatrixChannel(way.at, user_id=way.user, token=way.token)
        channel._matrix.capabilities = msgspec.structs.replace(  # shorter waits, so that a test ends
            MATRIX, deadline_s=way.deadline_s, settle_s=way.settle_s
        )
        return channel
    without = {} if way.key else {"idempotency": None}
    without |= {} if way.look_up else {"reconcile": None}
    return qa_channel(
        way.at,
        deadline_s=way.deadline_s,
        settle_s=way.settle_s,
        text=TextLimit(TEXT_MAX, chunking=True),
        **without,
    )


def message_of(op: Op, channel: str) -> Message:
    text = op.text
    if op.parts > 1:
        text = "\n\n".join(f"{op.text}.{part} ".ljust(PART_CHARS, "~") for part in range(op.parts))
    more: dict[str, Any] = {} if op.reply_to is None else {"relation": Reply(reply_to=op.reply_to)}
    if op.files:
        more["attachments"] = tuple(
            Attachment.of_file(path, name=name) for path, name in zip(op.files, op.names, strict=True)
        )
    return Message.text(text, to=Target.group(channel, op.place, thread=op.thread), format=op.format, **more)


def arm(life: Life, since: str) -> None:
    """Every module's `crash_point` from here on; the environment could only say it before the import."""
    armed = [at for at in (life.crash, life.then) if at is not None and at.since == since]
    if not armed:
        return
    if unknown := {at.point for at in armed} - set(crash.POINTS):
        raise ValueError(f"{unknown} are no crash points")
    left = [at.hits for at in armed]

    def passed(point: str) -> None:
        for number, at in enumerate(armed):
            if point == at.point:
                left[number] -= 1
                if left[number] == 0:
                    os.kill(os.getpid(), at.signal)

    for name, module in list(sys.modules.items()):
        if name.startswith("msgledger.") and "crash_point" in vars(module):
            vars(module)["crash_point"] = passed


async def settled(gateway: Gateway) -> None:
    """Returns once nothing is owed but what waits for a person."""
    while any(row.hold != "unresolved" for row in await gateway.owed()):
        await asyncio.sleep(0.01)


async def done(gateway: Gateway, op: Op, life: Life, said: int) -> None:
    """Do it, and tell what the caller was told."""
    name = life.way.kind
    more = {
        "key": op.key,
        "on_unknown": "at_least_once" if op.copies else "hold",
        "max_attempts": 100,
        "timeout_s": LIFE_MAX_S / 2,
        "wait": life.wait,
    }
    if op.do == "send":
        delivery = await gateway.send(message_of(op, name), **more)
    else:
        first = Op(key=op.of, place=op.place, text=op.of_text)
        of = await gateway.send(message_of(first, name), **{**more, "key": op.of})  # the one that stands
        change = gateway.delete(of, **more) if op.do == "delete" else gateway.edit(of, message_of(op, name), **more)
        delivery = await change
    ids = [] if delivery.receipt is None else [part.platform_id for part in delivery.receipt.parts]
    line = {"key": op.key, "intent": delivery.intent, "status": delivery.status, "ids": ids}
    os.write(said, json.dumps(line).encode() + b"\n")


async def work(gateway: Gateway, life: Life, said: int) -> None:
    async def converse(ops: list[Op]) -> None:
        for op in ops:
            await done(gateway, op, life, said)

    await converse(life.first)
    arm(life, "ops")
    places = groupby(sorted(life.ops, key=lambda op: op.place), key=lambda op: op.place)
    await asyncio.gather(*[converse(list(ops)) for _, ops in places])


@asynccontextmanager
async def ended_by_term(stays: bool) -> AsyncIterator[asyncio.Event]:
    """An event that SIGTERM sets, where the life is one that stays."""
    term = asyncio.Event()
    if stays:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, term.set)
    yield term


async def live(life: Life) -> None:
    said = os.open(life.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if life.name:
        with open("/proc/self/comm", "w") as comm:
            comm.write(life.name)
    channel = channel_of(life.way)
    async with ended_by_term(life.stays) as term:
        async with Gateway(life.ledger, [channel], lock_wait_s=life.lock_wait_s, chance=Hurried()) as gateway:
            arm(life, "open")  # before anything was awaited: the dispatcher has not looked yet
            if life.settles:
                await settled(gateway)
            working = asyncio.create_task(work(gateway, life, said))
            if life.stays:
                await term.wait()
            else:
                await working
                if life.wait:
                    await settled(gateway)
        await asyncio.gather(working, return_exceptions=life.stays)


def bear(line: str) -> int:
    """Fork, and be that life in the child."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(LIFE_MAX_S)
        life = msgspec.json.decode(line, type=Life)
        log = os.open(life.said + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        asyncio.run(live(life))
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def nursery() -> None:
    driver._tls()  # read once for all
    for line in sys.stdin:
        pid = bear(line)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--nursery":
        nursery()
    else:
        signal.alarm(LIFE_MAX_S)
        asyncio.run(live(msgspec.json.decode(sys.argv[1], type=Life)))
