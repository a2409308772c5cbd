"""What comes in from our own platform, polled and pushed, through a whole gateway; and the platform's own truth."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgledger
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgledger.adapters.exchange import Answer, Request
from msgledger.adapters.http import HttpChannel
from msgledger.adapters.qa import QaAdapter
from msgledger.adapters.qa_inbox import push
from msgledger.adapters.qa_platform import QaPlatform
from msgledger.adapters.receiving import Hooked, Ignored, Incoming, Polls, Receiver, Receives
from msgledger.adapters.webhook import webhook
from msgledger.ledger.outcome import FailureClass, Rejected, Unknown

from .webhook_kit import SECRET, served

PATIENCE_S = 30.0
TOKEN = "qa-token"


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.01)


def channel(platform: QaPlatform, **more: Any) -> HttpChannel:
    return HttpChannel(QaAdapter(platform.url, token=TOKEN, secret=SECRET, **more))


def said(text: str, place: str = "room", **more: Any) -> dict[str, Any]:
    return {"place": place, "from": "ann", "text": text, **more}


def answers(platform: QaPlatform) -> list[str]:
    return [line["text"] for line in platform.accepted()]


class Echo:
    def __init__(self) -> None:
        self.heard: list[str] = []

    async def __call__(self, inbound: Any) -> None:
        self.heard.append(inbound.message.text)
        await inbound.reply(f"re: {inbound.message.text}")


@pytest.mark.parametrize("acknowledges", [True, False])
def test_polled_answered_once_and_acknowledged_also_over_a_restart(tmp_path: Path, acknowledges: bool) -> None:
    """CH-17, SC-55, ACKK-2: pages with repetitions, in another order, slow ones, refused ones and lost ones."""
    echo = Echo()

    async def main(platform: QaPlatform) -> None:
        platform.inbound(duplicate=True, shuffle=True, page=4, slow_s=0.01)
        for action in ("drop", "server_error", "rate_limit"):
            platform.script(action, method="POLL")
        platform.say(*(said(f"one {number}", f"room-{number % 3}") for number in range(9)))
        ledger = tmp_path / "ledger.db"
        made = channel(platform, acknowledges=acknowledges)
        assert isinstance(made, Receiver) and isinstance(made, Receives) and isinstance(made.adapter, Polls)
        async with msgledger.open(ledger, [made], on_message=echo):
            await until(lambda: len(answers(platform)) == 9)
            if acknowledges:
                await until(lambda: not platform.pending())
        platform.say(*(said(f"two {number}", f"room-{number % 3}") for number in range(5)))
        async with msgledger.open(ledger, [channel(platform, acknowledges=acknowledges)], on_message=echo):
            await until(lambda: len(answers(platform)) == 14)
            if acknowledges:
                await until(lambda: not platform.pending())

    with QaPlatform.start(tmp_path, token=TOKEN) as platform:
        asyncio.run(main(platform))
        assert set(Counter(echo.heard).values()) == {1}
        assert set(Counter(answers(platform)).values()) == {1}
        if acknowledges:
            truth = platform.deliveries()
            delivered = [(line["id"], index) for index, line in enumerate(truth) if line["what"] == "delivered"]
            first = dict(reversed(delivered))
            acked = {line["id"]: index for index, line in enumerate(truth) if line["what"] == "acknowledged"}
            assert len(acked) == 14 and all(first[one] < acked[one] for one in acked)


def test_nothing_is_acknowledged_before_its_answer_is_owed(tmp_path: Path) -> None:
    """ACKP-3, CH-17, WM-1: the platform's own record of when it was told."""
    gate = asyncio.Event()

    async def handler(inbound: Any) -> None:
        if inbound.message.text == "slow":
            await gate.wait()
        await inbound.reply("done")

    async def main(platform: QaPlatform) -> None:
        platform.say(said("slow", "a"), said("quick", "b"))
        ledger = tmp_path / "ledger.db"
        async with msgledger.open(ledger, [channel(platform)], on_message=handler, ack="after_durable_send"):
            await until(lambda: answers(platform) == ["done"])
            await until(lambda: len([one for one in platform.deliveries() if one["what"] == "delivered"]) > 4)
            assert platform.pending() == ["e1", "e2"]
            gate.set()
            await until(lambda: not platform.pending())

    with QaPlatform.start(tmp_path, token=TOKEN) as platform:
        asyncio.run(main(platform))


