"""What each way in gives a caller who says nothing about durability."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgledger import External, Reply, StoreUnavailable
from msgledger.ledger.errors import StoreReadOnly

from .bridge_kit import Own, message_of, until
from .inbound_kit import channel, update
from .kit import Bench, TestGateway, text
from .test_durability import break_begin

Way = Callable[[TestGateway, Own], Awaitable[Any]]


async def sending(gateway: TestGateway, own: Own) -> None:
    async with gateway.sending(text("hello")) as transaction:
        await transaction.send()


async def agent() -> list[Any]:
    return [{"text": "hello"}]


async def four_calls(gateway: TestGateway, own: Own) -> None:
    attempt = await gateway.attempting(await gateway.record(text("hello")))
    await gateway.delivered(attempt, await own.deliver({"text": "hello"}))


WAYS: list[tuple[str, str | None, Way]] = [
    ("send", "required", lambda gateway, own: gateway.send(text("hello"))),
    ("send of a reply", "required", lambda gateway, own: gateway.send(text("hello", relation=Reply(reply_to="m1")))),
    ("sending", "required", sending),
    ("bridge.deliver", None, lambda gateway, own: gateway.bridge("plat", own.deliver).deliver({"text": "hello"})),
    (
        "bridge.deliver with a projection",
        None,
        lambda gateway, own: gateway.bridge("plat", own.deliver, project=message_of).deliver({"text": "hello"}),
    ),
    ("turn.run", None, lambda gateway, own: gateway.bridge("plat", own.deliver).turn().run(agent)),
    (
        "turn.run_prepared",
        None,
        lambda gateway, own: (
            gateway.bridge("plat", own.deliver).turn().run_prepared(lambda: own.deliver({"text": "hello"}))
        ),
    ),
    ("turn.send", "required", lambda gateway, own: gateway.bridge("plat", own.deliver).turn().send(text("hello"))),
    (
        "turn.run_prepared with a record",
        "required",
        lambda gateway, own: (
            gateway.bridge("plat", own.deliver)
            .turn()
            .run_prepared(lambda: own.deliver({"text": "hello"}), record=text("hello"))
        ),
    ),
    ("record, attempting, delivered", "required", four_calls),
]


def channel_for(bench: Bench, name: str) -> Any:
    return External("plat") if name.startswith("record,") else bench.platform.channel()


@pytest.mark.parametrize(("name", "durability", "way"), WAYS, ids=[name for name, *_ in WAYS])
def test_what_each_way_in_is_unless_told_otherwise(bench: Bench, name: str, durability: str | None, way: Way) -> None:
    """DUR-4: the new ways are `required`, what wraps a gateway's own delivery leaves no intent."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway(channel_for(bench, name)) as gateway:
            await way(gateway, own)
            recorded = [event.data for event in bench.events() if event.type == "IntentRecorded"]
            assert [one.get("durability", "required") for one in recorded] == ([durability] if durability else [])
        assert sorted([*own.shown, *bench.platform.texts]) == ["hello"], "it became visible once"

    bench.run(main())


@pytest.mark.parametrize(("name", "durability", "way"), WAYS, ids=[name for name, *_ in WAYS])
def test_without_a_ledger_the_required_ways_show_nothing(
    bench: Bench, name: str, durability: str | None, way: Way
) -> None:
    """DUR-4, DUR-1, AC-8: and those that are not durable deliver as they always did."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway(channel_for(bench, name)) as gateway:
            await until(lambda: bool(bench.events()))
            await bench.clock.settle()
            mend = break_begin(gateway, StoreReadOnly("x"))
            if durability == "required":
                with pytest.raises(StoreUnavailable):
                    await way(gateway, own)
            else:
                await way(gateway, own)
            mend()
        assert [*own.shown, *bench.platform.texts] == ([] if durability else ["hello"])

    bench.run(main())


def test_a_reply_to_what_came_in(bench: Bench) -> None:
    """DUR-4: `required`; and a bridge inside the turn stays what it is: the gateway's own, until a policy says more."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway(channel(bench)) as gateway:
            async with gateway.receiving(update(1), channel="plat") as inbound:
                replied = await inbound.reply("the answer")
                by_itself = await gateway.bridge("plat", own.deliver).turn(inbound=inbound.id).run(agent)
                bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
                owed = await bridge.turn(inbound=inbound.id).run(agent)
            recorded = bench.last(replied.intent, "IntentRecorded")
            assert recorded.get("durability", "required") == "required"
            assert [one.path for one in (*by_itself, *owed)] == ["own", "durable"]
            found = {row.id for row in await gateway.intents(inbound=inbound.id)}
            assert found == {replied.intent, owed[0].intent}
            again = await bridge.turn(inbound=inbound.id).run(agent)
            assert [one.intent for one in again] == [one.intent for one in owed], (
                "a turn that runs again repeats nothing"
            )
        assert (bench.platform.texts, own.shown) == (["the answer", "hello"], ["hello"])

    bench.run(main())
