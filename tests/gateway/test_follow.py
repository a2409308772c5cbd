"""Events in order of position: none missing and none twice, followed over processes, until somebody closes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import msgledger
import msgledger.sync
import pytest
from msgledger import InvalidQuery, Message, NotPossible, Status
from msgledger.ledger.errors import NotALedger, StoreClosed, StoreReadOnly
from msgledger.ledger.store.history import Recorded
from msgledger.projections import log

from .kit import Bench, text
from .test_sync import HERE, Taken


def places(events: list[Recorded]) -> list[int]:
    return [one.position for one in events]


async def take(events: Any, count: int) -> list[Recorded]:
    """The next so many."""
    async with asyncio.timeout(20):
        return [await anext(events) for _ in range(count)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "PAGE_EVENTS", 3)
    monkeypatch.setattr(log, "STRETCH_EVENTS", 5)


def test_every_event_once_and_in_order(bench: Bench, small: None) -> None:
    """OB-2, SC-67: from any position to the head as it was; by type, and of one intent."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            intents = [(await gateway.send(text(f"n{number}"))).intent for number in range(6)]
            every = [(one.position, one.stream, one.type) for one in bench.events()]

            async def found(**more: Any) -> list[tuple[int, str, str]]:
                return [(one.position, one.stream, one.topic) async for one in gateway.events(**more)]

            assert len(every) >= 25
            for after in range(len(every) + 1):
                assert await found(after=after) == every[after:]
            assert await found(topics="IntentCommitted") == [one for one in every if one[2] == "IntentCommitted"]
            both = ["IntentRecorded", "WorkerStarted"]
            assert await found(topics=both, after=3) == [one for one in every[3:] if one[2] in both]
            assert await found(stream=intents[2]) == [one for one in every if one[1] == intents[2]]
            of_both = [one for one in every if one[1] == intents[2] and one[2] == "UnitAccepted"]
            assert await found(stream=intents[2], topics="UnitAccepted") == of_both
            assert await found(stream="nobody") == []

            seen: list[int] = []
            async for one in gateway.events():
                seen.append(one.position)
                await gateway.send(text("meanwhile"))
            assert seen == list(range(1, len(every) + 1)), "it ends at the head as it was"

    bench.run(main())


@pytest.mark.parametrize("reader", ["the gateway", "a reading"])
def test_news_of_this_and_of_other_processes_is_followed(bench: Bench, small: None, reader: str) -> None:
    """OB-2, G13: all that two gateways commit, in order, however it is mixed; an idle follower reads nothing."""

    async def main() -> None:
        async with (
            bench.gateway() as one,
            bench.gateway(seed=2) as two,
            msgledger.reading(bench.path) as reading,
        ):
            events = (one if reader == "the gateway" else reading).events(follow=True)
            seen = await take(events, 2)
            waiting = asyncio.ensure_future(take(events, 40))
            for number in range(5):
                await asyncio.gather(one.send(text(f"a{number}", "room-a")), two.send(text(f"b{number}", "room-b")))
            seen += await waiting
            assert places(seen) == list(range(1, 43))
            again = one.events(after=20, follow=True)
            assert places(await take(again, 22)) == list(range(21, 43)), "resumed by position"
            await again.aclose()
            await events.aclose()

    bench.run(main())


