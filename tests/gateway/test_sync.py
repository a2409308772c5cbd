"""The synchronous face: the same words for scripts, with a loop of its own."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path
from typing import Any

import msgledger.sync
import pytest
from msgledger import (
    Accepted,
    Body,
    CallableChannel,
    Incoming,
    Message,
    NotPossible,
    SessionSource,
    Status,
    Target,
)
from msgledger.adapters.surface import Capabilities, Change
from msgledger.ledger.errors import InvalidConfig, NotALedger

HERE = Target.group("plat", "room-4711")


def interrupt_after(seconds: float) -> None:
    """Ctrl-C for the main thread."""
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGINT)).start()


class Taken:
    """A channel that takes everything, at its own pace."""

    def __init__(self, took_s: float = 0.0, *, ready: bool = True) -> None:
        self.texts: list[str] = []
        self.took_s = took_s
        self.ready = ready
        able = Capabilities(edit=Change(), delete=Change(), deadline_s=5.0)
        self.channel = CallableChannel("plat", self.deliver, capabilities=able, ready=lambda: self.ready)

    async def deliver(self, unit: Any, context: Any) -> Accepted:
        await asyncio.sleep(self.took_s)
        self.texts.append(unit.text or context.action)
        return Accepted(f"m{len(self.texts)}")


def test_a_script_sends_edits_deletes_and_reads(tmp_path: Path) -> None:
    """REL-5, SC-67: the same gateway as the asynchronous one."""
    taken = Taken()
    with msgledger.sync.open(tmp_path / "ledger.db", channels=[taken.channel]) as gateway:
        sent = gateway.send(Message.text("first", to=HERE), key="a-key-of-mine")
        assert (sent.status, sent.receipt is not None) == (Status.SENT, True)
        assert gateway.edit(sent, Message.text("second", to=HERE)).status is Status.SENT
        assert gateway.delete(sent).status is Status.SENT
        assert gateway.wait(sent).status is Status.SENT
        assert gateway.intent(sent.intent).key == "a-key-of-mine"
        assert len(gateway.intents(target=HERE)) == 3
        assert gateway.owed() == []
        assert gateway.by_platform_id("plat", "m1")[-1] == sent.intent
    assert taken.texts == ["first", "second", "delete"]


def test_a_script_reads_a_conversation(tmp_path: Path) -> None:
    """CT-9, SC-67: what the asynchronous one says, page by page."""
    path = tmp_path / "ledger.db"

    async def talk() -> None:
        def normalize(event: Any) -> Incoming:
            message = Message(HERE, Body(event["text"]), direction="inbound", id=event["id"])
            return Incoming(message=message, source=SessionSource("plat", "group", chat="room-4711"))

        channel = CallableChannel("plat", Taken().deliver, normalize=normalize, dedupe_key=lambda event: event["id"])
        async with msgledger.open(path, channels=[channel]) as gateway:
            for id in ("a", "b"):
                async with gateway.receiving({"id": id, "text": f"ask {id}"}, channel="plat") as inbound:
                    await inbound.reply(f"answer {id}")

    asyncio.run(talk())
    with msgledger.sync.reading(path) as ledger:
        entries = ledger.history("agent:main:plat:group:room-4711")
        assert [entry.text for entry in entries] == ["ask a", "answer a", "ask b", "answer b"]
        assert ledger.history("agent:main:plat:group:room-4711", limit=1, before=entries[-1].position) == entries[2:3]


def test_what_is_owed_can_be_taken_back(tmp_path: Path) -> None:
    """GAP-6: `cancel` is there too."""
    taken = Taken(ready=False)
    with msgledger.sync.open(tmp_path / "ledger.db", channels=[taken.channel]) as gateway:
        owed = gateway.send(Message.text("first", to=HERE), wait=False)
        assert [row.id for row in gateway.owed()] == [owed.intent]
        assert gateway.cancel(owed, "never mind").status is Status.CANCELLED
    assert taken.texts == []


def send_and_be_interrupted(ledger: Path, taken: Taken, *after_s: float) -> None:
    with msgledger.sync.open(ledger, channels=[taken.channel]) as gateway:
        for seconds in after_s:
            interrupt_after(seconds)
        gateway.send(Message.text("on its way", to=HERE), key="a-key-of-mine")


def test_an_interrupt_ends_the_waiting_and_not_the_message(tmp_path: Path) -> None:
    """FAIL-8, SND-7: Ctrl-C while it is on its way; closing lets it end, and it is recorded."""
    taken = Taken(took_s=0.5)
    ledger = tmp_path / "ledger.db"
    with pytest.raises(KeyboardInterrupt):
        send_and_be_interrupted(ledger, taken, 0.2)
    assert taken.texts == ["on its way"]
    with msgledger.sync.open(ledger, channels=[taken.channel]) as gateway:
        assert gateway.send(Message.text("on its way", to=HERE), key="a-key-of-mine").status is Status.SENT
    assert taken.texts == ["on its way"]


def test_a_second_interrupt_gives_up_the_attempt_and_leaves_it_in_doubt(tmp_path: Path) -> None:
    """FAIL-8, UNK-1: the process ends soon; the next one knows that it may have arrived."""
    taken = Taken(took_s=30.0)
    ledger = tmp_path / "ledger.db"
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        send_and_be_interrupted(ledger, taken, 0.2, 0.5)
    assert time.monotonic() - began < 4
    with msgledger.sync.open(ledger, channels=[Taken(ready=False).channel]) as gateway:
        for _ in range(100):
            [row] = gateway.owed()
            if row.status == "unknown_after_send":
                break
            time.sleep(0.02)
        assert row.status == "unknown_after_send"


def test_several_threads_share_it(tmp_path: Path) -> None:
    """G6: each send waits for its own."""
    taken = Taken()
    with msgledger.sync.open(tmp_path / "ledger.db", channels=[taken.channel]) as gateway:
        threads = [
            threading.Thread(target=gateway.send, args=(Message.text(f"{number}", to=HERE),)) for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken.texts) == [f"{number}" for number in range(8)]


def test_it_says_when_it_cannot_be_used(tmp_path: Path) -> None:
    """SND-1: before, after, twice, and from inside its own loop; each an error and no hang."""
    taken = Taken()
    gateway = msgledger.sync.open(tmp_path / "ledger.db", channels=[taken.channel])
    with pytest.raises(NotPossible, match="not open"):
        gateway.owed()
    inner: list[BaseException] = []

    async def calls_back(unit: Any, context: Any) -> Accepted:
        try:
            gateway.owed()
        except NotPossible as error:
            inner.append(error)
        return Accepted("m1")

    taken.channel._deliver = calls_back
    with gateway:
        with pytest.raises(NotPossible, match="open already"):
            gateway.__enter__()
        assert gateway.send(Message.text("x", to=HERE)).status is Status.SENT
    assert len(inner) == 1
    gateway.close()
    with pytest.raises(NotPossible, match="not open"):
        gateway.owed()


def test_a_ledger_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    """OB-12: the error gets through."""
    (tmp_path / "no-ledger.sqlite").write_bytes(b"something else entirely, and long enough to be looked at" * 20)
    before = threading.active_count()
    with pytest.raises(NotALedger), msgledger.sync.open(tmp_path / "no-ledger.sqlite"):
        pass
    assert threading.active_count() == before
    with pytest.raises(InvalidConfig):
        msgledger.sync.open(tmp_path / "ledger.db", channels=[Taken().channel, Taken().channel])
