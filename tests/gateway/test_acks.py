"""G10: acknowledgements: four things that are called so, and the four policies that decide about two of them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgledger.ledger import inbound
from msgledger.ledger import inbound_events as i
from msgledger.ledger.errors import InvalidConfig, NotPossible, StoreLocked
from msgledger.ledger.fold import evolve, known

from .inbound_kit import Agent, channel, soon, turns, update
from .kit import Bench

AT = 1_800_000_000_000


async def reached(taken: Any) -> bool:
    """Whether the platform may be told already."""
    try:
        async with asyncio.timeout(0.01):
            await taken.done
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("immediate:webhook-timeout", ["InboundRecorded", "Acknowledged", "InboundDispatched", "InboundCompleted"]),
        ("after_record", ["InboundRecorded", "Acknowledged", "InboundDispatched", "InboundCompleted"]),
        ("after_durable_send", ["InboundRecorded", "InboundDispatched", "InboundCompleted", "Acknowledged"]),
        ("manual", ["InboundRecorded", "InboundDispatched", "InboundCompleted"]),
    ],
)
def test_the_point_at_which_the_platform_may_be_told(bench: Bench, policy: str, order: list[str]) -> None:
    """ACKP-1, ACKP-2, ACKP-3, ACKP-4, ACKK-3, TU-6: always after what a redelivery is known by; the answer is owed
    before `after_durable_send`."""
    agent = Agent()

    async def main() -> None:
        agent.gate = asyncio.Event()
        async with bench.gateway(channel(bench), on_message=agent, ack=policy) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await agent.begun.wait()
            early = policy.startswith("immediate") or policy == "after_record"
            assert (await reached(taken), taken.reached) == (early, early)
            agent.gate.set()
            await bench.clock.settle()
            assert await reached(taken) == (policy != "manual")
            again = await gateway.receive(update(1), channel="plat")
            assert (again.repeated, again.reached) == (True, policy != "manual")

    bench.run(main())
    assert turns(bench) == {"in-1": order}
    owed = [event.position for event in bench.events() if event.type == "IntentRecorded"]
    done = [event.position for event in bench.events() if event.type == "InboundCompleted"]
    assert owed < done
    assert agent.texts == ["hello there"]


def test_the_acknowledgement_says_of_what(bench: Bench) -> None:
    """ACKK-1, ACKK-2: an envelope, or a polling offset; it claims nothing of what was sent."""

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=Agent()) as gateway:
            polled = gateway.intake("plat", via="offset")
            await polled.take(update(1))
            await gateway.receive(update(2), channel="plat")
            await bench.clock.settle()

    bench.run(main())
    told = [event.data for event in bench.events() if event.type == "Acknowledged"]
    assert [(one["ack"], one["policy"]) for one in told] == [("offset", "after_record"), ("transport", "after_record")]


def test_a_message_is_acknowledged_by_hand(bench: Bench) -> None:
    """ACKP-4, ACKP-6: when the handler says so; twice is once."""

    async def handler(inbound: Any) -> None:
        await inbound.ack()
        await inbound.ack()
        await inbound.reply("done")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler, ack={"plat": "manual"}) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await taken.done
            await bench.clock.settle()

    bench.run(main())
    assert turns(bench) == {"in-1": ["InboundRecorded", "InboundDispatched", "Acknowledged", "InboundCompleted"]}


def test_one_that_nobody_acknowledges_is_warned_of(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """ACKP-4."""
    caplog.set_level(logging.WARNING, "msgledger")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=Agent(), ack="manual") as gateway:
            await gateway.receive(update(1), channel="plat")
            await bench.clock.settle()

    bench.run(main())
    assert "nobody acknowledged it (policy manual)" in caplog.text


def test_a_refusal_has_the_platform_deliver_it_again(bench: Bench) -> None:
    """ACKP-6, RCV-4: the run counts as failed, and the next one is acknowledged."""

    async def handler(inbound: Any) -> None:
        if inbound.attempt == 1:
            inbound.nack("not now")
            return
        await inbound.reply("now")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler, ack="after_durable_send") as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            with pytest.raises(NotPossible, match="not now"):
                await taken.done
            again = await gateway.receive(update(1), channel="plat")
            assert (again.repeated, again.reached) == (True, False)
            await bench.clock.until(lambda: bench.platform.texts, within_s=60)
            await again.done

    bench.run(main())
    assert bench.platform.texts == ["now"]


def test_what_was_acknowledged_cannot_be_refused(bench: Bench) -> None:
    """ACKP-6: the platform would not deliver it again."""

    async def main() -> None:
        async with (
            bench.gateway(channel(bench)) as gateway,
            gateway.receiving(update(3), channel="plat", ack="after_record") as inbound,
        ):
            with pytest.raises(NotPossible, match="was acknowledged"):
                inbound.nack("too late")

    bench.run(main())


@pytest.mark.parametrize("policy", ["after_record", "after_durable_send", "manual"])
def test_a_dropped_message_is_acknowledged_at_once(bench: Bench, policy: str) -> None:
    """ACKP-3, ADP-3: there is no turn to wait for; the core drops it, whatever the channel thinks."""

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=Agent(), authorize=lambda _: False, ack=policy) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            assert taken.reached

    bench.run(main())
    assert [event.type for event in bench.events() if event.type.startswith(("In", "Ack"))] == [
        "InboundDropped",
        "Acknowledged",
    ]


def test_a_held_message_is_acknowledged(bench: Bench) -> None:
    """ACKP-3: a person has to decide, so the platform need not repeat it for ever."""

    async def handler(inbound: Any) -> None:
        inbound.fail("never", retry=False)

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler, ack="after_durable_send") as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await taken.done
            assert gateway.store.state_of(taken.inbound).hold == "rejected"

    bench.run(main())
    assert turns(bench)["in-1"][-2:] == ["InboundFailed", "Acknowledged"]


def test_nothing_is_acknowledged_that_could_not_be_recorded(bench: Bench) -> None:
    """SC-59, SC-58: the ledger is locked: the caller hears it, and the platform delivers again."""
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent, lock_wait_s=0.2) as gateway:
            with bench.locked():
                with pytest.raises(StoreLocked):
                    await gateway.receive(update(1), channel="plat")
                with pytest.raises(StoreLocked):
                    async with gateway.receiving(update(2), channel="plat"):
                        raise AssertionError("the block must not begin")
            assert turns(bench) == {}
            taken = await gateway.receive(update(1), channel="plat")
            assert not taken.repeated
            await bench.clock.settle()

    bench.run(main())
    assert agent.texts == ["hello there"]


def test_a_turn_waits_for_a_ledger_that_is_locked(bench: Bench) -> None:
    """SC-59: its end is not lost, and the handler does not run twice."""
    runs: list[int] = []
    gate = asyncio.Event()

    async def handler(inbound: Any) -> None:
        runs.append(inbound.attempt)
        await gate.wait()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler, lock_wait_s=0.05) as gateway:
            taken = await gateway.receive(update(1), channel="plat", ack="after_durable_send")
            await soon(bench, lambda: runs)
            with bench.locked():
                gate.set()
                await asyncio.sleep(0.3)
                assert not await reached(taken)
            await soon(bench, lambda: "InboundCompleted" in turns(bench)["in-1"])
            await taken.done

    bench.run(main())
    assert runs == [1]


@pytest.mark.parametrize(
    ("ack", "said"),
    [
        ("immediate", "needs its reason: webhook-timeout or platform-contract"),
        ("immediate:because", "needs its reason"),
        ("after_record:webhook-timeout", "needs its reason"),
        ("sometimes", "there is immediate, after_record, after_durable_send, manual"),
        ({"plat": "never"}, "ack 'never' of channel 'plat'"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_at_the_start(bench: Bench, ack: Any, said: str) -> None:
    """ACKP-1: what is given up has a reason."""

    async def main() -> None:
        with pytest.raises(InvalidConfig, match=said):
            await bench.gateway(channel(bench), ack=ack).start()

    bench.run(main())


def test_a_sign_for_people_is_no_acknowledgement() -> None:
    """ACKK-4, ACKP-5: it moves nothing, whatever the policy."""
    for policy in ("after_record", "after_durable_send", "manual"):
        event = i.InboundRecorded(
            at=AT, by="x", event_key="e", channel="c", account="a", lane="l", place="p", ack=policy
        )
        state = evolve(None, "s", event, 1, AT)
        seen = evolve(state, "s", i.Acknowledged(at=AT, by="x", ack="visible", policy=policy), 2, AT)
        assert isinstance(seen, inbound.InboundState)
        assert seen.acknowledged_at is None
        assert not known(seen, i.Acknowledged(at=AT, by="x", ack="transport", policy=policy))


steps = st.lists(st.sampled_from(("dispatch", "fail", "hold", "complete", "ack", "visible", "drop")), max_size=12)


@given(steps, st.sampled_from(("immediate", "after_record", "after_durable_send", "manual")))
def test_whatever_happens_it_is_acknowledged_once_and_not_early(history: list[str], policy: Any) -> None:
    """ACKP-6, ACKP-3, RCV-1: over any order of steps; what cannot follow is refused by the decisions."""
    event = i.InboundRecorded(at=AT, by="x", event_key="e", channel="c", account="a", lane="l", place="p", ack=policy)
    state: Any = evolve(None, "s", event, 1, AT)
    told = 0

    def take(*events: Any) -> None:
        nonlocal state, told
        for one in events:
            if not known(state, one):
                told += isinstance(one, i.Acknowledged) and one.ack != "visible"
                state = evolve(state, "s", one, 2, AT)

    take(*inbound.acknowledgement(state, at=AT, by="x"))
    for step in history:
        try:
            match step:
                case "dispatch":
                    made: tuple[Any, ...] = (inbound.dispatched(state, "first", at=AT, by="x", owner="w"),)
                case "fail":
                    made = (inbound.failed(state, state.runs, "E", "", at=AT, by="x"),)
                case "hold":
                    made = (inbound.failed(state, state.runs, "E", "", at=AT, by="x", final=True),)
                case "complete":
                    made = (inbound.completed(state, state.runs, (), at=AT, by="x"),)
                case "drop":
                    made = (inbound.dropped(state, "why", at=AT, by="x"),)
                case "visible":
                    made = (i.Acknowledged(at=AT, by="x", ack="visible", policy=policy),)
                case _:
                    made = (
                        (i.Acknowledged(at=AT, by="x", ack="transport", policy=policy),) if policy == "manual" else ()
                    )
        except NotPossible:
            continue
        take(*made)
        take(*inbound.acknowledgement(state, at=AT, by="x"))
        assert told <= 1
        if policy == "after_durable_send":
            assert told == (1 if state.settled or state.acknowledged_at is not None else 0)
