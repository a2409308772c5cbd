"""Receiving: the steps in their order, the messages in theirs, and what goes wrong between them."""

from __future__ import annotations

import asyncio
from typing import Any

import apsw
import pytest
from msgledger import Message
from msgledger.ledger.errors import InvalidMessage, NotPossible, UnknownChannel
from msgledger.lifecycle import receive as ways_in
from msgledger.lifecycle.inbound import acks, flow
from msgledger.lifecycle.inbound import turns as dispatcher

from .inbound_kit import DONE, Agent, channel, normalize, soon, turns, update
from .kit import Bench, to


def test_the_steps_come_in_one_order(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """RCV-2, TU-6: normalize, gate, rule, record, dispatch, send, end, acknowledge."""
    trace: list[str] = []

    for module in (flow, dispatcher, acks, ways_in):
        monkeypatch.setattr(module, "crash_point", trace.append)

    def spelled(event: Any) -> Any:
        trace.append("normalize")
        return normalize(event)

    def key(event: Any) -> str:
        trace.append("key")
        return str(event["update"])

    def rule(incoming: Any) -> bool:
        trace.append("authorize")
        return True

    async def handler(inbound: Any) -> None:
        trace.append("handler")
        await inbound.reply("yes")
        trace.append("owed")

    async def main() -> None:
        plat = bench.platform.channel(normalize=spelled, dedupe_key=key)
        async with bench.gateway(plat, on_message=handler, authorize=rule, ack="after_durable_send") as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await taken.done

    bench.run(main())
    assert trace == [
        *("key", "normalize", "after-normalize", "authorize", "after-gate"),
        *("before-inbound", "after-inbound"),
        *("handler", "owed", "after-handler", "before-acknowledge", "after-completion"),
    ]


def test_messages_of_one_conversation_are_answered_in_order(bench: Bench) -> None:
    """SC-33, RCV-1: however long the first one takes; another conversation does not wait."""
    agent = Agent()

    async def main() -> None:
        agent.gate = asyncio.Event()
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            for number in range(4):
                await gateway.receive(update(number, f"text {number}"), channel="plat")
            await gateway.receive(update(9, "elsewhere", chat="room-two"), channel="plat")
            await gateway.receive(update(10, "in a thread", thread="th-1"), channel="plat")
            await soon(bench, lambda: len(agent.texts) == 3)
            assert sorted(agent.texts) == ["elsewhere", "in a thread", "text 0"]
            agent.gate.set()
            await bench.clock.settle()

    bench.run(main())
    here = [text for text in agent.texts if text.startswith("text")]
    assert here == [f"text {number}" for number in range(4)]
    assert [one.text for one in bench.platform.visible if one.text.startswith("re: text")] == [f"re: {t}" for t in here]


def test_a_block_waits_for_the_turn_before_it(bench: Bench) -> None:
    """SC-33: also where the caller has the turns in blocks of its own."""
    order: list[str] = []

    async def main() -> None:
        async with bench.gateway(channel(bench)) as gateway:
            gate = asyncio.Event()

            async def one(number: int) -> None:
                async with gateway.receiving(update(number, f"text {number}"), channel="plat") as inbound:
                    order.append(f"begin {number}")
                    if number == 1:
                        await gate.wait()
                    await inbound.reply(f"re: {inbound.message.text}")
                    order.append(f"end {number}")

            first = asyncio.create_task(one(1))
            while order != ["begin 1"]:
                await asyncio.sleep(0.001)
            second = asyncio.create_task(one(2))
            await asyncio.sleep(0.05)
            assert order == ["begin 1"]
            gate.set()
            await asyncio.gather(first, second)

    bench.run(main())
    assert order == ["begin 1", "end 1", "begin 2", "end 2"]


def test_an_event_that_comes_again_while_its_answer_is_under_way(bench: Bench) -> None:
    """F19, RCV-5: starts nothing; a block of its own for it ends at once."""
    agent = Agent()
    seen: list[str | None] = []

    async def main() -> None:
        agent.gate = asyncio.Event()
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            await gateway.receive(update(1), channel="plat")
            await agent.begun.wait()
            assert (await gateway.receive(update(1), channel="plat")).repeated
            async with gateway.receiving(update(1), channel="plat") as inbound:
                seen.append(inbound.skipped)
                await inbound.reply("a second answer")
            agent.gate.set()
            await bench.clock.settle()

    bench.run(main())
    assert seen == ["repeated"]
    assert bench.platform.texts == ["re: hello there"]
    assert turns(bench) == {"in-1": DONE}


def test_two_gateways_share_the_turns(bench: Bench) -> None:
    """G10, RCV-3: an event that both are handed runs on one of them; a lane runs on one at a time."""
    agents = Agent(), Agent()

    async def main() -> None:
        async with (
            bench.gateway(channel(bench), on_message=agents[0]) as one,
            bench.gateway(channel(bench), on_message=agents[1], seed=8) as other,
        ):
            for number in range(6):
                event = update(number, f"text {number}", chat=f"room-{number % 2}")
                await asyncio.gather(*(gateway.receive(event, channel="plat") for gateway in (one, other)))
            await bench.clock.until(lambda: len(bench.platform.texts) == 6, within_s=30)
            await bench.clock.settle()

    bench.run(main())
    assert sorted(agents[0].texts + agents[1].texts) == [f"text {number}" for number in range(6)]
    for room in range(2):
        here = [one.text for one in bench.platform.visible if one.place == f"room-{room}"]
        assert here == sorted(here)


def test_the_turn_of_a_dead_worker_is_taken_over_by_a_living_one(bench: Bench) -> None:
    """SC-49, RCV-4: fenced like a send; while the owner lives, it is left alone."""
    first, second = Agent(), Agent()

    async def main() -> None:
        first.gate = asyncio.Event()
        dying = bench.gateway(channel(bench), on_message=first)
        await dying.start()
        async with bench.gateway(channel(bench), on_message=second, seed=8):
            await dying.receive(update(1), channel="plat")
            await first.begun.wait()
            bench.clock.free = True
            await bench.clock.advance(5)
            assert second.runs == [], "the owner lives"
            await dying.kill()
            await soon(bench, lambda: second.runs)
            await bench.clock.settle()

    bench.run(main())
    assert second.runs == [("hello there", 2)]
    assert bench.platform.texts == ["re: hello there"]


def test_a_zombie_cannot_end_what_was_taken_over(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """SC-49: its end names a run that is over."""
    agent = Agent()

    async def main() -> None:
        agent.gate = asyncio.Event()
        zombie = bench.gateway(channel(bench), on_message=agent)
        await zombie.start()
        await zombie.receive(update(1), channel="plat")
        await agent.begun.wait()
        zombie._owner.release()  # everybody else takes it for dead
        other = Agent()
        async with bench.gateway(channel(bench), on_message=other, seed=8):
            await soon(bench, lambda: "InboundCompleted" in turns(bench)["in-1"])
            agent.gate.set()
            await bench.clock.settle()
        await zombie.close()

    bench.run(main())
    assert bench.platform.texts == ["re: hello there"]
    assert turns(bench)["in-1"].count("InboundCompleted") == 1
    assert "run 1 was over before it ended" in caplog.text


def test_a_stream_that_cannot_be_read_stops_nobody(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """SC-60, SC-56: it is reported, and other conversations go on."""
    agent = Agent()

    async def main() -> None:
        agent.gate = asyncio.Event()
        gateway = bench.gateway(channel(bench), on_message=agent)
        await gateway.start()
        taken = await gateway.receive(update(1, "damaged"), channel="plat")
        await gateway.receive(update(2, "behind"), channel="plat")
        await gateway.receive(update(3, "elsewhere", chat="room-two"), channel="plat")
        await agent.begun.wait()
        await gateway.kill()
        connection = apsw.Connection(str(bench.path))
        connection.execute(
            "UPDATE stored_events SET topic = 'FromTheFuture' WHERE originator_id = ? AND originator_version = 1",
            (taken.inbound,),
        )
        connection.close()
        agent.gate, agent.runs = None, []
        async with bench.gateway(channel(bench), on_message=agent):
            await bench.clock.until(lambda: agent.runs, within_s=30)
            await bench.clock.settle()

    bench.run(main())
    assert "elsewhere" in agent.texts
    assert "damaged" not in agent.texts
    assert "cannot be run now" in caplog.text


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"update": 1},
        {"update": 1, "text": None, "chat": "c", "from": "f"},
        {"update": None, "text": "x"},
        {"update": 1, "text": "\ud800", "chat": "c", "from": "f"},
        {"update": "9" * 600, "text": "x", "chat": "c", "from": "f"},
    ],
)
def test_an_event_that_cannot_be_read_is_kept_as_dropped(bench: Bench, event: dict[str, Any]) -> None:
    """ADP-3, RCV-3: by the core, with the reason; it is known when it comes again, and the next one is answered."""
    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent) as gateway:
            assert (await gateway.receive(event, channel="plat")).reached
            assert (await gateway.receive(event, channel="plat")).repeated
            await gateway.receive(update(77), channel="plat")
            await bench.clock.settle()

    bench.run(main())
    [dropped] = [one.data for one in bench.events() if one.type == "InboundDropped"]
    assert dropped["reason"] == "unsupported"
    assert agent.texts == ["hello there"]


