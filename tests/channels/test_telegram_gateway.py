"""The whole gateway with a Telegram bot, against a Bot API server that is not ours: what a lost answer leads to, what
is fetched or delivered and when the server forgets it, and that the token stands nowhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import msgledger
import pytest
from msgledger import Message, Target
from msgledger.adapters.receiving import Refused
from msgledger.adapters.telegram import TelegramChannel
from msgledger.adapters.text import DUPLICATE_MARKER
from msgspec.structs import replace

from ..counterparts.crabline_telegram import CrablineTelegram
from ..counterparts.proxy import Fate, Proxy, Rule
from .telegram_kit import channel_of, shown
from .test_driver import Listener

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.crabline

PATIENCE_S = 30.0
LOSE = Rule(Fate.LOSE_ANSWER, method="POST", path="/sendMessage")


def bot(server: CrablineTelegram, proxy: Proxy, **more: Any) -> TelegramChannel:
    """One whose attempts are over soon, for a copy goes out only behind the lease end of the first, and whose polls do
    not last, for the proxy stays until they end."""
    channel = channel_of(server, proxy.url, **more)
    adapter = channel._telegram
    adapter.capabilities = replace(channel.capabilities, deadline_s=1.0, settle_s=0.2)
    poll = adapter.poll
    adapter.poll = lambda cursor, wait_s: poll(cursor, 1.0)  # type: ignore[method-assign]
    return channel


def facts(path: Path, *types: str) -> list[Any]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = connection.execute("SELECT type, data FROM events ORDER BY position").fetchall()
        return [row for row in rows if not types or row[0] in types]
    finally:
        connection.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


class TestALostAnswer:
    """UNK-1, UNK-6, UNK-7: the message is there once, nobody can say so, and what the policy says happens."""

    def test_it_is_held(self, bot_api: CrablineTelegram, bot_proxy: Proxy, tmp_path: Path) -> None:
        """CH-1: one message there; the intent waits for a person, and nothing goes out again."""
        chat = bot_api.create_chat()
        bot_proxy.set(LOSE)

        async def run() -> str:
            path = tmp_path / "ledger.db"
            async with msgledger.open(path, channels=[bot(bot_api, bot_proxy)]) as gateway:
                delivery = await gateway.send(Message.text("once", to=Target.direct("telegram", chat)))
                return delivery.status

        assert asyncio.run(run()) == "unknown_after_send"
        assert [seen.text for seen in shown(bot_proxy, chat)] == ["once"]
        assert [body["cause"] for _, body in _read(tmp_path, "OutcomeUnknown")] == ["reset"]

    def test_a_marked_copy_where_the_policy_says_so(
        self, bot_api: CrablineTelegram, bot_proxy: Proxy, tmp_path: Path
    ) -> None:
        """CH-1: at least once by policy: the copy says what it may be, and both ids are not taken for one."""
        chat = bot_api.create_chat()
        bot_proxy.set(LOSE)

        async def run() -> Any:
            path = tmp_path / "ledger.db"
            async with msgledger.open(path, channels=[bot(bot_api, bot_proxy)]) as gateway:
                message = Message.text("twice <b>", to=Target.direct("telegram", chat))
                delivery = await gateway.send(message, on_unknown="at_least_once", wait=False)
                async with asyncio.timeout(PATIENCE_S):
                    while delivery.status != "sent":
                        delivery = await delivery.wait(1.0)
                return delivery.receipt

        receipt = asyncio.run(run())
        first, second = shown(bot_proxy, chat)
        assert (first.text, second.text) == ("twice <b>", DUPLICATE_MARKER + "twice <b>")
        assert receipt.platform_ids == (second.id,) and receipt.duplicates == 1


def _read(folder: Path, *types: str) -> list[Any]:
    import json

    return [(type_, json.loads(data)) for type_, data in facts(folder / "ledger.db", *types)]


class Echo:
    """A handler that answers, once it may."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, inbound: Any) -> None:
        self.texts.append(inbound.message.text)
        await self.gate.wait()
        await inbound.reply(f"re: {inbound.message.text}", quote=True)


