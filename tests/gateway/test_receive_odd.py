"""Odd things on the way in: channels that trip, rules that answer oddly, streams that cannot be read any more."""

from __future__ import annotations

from typing import Any

import apsw
import pytest
from msgledger.ledger.inbound import InboundStatus

from .inbound_kit import Agent, channel, dedupe_key, normalize, turns, update
from .kit import Bench


@pytest.mark.parametrize("error", [IndexError, OverflowError, AssertionError, RecursionError])
@pytest.mark.parametrize("where", ["dedupe_key", "normalize"])
def test_a_channel_that_trips_over_an_event_is_not_stopped_by_it(
    bench: Bench, where: str, error: type[Exception]
) -> None:
    """ADP-3, SC-60: whatever it raises; the event is kept as dropped, the next one is answered."""
    agent = Agent()

    def trips(function: Any) -> Any:
        def call(event: Any) -> Any:
            if event["update"] == 1:
                raise error("odd")
            return function(event)

        return call

    able = {"dedupe_key": dedupe_key, "normalize": normalize}
    able[where] = trips(able[where])

    async def main() -> None:
        async with bench.gateway(bench.platform.channel(**able), on_message=agent) as gateway:
            assert (await gateway.receive({**update(1), "big": 2**70}, channel="plat")).reached
            assert (await gateway.receive({**update(1), "big": 2**70}, channel="plat")).repeated
            await gateway.receive(update(2), channel="plat")
            await bench.clock.settle()

    bench.run(main())
    assert turns(bench).keys() >= {"in-2"}
    assert agent.texts == ["hello there"]


@pytest.mark.parametrize("said", [1, None, "\ud800", "x" * 100_000, ["no"]])
def test_a_rule_that_answers_oddly_permits_nothing_and_spoils_nothing(bench: Bench, said: Any) -> None:
    """ADP-3: only True permits; what was recorded can be read again."""
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent, authorize=lambda _: said) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            assert taken.reached
            assert (await gateway.receive(update(1), channel="plat")).inbound == taken.inbound
            assert gateway.store.state_of(taken.inbound).status is InboundStatus.DROPPED

    bench.run(main())
    assert agent.runs == []


def test_an_event_that_comes_again_and_cannot_be_read_any_more_stops_nobody(bench: Bench) -> None:
    """SC-60: it is held for a person, so the platform need not repeat it, and the driver goes on."""
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent, ack="after_durable_send") as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await taken.done
        connection = apsw.Connection(str(bench.path))
        connection.execute(
            "UPDATE stored_events SET topic = 'FromTheFuture' WHERE originator_id = ? AND originator_version = 1",
            (taken.inbound,),
        )
        connection.close()
        async with bench.gateway(channel(bench), on_message=agent, ack="after_durable_send") as gateway:
            again = await gateway.intake("plat").take(update(1))
            assert (again.inbound, again.repeated, again.reached) == (taken.inbound, True, True)

    bench.run(main())


def test_a_rule_that_raises_drops_nothing(bench: Bench) -> None:
    """SC-58, ADP-3: the event is not taken, the caller hears it, and it is judged when it comes again."""
    agent, said = Agent(), [RuntimeError("the list is away"), True]

    def rule(_: Any) -> bool:
        answer = said.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent, authorize=rule) as gateway:
            with pytest.raises(RuntimeError, match="the list is away"):
                await gateway.receive(update(1), channel="plat")
            assert turns(bench) == {}
            assert not (await gateway.receive(update(1), channel="plat")).repeated
            await bench.clock.settle()

    bench.run(main())
    assert agent.texts == ["hello there"]
