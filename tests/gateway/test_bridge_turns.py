"""Turns over a bridge, and prepared dispatchers: the gateway's own until they give a message to the ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgledger import (
    External,
    NoSend,
    NotDispatched,
    Rejected,
    Status,
)

from .bridge_kit import REPLY, Own, message_of, nothing_recorded, until
from .kit import Bench, text

# ---- turns


def test_a_turn_without_a_policy_leaves_no_trace(bench: Bench) -> None:
    """TI-2, MIG-2, AC-8, TI-4, MIG-4: each payload by the callback, first and once, and no intent."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway() as gateway:
            turn = gateway.bridge("plat", own.deliver, project=message_of).turn(run="turn-1")

            async def agent() -> list[Any]:
                return [{"text": "one"}, {"text": "two"}]

            outcomes = await turn.run(agent)
            assert [outcome.receipt.platform_ids for outcome in outcomes] == [("own1",), ("own2",)]
            assert (own.shown, own.before) == (["one", "two"], [0, 0])
            assert bench.platform.requests == []
            assert nothing_recorded(bench)

    bench.run(main())


def test_a_simple_turn_records_and_sends(bench: Bench) -> None:
    """TI-1, TI-6, G1: each payload is an intent before its request, and its ids come back to the dispatcher."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway(bench.platform.channel(carries=("reply_to",))) as gateway:
            turn = gateway.bridge("plat", own.deliver, project=message_of, durable=True).turn(inbound="0193-in")

            async def agent() -> AsyncIterator[Any]:
                yield {"text": "one"}
                assert bench.platform.texts == ["one"], "each is delivered before the next is asked for"
                yield {"text": "two", "reply": REPLY}

            outcomes = await turn.run(agent)
            assert [outcome.receipt.platform_ids for outcome in outcomes] == [("m1",), ("m2",)]
            assert [outcome.durable for outcome in outcomes] == [True, True]
            for outcome in outcomes:
                recorded = bench.last(outcome.intent, "IntentRecorded")
                assert (recorded["inbound"], recorded["relation"]) == ("0193-in", "reply")
                assert bench.types(outcome.intent)[-1] == "IntentCommitted"
            assert own.shown == []

    bench.run(main())


def test_a_turn_that_runs_again_repeats_nothing(bench: Bench) -> None:
    """SND-1, CORE-7, MIG-7: its n-th payload is the intent that stands, with what was recorded first."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", Own(bench).deliver, project=message_of, durable=True)

            async def agent() -> list[Any]:
                return [{"text": "one"}, {"text": "two"}]

            first = await bridge.turn(run="turn-1").run(agent)
            second = await bridge.turn(run="turn-1").run(agent)
            other = await bridge.turn(run="turn-2").run(agent)
            assert [one.intent for one in first] == [one.intent for one in second]
            assert all(one.delivery.repeated for one in second)
            assert [one.receipt for one in first] == [one.receipt for one in second]
            assert not {one.intent for one in other} & {one.intent for one in first}
            assert bench.platform.texts == ["one", "two", "one", "two"]

    bench.run(main())


def test_a_turn_is_a_wrapper_and_no_more(bench: Bench) -> None:
    """AC-4: the same payloads through a turn and one by one leave the same events and outcomes."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", Own(bench).deliver, project=message_of, durable=True)
            payloads = [{"text": "one"}, {"text": "two", "typing": True}, {"text": "", "mute": True}]

            async def agent() -> list[Any]:
                return payloads

            by_turn = await bridge.turn().run(agent)
            one_by_one = [await bridge.deliver(payload) for payload in payloads]
            shapes = [[(one.label, one.reason, one.status) for one in run] for run in (by_turn, one_by_one)]
            assert shapes[0] == shapes[1]
            types = [bench.types(run[0].intent) for run in (by_turn, one_by_one)]
            assert types[0] == types[1] != []

    bench.run(main())


@pytest.mark.parametrize("answer", [None, []], ids=["none", "empty"])
def test_a_turn_that_shows_nothing_says_so(bench: Bench, answer: Any) -> None:
    """SC-68: an outcome, never silence."""

    async def main() -> None:
        async def agent() -> Any:
            return answer

        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", Own(bench).deliver)
            [outcome] = await bridge.turn().run(agent)
            assert (outcome.kind, outcome.reason) == ("handled_no_send", "the turn gave nothing to show")
            assert bridge.counts == {"none.handled_no_send": 1}

    bench.run(main())


def test_what_raises_in_the_middle_of_a_turn_gets_through(bench: Bench) -> None:
    """MIG-5, SND-7: what came before stands, what raised stands with its error, what is behind it is not delivered."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway() as gateway:
            turn = gateway.bridge("plat", own.deliver).turn()

            async def agent() -> AsyncIterator[Any]:
                yield {"text": "one"}
                own.answer = RuntimeError("the bot is gone")
                yield {"text": "two"}
                yield {"text": "three"}

            with pytest.raises(RuntimeError, match="the bot is gone"):
                await turn.run(agent)
            assert [(one.kind, one.path) for one in turn.outcomes] == [("handled_visible", "own"), ("failed", "own")]
            assert (own.shown, len(own.before)) == (["one"], 2)

    bench.run(main())


# ---- prepared dispatchers