def test_who_may_not_be_answered_leaves_no_words(bench: Bench) -> None:
    """ADP-3: the gateway's own rule, with its reason; nothing of the text is kept."""

    async def rule(incoming: Any) -> bool | str:
        return "not on the list" if incoming.message.sender == "person-eve" else True

    agent = Agent()

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=agent, authorize=rule) as gateway:
            await gateway.receive(update(1, "an unwanted secret", **{"from": "person-eve"}), channel="plat")
            await gateway.receive(update(2), channel="plat")
            await bench.clock.settle()

    bench.run(main())
    [dropped] = [one.data for one in bench.events() if one.type == "InboundDropped"]
    assert (dropped["reason"], dropped["note"]) == ("unauthorised", "not on the list")
    assert agent.texts == ["hello there"]
    assert b"an unwanted secret" not in bench.path.read_bytes()


def test_every_way_in_is_receive(bench: Bench) -> None:
    """AC-2, CORE-3: a driver, a call and a block leave the same events; a channel without a receiving side says so."""

    async def main() -> None:
        async with bench.gateway(channel(bench), bench.other("mute").channel(), on_message=Agent()) as gateway:
            await gateway.intake("plat").take(update(1))
            await gateway.receive(update(2), channel="plat")
            async with gateway.receiving(update(3), channel="plat") as inbound:
                await inbound.reply("yes")
            await bench.clock.settle()
            with pytest.raises(InvalidMessage, match="'mute' receives nothing"):
                await gateway.receive(update(4), channel="mute", ack="after_record")
            with pytest.raises(UnknownChannel, match="there is mute/default, plat/default"):
                await gateway.receive(update(4), channel="nowhere")

    bench.run(main())
    assert turns(bench) == {"in-1": DONE, "in-2": DONE, "in-3": DONE}


