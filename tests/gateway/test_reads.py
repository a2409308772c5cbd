"""What a gateway is asked about its intents: filters, pages that stay put while others write, and all in turn."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgledger import InvalidQuery, NotPossible
from msgledger.projections.intents import Row
from msgledger.projections.query import NAMES

from .kit import Bench, TestGateway, text, to
from .platform import lose, reject


def ids(rows: list[Row]) -> list[str]:
    return [row.id for row in rows]


def test_each_filter_picks_its_own(bench: Bench) -> None:
    """SC-67, CORE-1: by what the caller knows: chat, session, key, platform id, what became of it and when."""

    async def main() -> None:
        other = bench.other("fax")
        async with bench.gateway(bench.platform.channel(), other.channel()) as gateway:
            first = await gateway.send(text("one", "room-a"), session="s-1", key="key-1")
            began = bench.clock.wall_ms()
            await bench.clock.advance(60)
            bench.platform.plan(reject("not_found"), lose(), reject("auth"))
            failed = await gateway.send(text("two", "room-b"), session="s-2")
            unknown = await gateway.send(text("three", "room-c"))
            held = await gateway.send(text("four", "room-d"))
            faxed = await gateway.send(text("five", "room-a", "fax"), session="s-1")
            edit = await gateway.edit(first, text("one, better", "room-a"))
            all_ids = [edit.intent, faxed.intent, held.intent, unknown.intent, failed.intent, first.intent]

            async def found(**filters: Any) -> list[str]:
                return ids(await gateway.intents(**filters))

            assert await found() == all_ids
            assert await found(status="failed") == [failed.intent]
            assert await found(status=["failed", "sent"]) == [edit.intent, faxed.intent, failed.intent, first.intent]
            assert await found(channel="fax") == [faxed.intent]
            assert await found(channel="plat", account="default", status=("sent",)) == [edit.intent, first.intent]
            assert await found(channel="pigeon") == []
            assert await found(target=to("room-a")) == [edit.intent, first.intent]
            assert await found(target=[to("room-b"), to("room-a", "fax")]) == [faxed.intent, failed.intent]
            assert await found(session="s-1") == [faxed.intent, first.intent]
            assert await found(session={"s-2", "s-none"}) == [failed.intent]
            assert await found(failure="not_found") == [failed.intent]
            assert await found(hold="config") == [held.intent]
            assert await found(of=first.intent) == [edit.intent]
            assert await found(inbound="nothing-yet") == []
            assert await found(key="key-1") == [first.intent]
            assert await found(key=[failed.key, held.key], status="failed") == [failed.intent]
            assert await found(platform_id="m1", channel="plat") == [edit.intent, first.intent]
            later = datetime.fromtimestamp(began / 1000, UTC) + timedelta(seconds=1)
            assert await found(since=later) == all_ids[:-1]
            assert await found(until=began) == [first.intent]
            assert await found(older_than=30) == [first.intent]
            assert await found(older_than=timedelta(seconds=30), session="s-2") == []
            owed = await gateway.owed()
            assert ids(owed) == [unknown.intent, held.intent]
            assert ids(await gateway.owed(status="pending", channel="plat")) == [held.intent]
            assert await gateway.owed(status="sent") == []

    bench.run(main())


def test_platform_ids_are_of_one_conversation(bench: Bench) -> None:
    """SC-67: the same id in two chats is two messages; naming the chat tells them apart."""

    async def main() -> None:
        async def always(unit: Any, context: Any) -> str:
            return "1007"

        async with bench.gateway(bench.platform.channel(deliver=always)) as gateway:
            here = await gateway.send(text("here", "room-a"))
            there = await gateway.send(text("there", "room-b"))
            assert await gateway.by_platform_id("plat", "1007") == [there.intent, here.intent]
            assert await gateway.by_platform_id("plat", "1007", to("room-a")) == [here.intent]
            assert await gateway.by_platform_id("plat", "1007", to("room-c")) == []
            assert await gateway.by_platform_id("fax", "1007") == []

    bench.run(main())


async def sent(gateway: TestGateway, count: int, first: int = 0) -> list[str]:
    done = await asyncio.gather(*(gateway.send(text(f"n{number}", f"room-{number}")) for number in range(first, count)))
    return [one.intent for one in done]


def test_pages_stay_put_while_others_write(bench: Bench) -> None:
    """SC-67, G13: newest first, each once, none missing, whatever is recorded between two pages."""

    async def main() -> None:
        async with bench.gateway() as gateway, bench.gateway(seed=2) as other:
            await sent(gateway, 23)
            expected = ids(await gateway.intents())
            assert len(expected) == 23
            pages: list[Row] = []
            while page := await gateway.intents(limit=5, before=pages[-1].position if pages else None):
                assert len(page) <= 5
                pages += page
                await sent(other, 3)
            assert ids(pages) == expected
            assert [row.position for row in pages] == sorted((row.position for row in pages), reverse=True)
            newer = await gateway.intents(after=pages[0].position)
            assert len(newer) == 15 and not set(ids(newer)) & set(expected)

    bench.run(main())


def test_everything_is_gone_through_a_page_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """G13: `async for` needs the memory of one page, also while others write, and ends."""
    from msgledger.lifecycle import reads

    monkeypatch.setattr(reads, "PAGE_ROWS", 4)

    async def main() -> None:
        async with bench.gateway() as gateway:
            await sent(gateway, 11)
            expected = ids(await gateway.intents(limit=100))
            assert len(await gateway.intents()) == 4, "a list without a limit is a page"
            asked: list[int] = []
            real = gateway.store.read

            def read(work: Any, *arguments: Any) -> Any:
                if work is reads.step:
                    asked.append(arguments[1])
                return real(work, *arguments)

            gateway.store.read = read  # type: ignore[method-assign]
            found: list[str] = []
            async for row in gateway.intents():
                found.append(row.id)
                if len(found) == 2:
                    await sent(gateway, 2)
            assert found == expected
            assert set(asked) == {4} and len(asked) >= 3
            assert [row.id async for row in gateway.intents(limit=6)] == ids(await gateway.intents(limit=6))

    bench.run(main())


def test_what_is_owed_comes_in_the_order_in_which_it_goes_out(bench: Bench) -> None:
    """OB-16, G6: oldest first, page by page, and while it is worked off."""

    async def main() -> None:
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            owed = [(await gateway.send(text(f"{n}", f"room-{n % 3}"), wait=False)).intent for n in range(12)]
            assert ids(await gateway.owed()) == owed
            first = await gateway.owed(limit=5)
            assert ids(first) == owed[:5]
            assert ids(await gateway.owed(limit=5, after=first[-1].position)) == owed[5:10]
            assert ids(await gateway.owed(target=to("room-1"))) == owed[1::3]
            found = [row.id async for row in gateway.owed(limit=7)]
            assert found == owed[:7]
            bench.platform.ready = True
            await bench.clock.until(lambda: len(bench.platform.texts) == 12, within_s=60)
            assert [one.text for one in bench.platform.visible if one.place == "room-1"] == ["1", "4", "7", "10"]
            assert await gateway.owed() == []

    bench.run(main())


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"colour": "green"}, f"no filter 'colour': there are {', '.join(NAMES)}"),
        ({"status": "nearly"}, "status: there is no 'nearly', only pending, sending, committing, unknown_after_send"),
        ({"failure": ["auth", "tired"]}, "failure: there is no 'tired', only transient, rate_limit"),
        ({"hold": "hope"}, "hold: there is no 'hope', only config, unresolved, channel"),
        ({"channel": 7}, "channel: 7 is neither one value nor several"),
        ({"session": [7]}, "session: 7 is no text"),
        ({"session": b"raw"}, "session: b'raw' is neither one value nor several"),
        ({"channel": []}, "channel has no value: leave it out"),
        ({"key": [str(n) for n in range(51)]}, "key has 51 values; the most is 50"),
        ({"target": "room-a"}, "target: 'r' is no Target; give one like Target.group('chat', 'ops')"),
        ({"since": "yesterday"}, "since: 'yesterday' is no time: give UTC milliseconds or a datetime with a zone"),
        ({"since": datetime(2026, 3, 1)}, "since: 2026-03-01T00:00:00 has no zone"),
        ({"until": 10**30}, "until: 1000000000000000000000000000000 is no time"),
        ({"older_than": -1}, "older_than: -1 is no span"),
        ({"older_than": "2h"}, "older_than: '2h' is no span"),
        ({"before": -1}, "before: -1 is no position"),
        ({"after": "x"}, "after: 'x' is no position"),
        ({"before": 10**30}, "before: 1000000000000000000000000000000 is no position"),
        ({"limit": 0}, "limit: 0 is not between 1 and 100000: iterate"),
        ({"limit": "5"}, "limit: '5' is no number of rows"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_way_out(bench: Bench, filters: dict[str, Any], said: str) -> None:
    """SC-67: an error at once that names the value and what there is, never an empty answer."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            for ask in (gateway.intents, gateway.owed):
                with pytest.raises(InvalidQuery) as caught:
                    ask(**filters)
                assert str(caught.value).startswith(said)

    bench.run(main())


def test_reading_needs_an_open_gateway(bench: Bench) -> None:
    """SC-67: before and after it says so."""

    async def main() -> None:
        gateway = bench.gateway()
        asks: list[Any] = [gateway.intents, gateway.owed, gateway.events, lambda: gateway.intent("x")]
        for ask in asks:
            with pytest.raises(NotPossible, match="not open"):
                ask()
        async with gateway:
            listing = gateway.intents()
            assert await listing == [] and await listing == [], "it may be awaited again"
        for ask in asks:
            with pytest.raises(NotPossible, match="not open"):
                ask()

    bench.run(main())