def test_a_prepared_dispatcher_is_the_gateways_own_until_it_sends(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """MIG-3, AC-11: no intent and no count as durable before `turn.send`; what it gives to that is durable."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver)
            turn = bridge.turn()
            outcomes = await turn.run_prepared(lambda: own.deliver({"text": "by itself"}))
            assert [(one.path, one.durable, one.receipt.platform_ids) for one in outcomes] == [
                ("prepared", False, ("own1",))
            ]
            assert nothing_recorded(bench)

            async def converted() -> None:
                await own.deliver({"text": "a sign"})
                sent = await turn.send(text("the answer"))
                assert sent.receipt.platform_ids == ("m1",)

            outcomes = await turn.run_prepared(converted)
            assert [one.path for one in outcomes] == ["prepared", "durable"]
            assert bridge.counts == {"prepared.handled_visible": 1, "durable.handled_visible": 1}
            assert bench.platform.texts == ["the answer"]

    with caplog.at_level(logging.INFO, "msgledger"):
        bench.run(main())
    lines = [record.message for record in caplog.records if record.message.startswith("bridge")]
    assert ["durable=yes" in line for line in lines] == [False, True]
    assert "path=prepared durable=no" in lines[0]


def test_a_prepared_turn_records_and_finishes(bench: Bench) -> None:
    """TI-3: the intent and its attempt are durable before the dispatcher is called, its ids after."""

    async def main() -> None:
        own = Own(bench)
        seen: list[list[str]] = []

        async def dispatch() -> list[str]:
            seen.append(bench.types_of_intents())
            await own.deliver({"text": "one"})
            await own.deliver({"text": "two"})
            return ["own1", "own2"]

        for channel in (bench.platform.channel(), External("plat")):
            async with bench.gateway(channel) as gateway:
                bridge = gateway.bridge("plat", own.deliver)
                [outcome] = await bridge.turn(inbound="0193-in").run_prepared(dispatch, record=text(f"of {channel!r}"))
                assert (outcome.kind, outcome.path, outcome.durable) == ("handled_visible", "recorded", False)
                assert outcome.receipt.platform_ids == ("own1", "own2")
                assert seen.pop()[-2:] == ["IntentRecorded", "AttemptStarted"]
                assert bench.types(outcome.intent)[-2:] == ["UnitAccepted", "IntentCommitted"]
                assert bridge.counts == {"recorded.handled_visible": 1}
                bench.path = bench.path.with_name("external.db")
        assert bench.platform.requests == []

    bench.run(main())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("who knows"), Status.UNKNOWN),
        (Rejected("permission", "no"), Status.FAILED),
        (Rejected("rate_limit", "later", retry_after_s=1), Status.FAILED),
        (NotDispatched("refused"), Status.FAILED),
    ],
    ids=["unknown", "refused", "told to wait", "never left"],
)
def test_a_prepared_dispatcher_that_fails(bench: Bench, error: Exception, status: Status) -> None:
    """TI-3, MIG-5, FAIL-11: its error gets through, the ledger keeps what it proves, and nothing is sent again."""

    async def main() -> None:
        async def dispatch() -> None:
            raise error

        async with bench.gateway() as gateway:
            turn = gateway.bridge("plat", Own(bench).deliver).turn()
            with pytest.raises(type(error)) as raised:
                await turn.run_prepared(dispatch, record=text("hello"))
            assert raised.value is error
            [outcome] = turn.outcomes
            await bench.clock.advance(300)
            state = (await gateway.intent(outcome.intent)).state
            assert state.status is status
            assert (state.attempts, bench.platform.requests) == (1, [])

    bench.run(main())


def test_a_prepared_dispatcher_may_find_that_there_is_nothing_to_send(bench: Bench) -> None:
    """SC-68, TI-3: the record ends as cancelled, with the reason in what comes back."""

    async def main() -> None:
        async def dispatch() -> NoSend:
            return NoSend("quiet hours")

        async with bench.gateway() as gateway:
            [outcome] = await gateway.bridge("plat", Own(bench).deliver).turn().run_prepared(dispatch, record=text("x"))
            assert (outcome.kind, outcome.reason, outcome.status) == (
                "handled_no_send",
                "quiet hours",
                Status.CANCELLED,
            )

    bench.run(main())


def test_recorded_dispatchers_keep_their_order(bench: Bench) -> None:
    """R7, G6, TI-3: the second of a conversation is called when the first has ended, though both wait at once."""

    async def main() -> None:
        order: list[str] = []
        gate = asyncio.Event()

        async def first() -> str:
            order.append("first begins")
            await gate.wait()
            order.append("first ends")
            return "a"

        async def second() -> str:
            order.append("second")
            return "b"

        async with bench.gateway() as gateway:
            turn = gateway.bridge("plat", Own(bench).deliver).turn()
            one = asyncio.create_task(turn.run_prepared(first, record=text("one")))
            await until(lambda: order)
            two = asyncio.create_task(turn.run_prepared(second, record=text("two")))
            await until(lambda: len(bench.types_of_intents()) >= 3)
            gate.set()
            await bench.clock.settle()
            await asyncio.gather(one, two)
            assert order == ["first begins", "first ends", "second"]
            assert {outcome.status for outcome in turn.outcomes} == {Status.SENT}

    bench.run(main())