class TestPolling:
    """RCV-3, ACKP-2, ACKP-3: what people write is answered once, and the server forgets it only when it may."""

    def test_what_is_said_is_answered(self, bot_api: CrablineTelegram, bot_proxy: Proxy, tmp_path: Path) -> None:
        """CH-1, ACKK-2: each update is one turn, over a restart too, and nothing waits at the server afterwards."""
        chat = bot_api.create_chat()
        first = bot_api.says(chat, "one")
        before = first["update_id"]

        async def life(count: int) -> list[str]:
            agent = Echo()
            channel = bot(bot_api, bot_proxy)
            async with msgledger.open(tmp_path / "ledger.db", channels=[channel], on_message=agent):
                await until(lambda: len(shown(bot_proxy, chat)) == count)
                await until(lambda: any(b'"offset":%d,' % (count + before) in one.body for one in bot_proxy.passed))
            return agent.texts

        assert asyncio.run(life(1)) == ["one"]
        bot_api.says(chat, "two")
        assert asyncio.run(life(2)) == ["two"]
        assert [seen.text for seen in shown(bot_proxy, chat)] == ["re: one", "re: two"]
        assert shown(bot_proxy, chat)[0].reply_to == str(first["message"]["message_id"])
        assert len(_read(tmp_path, "InboundRecorded")) == 2

    def test_it_comes_again_until_it_is_done(self, bot_api: CrablineTelegram, bot_proxy: Proxy, tmp_path: Path) -> None:
        """ACKP-3, RCV-3: under after_durable_send the offset stays where it is until the answer is owed, and what the
        server repeats meanwhile is one message."""
        chat = bot_api.create_chat()
        update = bot_api.says(chat, "slow")

        def offsets() -> list[bytes]:
            return [one.body for one in bot_proxy.passed if one.path.endswith("/getUpdates")]

        async def run() -> None:
            agent = Echo()
            agent.gate.clear()
            path, channel = tmp_path / "ledger.db", bot(bot_api, bot_proxy)
            async with msgledger.open(path, channels=[channel], on_message=agent, ack="after_durable_send"):
                await until(lambda: bool(agent.texts))
                await until(lambda: len(offsets()) >= 2)
                assert not any(b'"offset":%d' % (update["update_id"] + 1) in body for body in offsets())
                agent.gate.set()
                await until(lambda: any(b'"offset":%d' % (update["update_id"] + 1) in body for body in offsets()))
            assert agent.texts == ["slow"]

        asyncio.run(run())
        assert bot_api.waiting() == []
        assert len(_read(tmp_path, "InboundRecorded")) == 1

    def test_it_waits_until_the_bot_knows_its_name(
        self, bot_api: CrablineTelegram, bot_proxy: Proxy, tmp_path: Path
    ) -> None:
        """CH-1: a mention that is read before that would be nobody's, and its turn lost."""
        chat = "-100" + bot_api.create_chat()[:10]
        text = "hello @crabline_bot"
        bot_api.says(chat, text, chatType="group", entities=[{"type": "mention", "offset": 6, "length": 13}])
        bot_proxy.set(Rule(Fate.LOSE_REQUEST, method="POST", path="/getMe"))

        async def run() -> list[str]:
            agent, asked, go_on = Echo(), asyncio.Event(), asyncio.Event()

            async def pause(_: float) -> None:
                asked.set()
                await go_on.wait()

            channel = bot(bot_api, bot_proxy, pause=pause)
            async with msgledger.open(tmp_path / "ledger.db", channels=[channel], on_message=agent):
                await asyncio.wait_for(asked.wait(), PATIENCE_S)
                for _ in range(5):
                    await asyncio.to_thread(bot_api.api, "getMe")
                go_on.set()
                await until(lambda: any(one.path.endswith("/getUpdates") for one in bot_proxy.passed))
                await until(lambda: bool(agent.texts))
            return agent.texts

        assert asyncio.run(run()) == [text]
        methods = [one.path.rpartition("/")[2] for one in bot_proxy.passed]
        assert methods[:3] == ["getMe", "getMe", "getUpdates"]

    def test_a_webhook_is_in_the_way(
        self, bot_api: CrablineTelegram, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """CH-1: the server's 409 is said once, with the way out, and nothing is lost."""
        bot_api.api("setWebhook", url="http://127.0.0.1:9/")

        async def run() -> None:
            channel = channel_of(bot_api)
            async with msgledger.open(tmp_path / "ledger.db", channels=[channel], on_message=Echo()):
                await until(lambda: "deleteWebhook" in caplog.text)

        with caplog.at_level(logging.INFO, logger="msgledger"):
            asyncio.run(run())


@asynccontextmanager
async def webhook(gateway: Any, channel: Any, port: list[int]) -> AsyncGenerator[list[int]]:
    """As small a server as a gateway may have: verified, recorded, and only then told so."""
    statuses: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = [line.partition(":") for line in head.split("\r\n")[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        try:
            channel.verify(headers, body, 0)
            for event in channel.unpack(headers, body):
                await (await gateway.receive(event, channel="telegram")).done
            status = 200
        except Refused as refused:
            status = refused.status
        statuses.append(status)
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port.append(server.sockets[0].getsockname()[1])
    try:
        yield statuses
    finally:
        server.close()
        await server.wait_closed()


class TestWebhook:
    """RCV-5: the server delivers with the secret that it was given, and repeats what was not taken."""

    def test_with_the_secret(self, bot_api: CrablineTelegram, bot_proxy: Proxy, tmp_path: Path) -> None:
        """CH-1: an update with another secret is refused with nothing recorded; the server's repetition with ours is
        answered once."""
        chat = bot_api.create_chat()

        async def run() -> list[int]:
            agent, port = Echo(), list[int]()
            channel = channel_of(bot_api, bot_proxy.url, webhook_secret="our_Secret-1")
            async with (
                msgledger.open(tmp_path / "ledger.db", channels=[channel], on_message=agent) as gateway,
                webhook(gateway, channel, port) as statuses,
            ):
                url = f"http://127.0.0.1:{port[0]}/"
                await asyncio.to_thread(bot_api.api, "setWebhook", url=url, secret_token="another")
                await asyncio.to_thread(bot_api.says, chat, "hello")
                await until(lambda: 401 in statuses)
                assert agent.texts == [] and _read(tmp_path, "InboundRecorded") == []
                await asyncio.to_thread(bot_api.api, "setWebhook", url=url, secret_token="our_Secret-1")
                await until(lambda: 200 in statuses and bool(shown(bot_proxy, chat)))
                info = await asyncio.to_thread(bot_api.api, "getWebhookInfo")
                assert info["pending_update_count"] == 0
                return statuses

        statuses = asyncio.run(run())
        assert set(statuses) == {401, 200}
        assert [seen.text for seen in shown(bot_proxy, chat)] == ["re: hello"]
        assert not any(one.path.endswith("/getUpdates") for one in bot_proxy.passed)


def test_the_token_stands_nowhere(
    bot_api: CrablineTelegram, bot_proxy: Proxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CH-1: not in the ledger's files, not in a log line of any library at any level, not in an error; sent, refused,
    lost, redirected, answered with itself, fetched, and asked who it is."""
    secret = bot_api.token.partition(":")[2]
    chat, other = bot_api.create_chat(), bot_api.create_chat()
    caplog.set_level(logging.DEBUG)
    target = Target.direct("telegram", chat)
    told: list[object] = []

    async def run() -> None:
        path = tmp_path / "ledger.db"
        page = f"<h1>not found</h1> /bot{bot_api.token}/sendMessage {bot_api.token.replace(':', '%3A')}".encode()
        length = f"content-length: {len(page)}\r\n\r\n".encode()
        place = f"https://api.example/bot{bot_api.token}/sendMessage".encode()
        redirect = b"HTTP/1.1 302 Found\r\nlocation: " + place + b"\r\n" + length + page
        me = b'{"ok":true,"result":{"id":424242,"username":"a_bot"}}'
        known = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(me) + me
        async with Listener(known, redirect) as odd, Listener(known, b"HTTP/1.1 404 x\r\n" + length + page) as lost:
            channels = [bot(bot_api, bot_proxy)]
            channels += [
                TelegramChannel(bot_api.token, base_url=one.url, name=name, webhook_secret="s")
                for name, one in (("odd", odd), ("lost", lost))
            ]
            told.extend(channels)
            async with msgledger.open(path, channels=channels, on_message=Echo()) as gateway:
                delivery = await gateway.send(Message.text("sent", to=target))
                told.append(await gateway.edit(delivery, Message.text("edited", to=target)))
                bot_proxy.set(LOSE)
                told.append(await gateway.send(Message.text("lost", to=Target.direct("telegram", other))))
                await asyncio.to_thread(bot_api.says, chat, "fetched")
                for name in ("odd", "lost"):
                    told.append(await gateway.send(Message.text("astray", to=Target.direct(name, chat))))
                await until(lambda: any(seen.text == "re: fetched" for seen in shown(bot_proxy, chat)))
                for dossier in [await gateway.intent(one.intent) for one in told[3:]]:
                    told.append(repr(dossier))

    asyncio.run(run())
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"redacted" in kept, "what came back was kept, without it"
    assert secret.encode() not in kept
    assert "sendMessage" in caplog.text and "httpcore2" in {record.name.partition(".")[0] for record in caplog.records}
    assert secret not in caplog.text
    assert all(secret not in repr(one) for one in told)
    assert secret in bot_proxy.passed[0].path, "and yet it was sent"