def test_pushed_signed_and_answered_once(tmp_path: Path) -> None:
    """RCV-5, SC-58, CH-17: pushed twice at once and again after the answer, over a gateway that was away."""
    echo = Echo()

    async def main(platform: QaPlatform) -> None:
        platform.inbound(duplicate=True, twice=True)
        made = channel(platform, polling=False)
        assert isinstance(made, Hooked) and not isinstance(made, Receiver)
        async with msgledger.open(tmp_path / "ledger.db", [made], on_message=echo) as gateway:
            app = webhook(made, gateway.intake("qa"), path="/qa")
            async with served(app) as url:
                platform.hook(f"{url}/qa", SECRET)
                platform.say(*(said(f"text {number}") for number in range(6)))
                await until(lambda: not platform.pending() and len(answers(platform)) == 6)
                assert await asyncio.to_thread(push, f"{url}/qa", "another", b'{"events": []}') == 401
        platform.say(said("while away"))
        await until(lambda: platform.deliveries()[-1].get("statuses") == [0, 0, 0])
        assert platform.pending() == ["e7"]

    with QaPlatform.start(tmp_path, token=TOKEN) as platform:
        asyncio.run(main(platform))
        assert echo.heard == [f"text {number}" for number in range(6)]
        assert answers(platform) == [f"re: text {number}" for number in range(6)]
        pushed = [line["statuses"] for line in platform.deliveries() if line["what"] == "pushed"]
        assert pushed[:6] == [[200, 200, 200]] * 6


def test_what_is_sent_comes_in_again_as_our_own(tmp_path: Path) -> None:
    """CH-17: with the key that it was sent with, as a platform with a label does it."""

    async def main(platform: QaPlatform) -> None:
        platform.inbound(echo=True)
        async with msgledger.open(tmp_path / "ledger.db", [channel(platform)]) as gateway:
            delivery = await gateway.send(msgledger.Message.text("hello", to=msgledger.Target.group("qa", "room")))
            assert delivery.receipt is not None
            event = platform._call("GET", "/v1/inbound")["events"][0]
            incoming = channel(platform).normalize(event)
            assert isinstance(incoming, Incoming) and incoming.own and incoming.source.is_bot
            assert (incoming.message.id, incoming.label) == (delivery.receipt.primary_platform_id, event["key"])

    with QaPlatform.start(tmp_path, token=TOKEN) as platform:
        asyncio.run(main(platform))


ADAPTER = QaAdapter("http://h", secret=SECRET)
EVENT = {"id": "e1", "seq": 1, "type": "message", "message": "m1", "place": "p", "kind": "group", "from": "ann"}


def test_an_event_in_our_words() -> None:
    """CH-17, ADP-3: thread, reply, files, kinds of places, who it speaks to."""
    more = {"thread": "t", "reply_to": "m0", "media": [{"name": "a.png"}], "mentions": ["bot"], "at": 5}
    told = ADAPTER.normalize({**EVENT, "text": "hi", **more})
    assert isinstance(told, Incoming)
    message, source = told.message, told.source
    assert (message.text, message.target.thread, message.id, message.timestamp) == ("hi", "t", "m1", 5)
    assert (source.kind, source.chat, source.thread, source.sender) == ("group", "p", "t", "ann")
    assert [one.name for one in message.attachments] == ["a.png"]
    assert told.addressed and not told.own
    unspoken = ADAPTER.normalize({**EVENT, "mentions": []})
    assert isinstance(unspoken, Incoming) and not unspoken.addressed
    private = ADAPTER.normalize({**EVENT, "kind": "dm", "mentions": []})
    assert isinstance(private, Incoming) and private.addressed and private.message.target.kind == "direct"
    assert ADAPTER.normalize({**EVENT, "type": "reaction"}) == Ignored("a reaction")
    for broken in ({"kind": "cave"}, {"from": 7}, {"place": ""}, {"message": None}, {"media": 1}, {"text": ["x"]}):
        with pytest.raises(ValueError, match=r"an event|a place|media"):
            ADAPTER.normalize({**EVENT, **broken})


def test_what_a_poll_may_answer() -> None:
    """CH-17, FAIL-10: a refusal with its class, and anything else is unknown."""
    refused = Answer(429, {}, b'{"error": {"class": "rate_limit", "retry_after": 3}}')
    found = ADAPTER.parse_poll(None, refused)
    assert isinstance(found, Rejected) and (found.failure, found.retry_after_s) == (FailureClass.RATE_LIMIT, 3.0)
    for status, body in ((500, b"{}"), (200, b"[]"), (200, b"{}"), (200, b'{"events": [1]}'), (404, b"{}")):
        assert isinstance(ADAPTER.parse_poll(None, Answer(status, {}, body)), Unknown)
    assert ADAPTER.poll("7", 5.0) == Request.of_json(
        "POST", "/v1/poll", {"cursor": "7", "acknowledged_cursor": "7", "wait_s": 5.0}
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*EVENT, "text", "media", "thread", "mentions", "at", "bot", "own"]), VALUES))
def test_whatever_an_event_holds_it_is_read_or_refused(changes: dict[str, Any]) -> None:
    """CH-17, ADP-3: never another error than `ValueError`."""
    try:
        assert isinstance(ADAPTER.normalize({**EVENT, **changes}), Incoming | Ignored)
        assert ADAPTER.dedupe_key({**EVENT, **changes})
    except ValueError:
        pass