def test_a_turn_sends_nothing_once_it_is_over(bench: Bench) -> None:
    """RCV-1: what goes on behind its back is no part of it."""
    kept: list[Any] = []

    async def handler(inbound: Any) -> None:
        kept.append(inbound)

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            await gateway.receive(update(1), channel="plat")
            await bench.clock.settle()
            with pytest.raises(NotPossible, match="is over: send with the gateway"):
                await kept[0].reply("too late")

    bench.run(main())


def test_a_turn_may_send_more_than_its_answer(bench: Bench) -> None:
    """OB-22, RCV-4: each has its own place in the turn, so that a second run repeats none of them."""

    async def handler(inbound: Any) -> None:
        await inbound.reply("one")
        await inbound.send(Message.text("two", to=to("room-elsewhere")))
        third = await inbound.reply("three")
        await inbound.edit(third, Message.text("three, better", to=to()))
        if inbound.attempt == 1:
            raise RuntimeError("after all of it")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            await bench.clock.until(lambda: "InboundCompleted" in bench.types(taken.inbound), within_s=60)
            assert len(bench.last(taken.inbound, "InboundCompleted")["intents"]) == 4
            assert len(await gateway.intents(inbound=taken.inbound)) == 4

    bench.run(main())
    assert bench.platform.texts == ["one", "two", "three"]
    assert [one[0] for one in bench.platform.log] == ["edit"]


def test_a_restart_between_the_answer_and_its_sending_keeps_the_answer(bench: Bench) -> None:
    """TI-8, OB-22: the platform was away, the process died, the turn had owed it."""
    bench.platform.ready = False
    agent = Agent()

    async def main() -> None:
        gateway = bench.gateway(channel(bench), on_message=agent)
        await gateway.start()
        await gateway.receive(update(1), channel="plat")
        await bench.clock.settle()
        assert turns(bench) == {"in-1": DONE}
        await gateway.kill()
        bench.platform.ready = True
        async with bench.gateway(channel(bench), on_message=agent):
            await bench.clock.until(lambda: bench.platform.texts, within_s=30)

    bench.run(main())
    assert agent.runs == [("hello there", 1)]
    assert bench.platform.texts == ["re: hello there"]


def test_a_handler_that_takes_too_long_is_cut_off(bench: Bench) -> None:
    """RCV-4: it counts as a bad end, and runs again."""
    runs: list[int] = []

    async def handler(inbound: Any) -> None:
        runs.append(inbound.attempt)
        if inbound.attempt == 1:
            await asyncio.Event().wait()
        await inbound.reply("in time")

    async def main() -> None:
        async with bench.gateway(channel(bench), on_message=handler, turn_timeout_s=0.05) as gateway:
            taken = await gateway.receive(update(1), channel="plat")
            while "InboundFailed" not in bench.types(taken.inbound):
                await asyncio.sleep(0.005)
            assert bench.last(taken.inbound, "InboundFailed")["error"] == "TimeoutError"
            await bench.clock.until(lambda: bench.platform.texts, within_s=60)

    bench.run(main())
    assert runs == [1, 2]
