"""The socket: everything answered once, acknowledged after its point, and a socket that breaks is opened again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgledger
import pytest
from msgledger.adapters.http import HttpChannel
from msgledger.adapters.qa import QaAdapter
from msgledger.adapters.qa_platform import QaPlatform
from msgledger.adapters.receiving import Arrival, Receiver, Streams
from msgledger.adapters.websocket import Streaming
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.limits import POLL_REFUSED_S
from websockets.asyncio.server import serve

from .driver_kit import LOCKED, Core, EagerClock, Running
from .test_qa_inbound import TOKEN, Echo, answers, said, until


def channel(platform: QaPlatform, **more: Any) -> HttpChannel:
    return HttpChannel(QaAdapter(platform.url, token=TOKEN, socket=True, **more))


def test_answered_once_over_broken_sockets_and_a_restart(tmp_path: Path) -> None:
    """CH-17, SC-55, RCV-3: repeated, shuffled, cut off in between, and pinged; all of it acknowledged."""
    echo = Echo()

    async def main(platform: QaPlatform) -> None:
        platform.inbound(duplicate=True, shuffle=True, page=2, drop_after=2, ping_s=0.01)
        platform.say(*(said(f"one {number}") for number in range(7)))
        made = channel(platform)
        assert isinstance(made, Receiver) and isinstance(made.adapter, Streams)
        async with msgledger.open(tmp_path / "ledger.db", [made], on_message=echo):
            await until(lambda: not platform.pending() and len(answers(platform)) == 7)
            await until(lambda: [line for line in platform.deliveries() if line["what"] == "pong"])
        platform.say(*(said(f"two {number}") for number in range(3)))
        async with msgledger.open(tmp_path / "ledger.db", [channel(platform)], on_message=echo):
            await until(lambda: not platform.pending() and len(answers(platform)) == 10)

    with QaPlatform.start(tmp_path, token=TOKEN) as platform:
        asyncio.run(main(platform))
        words = [f"one {number}" for number in range(7)] + [f"two {number}" for number in range(3)]
        assert sorted(echo.heard) == words
        assert sorted(answers(platform)) == [f"re: {text}" for text in words]


def test_nothing_is_acknowledged_before_its_answer_is_owed(tmp_path: Path) -> None:
    """ACKP-3, ACKK-1: and what comes meanwhile is."""
    gate = asyncio.Event()

    async def handler(inbound: Any) -> None:
        if inbound.message.text == "slow":
            await gate.wait()
        await inbound.reply("done")

    async def main(platform: QaPlatform) -> None:
        platform.say(said("slow", "a"), said("quick", "b"))
        ledger = tmp_path / "ledger.db"
        async with msgledger.open(ledger, [channel(platform)], on_message=handler, ack="after_durable_send"):
            await until(lambda: platform.pending() == ["e1"])
            gate.set()
            await until(lambda: not platform.pending())

    with QaPlatform.start(tmp_path, token=TOKEN) as platform:
        asyncio.run(main(platform))


class Talk:
    """A real server that says what it is told, and keeps what it hears."""

    def __init__(self, *says: str | bytes, refuses: list[int] | None = None) -> None:
        self.says, self.refuses = list(says), refuses or []
        self.heard: list[str] = []
        self.opened = 0

    async def __aenter__(self) -> Talk:
        self._server = await serve(self._talk, "127.0.0.1", 0, process_request=self._request)
        self.url = f"http://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def _request(self, connection: Any, request: Any) -> Any:
        self.opened += 1
        return connection.respond(self.refuses.pop(0), "no") if self.refuses else None

    async def _talk(self, socket: Any) -> None:
        for text in self.says:
            await socket.send(text)
        async for word in socket:
            self.heard.append(word)


async def listening(talk: Talk, core: Core, clock: EagerClock, true: Callable[[], object]) -> None:
    class Plain(QaAdapter):
        def frame(self, text: str) -> Any:
            found = super().frame(text)
            return type(found)(
                tuple(Arrival({**one.event, "n": one.event["seq"]}, one.cursor) for one in found.arrivals)
            )

    adapter = Plain(talk.url)
    driver = Streaming(adapter, talk.url, adapter.authorize, core, name="qa/a", clock=clock, chance=random.Random(7))
    async with Running(driver.run()):
        async with asyncio.timeout(30):
            while not true():
                await asyncio.sleep(0.005)


FRAME = '{"events": [{"id": "e1", "seq": 1}, {"id": "e2", "seq": 2}]}'


def test_a_locked_ledger_is_waited_for_and_the_word_comes_after(caplog: pytest.LogCaptureFixture) -> None:
    """SC-59: nothing is acknowledged meanwhile, and what comes later stays behind."""
    core, clock = Core(), EagerClock()

    async def main() -> None:
        async with Talk(FRAME) as talk:

            async def locked(name: str) -> None:
                if name == "take" and len(core.taken) < 10:
                    assert talk.heard == []
                    raise LOCKED

            core.before = locked
            await listening(talk, core, clock, lambda: len(talk.heard) == 2)
            assert talk.heard == ['{"ack":"e1"}', '{"ack":"e2"}']
            assert core.kept == "2"

    asyncio.run(main())
    assert core.taken == [1] * 10 + [2]


def test_what_breaks_is_opened_again_with_growing_waits(caplog: pytest.LogCaptureFixture) -> None:
    """SC-59, RCV-1: refusals, frames that are none, and one that is too long; said once each, without a word of it."""
    core, clock = Core(), EagerClock()

    async def main() -> None:
        async with Talk("secret words", refuses=[503, 401, 429]) as talk:
            with caplog.at_level(logging.INFO, "msgledger"):
                await listening(talk, core, clock, lambda: talk.opened >= 6)
                talk.says = [FRAME + " " * 5 * 1_048_576]
                opened = talk.opened
                await listening(talk, core, clock, lambda: talk.opened >= opened + 3)
                assert core.taken == []
                talk.says = [FRAME]
                await listening(talk, core, clock, lambda: len(talk.heard) >= 2)

    asyncio.run(main())
    assert POLL_REFUSED_S in clock.waits
    said_of_it = [record.getMessage() for record in caplog.records]
    assert any("refused with 401" in line for line in said_of_it)
    assert not any("secret" in line for line in said_of_it)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """CAP-6: when the channel is made."""
    import sys

    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(InvalidConfig, match=r"msgledger\[ws\]"):
        HttpChannel(QaAdapter("http://h", socket=True))