def test_a_slow_consumer_keeps_one_page(bench: Bench, small: None) -> None:
    """G13: what it has not asked for stays in the ledger."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            events = gateway.events(follow=True)
            first = await take(events, 1)
            reads: list[int] = []
            real = gateway.store.read

            def read(work: Any, *arguments: Any) -> Any:
                if work is log.page:
                    reads.append(arguments[0])
                return real(work, *arguments)

            gateway.store.read = read  # type: ignore[method-assign]
            for number in range(30):
                await gateway.send(text(f"n{number}"))
            assert reads == []
            rest = await take(events, 120)
            assert places(first + rest) == list(range(1, 122))
            await events.aclose()

    bench.run(main())


def test_following_ends_with_the_gateway(bench: Bench) -> None:
    """SC-67: closing ends the waiting without an error; a list that is cut short is one."""

    async def main() -> None:
        gateway = bench.gateway()
        await gateway.start()
        seen: list[Recorded] = []

        async def follow() -> None:
            async for one in gateway.events(follow=True):
                seen.append(one)

        follower = asyncio.ensure_future(follow())
        await gateway.send(text("one"))
        half = gateway.events()
        await anext(half)
        await half.aclose()
        for _ in range(200):
            await asyncio.sleep(0.005)
            if len(seen) == len(bench.events()):
                break
        all_seen = len(bench.events())
        listing = gateway.intents()
        await gateway.close()
        async with asyncio.timeout(5):
            await follower
        assert len(seen) == all_seen >= 5
        with pytest.raises(StoreClosed):
            await listing

    bench.run(main())


def test_a_position_that_was_not_given_is_refused(bench: Bench) -> None:
    """SC-67: it comes from another ledger, and silence would be taken for peace."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            for follow in (False, True):
                with pytest.raises(InvalidQuery, match=r"position 9 is beyond the ledger's head, \d:"):
                    await anext(gateway.events(after=9, follow=follow))
            with pytest.raises(InvalidQuery, match="after: -1 is no position"):
                gateway.events(after=-1)
            with pytest.raises(InvalidQuery, match="no event type 'Nothing': there are Acknowledged, "):
                gateway.events(topics=["UnitAccepted", "Nothing"])

    bench.run(main())


def test_a_ledger_is_read_without_working_on_it(bench: Bench) -> None:
    """SC-67, CORE-4: the same answers beside a gateway, and nothing is written: no worker, no event, no file."""

    async def main() -> None:
        with pytest.raises(NotALedger):
            async with msgledger.reading(bench.path):
                pass
        assert not bench.path.exists()
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("one"))
            before = len(bench.events())
            async with msgledger.reading(bench.path) as reading:
                assert await reading.intents() == await gateway.intents()
                assert await reading.intent(sent) == await gateway.intent(sent)
                assert await reading.by_platform_id("plat", "m1") == [sent.intent]
                assert await reading.owed() == []
                with pytest.raises(StoreReadOnly):
                    reading._opened().append()
                with pytest.raises(NotPossible, match="open already"):
                    await reading.start()
            with pytest.raises(NotPossible, match="the reading is not open"):
                reading.intents()
            await reading.close()
            assert len(bench.events()) == before

    bench.run(main())


def test_views_of_another_version_are_not_read(bench: Bench) -> None:
    """SC-67: who only reads cannot make them anew, and says who can."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            await gateway.send(text("one"))
        connection = apsw.Connection(str(bench.path))
        connection.execute("UPDATE views SET version = 1 WHERE name = 'intents'")
        with pytest.raises(
            msgledger.LedgerError, match=r"intents stand at another version .*: run `msgledger rebuild`"
        ):
            await msgledger.reading(bench.path).start()
        connection.execute("UPDATE views SET version = 2 WHERE name = 'intents'")
        connection.close()

    bench.run(main())


def test_scripts_ask_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-67: the reads of `sync`, of a gateway and of a ledger that is only read."""
    from msgledger.lifecycle import reads

    monkeypatch.setattr(reads, "PAGE_ROWS", 2)
    monkeypatch.setattr(log, "PAGE_EVENTS", 3)
    path = tmp_path / "ledger.db"
    with msgledger.sync.open(path, channels=[Taken().channel]) as gateway:
        sent = [gateway.send(Message.text(f"n{number}", to=HERE), session="s-1") for number in range(5)]
        expected = [one.intent for one in reversed(sent)]
        with msgledger.sync.reading(path) as reading:
            for one in (gateway, reading):
                assert [row.id for row in one.all_intents(session="s-1")] == expected
                assert [row.id for row in one.intents(limit=3, status="sent")] == expected[:3]
                assert list(one.all_intents(status="failed")) == []
                assert one.owed(target=HERE) == []
                assert one.by_platform_id("plat", "m2", HERE) == [sent[1].intent]
                events = list(one.events())
                assert places(events) == list(range(1, len(events) + 1)) and len(events) >= 21
                [_, started, *_] = one.events(stream=sent[0].intent)
                assert one.intent(sent[0], position=started.position).state.status is Status.SENDING
                assert [row.name for row in one.timeline(sent[0], position=started.position).rows] == [
                    "intent",
                    "attempt 1",
                ]
                with pytest.raises(InvalidQuery):
                    one.intents(status="nearly")
            following = reading.events(after=19, follow=True)
            assert next(following).position == 20
            following.close()
            with pytest.raises(InvalidQuery):
                next(gateway.events(after=99))
