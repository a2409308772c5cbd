"""Targets that only the callback which came with them can reach: never a generic send, never another place, an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgledger import External, InvalidMessage, Message, NoSend, NotPossible, Rejected, Status, Target
from msgledger.ledger import decide
from msgledger.ledger.message import Reply
from msgledger.ledger.store.apply import apply

from .bridge_kit import Own, message_of, nothing_recorded, until
from .kit import Bench, TestGateway, text, to
from .platform import gated

PRIVATE = Target.group("plat", "interaction-token-1", replayable=False)


def private(words: str, **more: Any) -> Message:
    return Message.text(words, to=PRIVATE, **more)


@pytest.mark.parametrize("way", ["send", "wait", "best_effort", "disabled", "sending"])
def test_no_generic_send_is_attempted(bench: Bench, way: str) -> None:
    """TGT-2, SC-54: refused before anything is recorded, with the way that there is."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            ways: dict[str, Any] = {
                "send": lambda: gateway.send(private("hello")),
                "wait": lambda: gateway.send(private("hello"), wait=False),
                "best_effort": lambda: gateway.send(private("hello"), durability="best_effort"),
                "disabled": lambda: gateway.send(private("hello"), durability="disabled"),
                "sending": lambda: gateway.sending(private("hello")).__aenter__(),
            }
            with pytest.raises(InvalidMessage, match=r"gateway\.bridge"):
                await ways[way]()
            await bench.clock.settle()
            assert (bench.platform.requests, nothing_recorded(bench)) == ([], True)

    bench.run(main())


@pytest.mark.parametrize("durable", [None, True], ids=["own", "recorded"])
@pytest.mark.parametrize("channel", ["delivers", "external"])
def test_the_callback_is_authoritative(bench: Bench, durable: Any, channel: str) -> None:
    """TGT-2, MIG-9, MIG-4: called first and once; a policy records its answer, and the channel stays unused."""

    async def main() -> None:
        own = Own(bench)
        configured = bench.platform.channel() if channel == "delivers" else External("plat")
        async with bench.gateway(configured) as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=durable)
            outcome = await bridge.deliver({"text": "hello", "to": PRIVATE, "reply": Reply(reply_to="m1", quote="q")})
            assert (outcome.path, outcome.durable) == ("recorded" if durable else "own", False)
            assert outcome.receipt.platform_ids == ("own1",)
            assert (own.shown, own.before, bench.platform.requests) == (["hello"], [0], [])
            if durable:
                assert bench.types(outcome.intent)[-1] == "IntentCommitted"
                assert bench.last(outcome.intent, "IntentRecorded")["callback"] == gateway.worker

    bench.run(main())


async def recorded_behind(gateway: TestGateway, bench: Bench, own: Own) -> str:
    """A private answer whose callback has not been called yet: an earlier one of its conversation is under way."""
    gate = asyncio.Event()

    async def busy() -> str:
        await gate.wait()
        return "never"

    turn = gateway.bridge("plat", own.deliver).turn()
    tasks = [asyncio.create_task(turn.run_prepared(busy, record=private("first")))]
    await until(lambda: bench.types_of_intents() == ["IntentRecorded", "AttemptStarted"])
    bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
    tasks.append(asyncio.create_task(bridge.deliver({"text": "private", "to": PRIVATE})))
    await until(lambda: bench.types_of_intents().count("IntentRecorded") >= 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [event.stream for event in bench.events() if event.type == "IntentRecorded"][-1]


@pytest.mark.parametrize("next_channel", ["delivers", "external"])
def test_on_restart_it_ends_with_its_reason(bench: Bench, next_channel: str) -> None:
    """TGT-2, SC-54, G7: whatever channel is there by then, nothing is sent to it or in its stead."""

    async def main() -> None:
        own = Own(bench)
        gateway = bench.gateway(bench.platform.channel(deadline_s=0.3))
        await gateway.start()
        intent = await recorded_behind(gateway, bench, own)
        assert bench.types(intent) == ["IntentRecorded"]
        await gateway.kill()
        configured = bench.platform.channel() if next_channel == "delivers" else External("plat")
        async with bench.gateway(configured) as later:
            await bench.clock.advance(90)  # the first of the lane is in doubt until its lease end
            state = (await later.intent(intent)).state
            assert (state.status, state.reason, state.code) == (Status.FAILED, "expired", "callback_gone")
            assert state.attempts == 0
            assert [(row.status, row.hold) for row in await later.owed(channel="plat")] == [
                ("unknown_after_send", "unresolved")
            ]
        assert (own.shown, bench.platform.requests) == ([], [])

    bench.run(main())


def test_another_process_leaves_it_to_the_one_that_can(bench: Bench) -> None:
    """TGT-2, G5: while the process with the callback lives, nobody else ends or sends it."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway(bench.platform.channel(deadline_s=0.3)) as gateway, bench.gateway() as other:
            intent = await recorded_behind(gateway, bench, own)
            await bench.clock.advance(5)
            assert (await other.intent(intent)).state.status is Status.PENDING
            await bench.clock.advance(90)
            state = (await other.intent(intent)).state
            assert (state.status, state.platform_ids) == (Status.SENT, ("own1",))
            assert bench.last(intent, "AttemptStarted")["owner"] == gateway.worker
        assert (own.shown, bench.platform.requests) == (["private"], [])

    bench.run(main())


def test_a_process_that_dies_in_the_callback_leaves_doubt(bench: Bench) -> None:
    """TGT-2, G4, UNK-1: it may have been seen; it is held for a person, and `not sent` does not reopen it."""

    async def main() -> None:
        calls: list[str] = []

        async def deliver(payload: Any) -> Any:
            calls.append(payload["text"])
            await asyncio.Event().wait()

        gateway = bench.gateway()
        await gateway.start()
        bridge = gateway.bridge("plat", deliver, project=message_of, durable=True)
        task = asyncio.create_task(bridge.deliver({"text": "private", "to": PRIVATE}))
        await until(lambda: calls)
        await gateway.kill()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        intent = bench.events()[-1].stream
        async with bench.gateway() as later:
            await bench.clock.advance(90)
            state = (await later.intent(intent)).state
            assert (state.status, state.hold) == (Status.UNKNOWN, "unresolved")
            at = bench.clock.wall_ms()
            await apply(
                later.store, intent, lambda now: decide.resolved(now, "not-sent", "asked", at=at, by="operator:a@h")
            )
            later.dispatcher.wake()
            await bench.clock.advance(90)
            state = (await later.intent(intent)).state
            assert (state.status, state.reason, state.code) == (Status.FAILED, "expired", "callback_gone")
        assert (calls, bench.platform.requests) == (["private"], [])

    bench.run(main())


@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        (NoSend("muted"), Status.CANCELLED, "handled_no_send"),
        (Rejected("rate_limit", retry_after_s=5), Status.FAILED, "failed"),
        (TimeoutError("slow"), Status.UNKNOWN, "failed"),
    ],
    ids=["no send", "refused", "silence"],
)
def test_a_callback_is_called_once_whatever_it_says(bench: Bench, answer: Any, status: Status, kind: str) -> None:
    """TGT-2, SC-68, MIG-4: also where the platform asks to come back later."""

    async def main() -> None:
        own = Own(bench)
        own.answer = answer
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            outcome = await bridge.durably({"text": "hello", "to": PRIVATE})
            assert (outcome.kind, bool(outcome.reason)) == (kind, True)
            await bench.clock.advance(300)
            assert (await gateway.intent(outcome.intent)).state.status is status
            assert (len(own.before), bench.platform.requests) == (1, [])

    bench.run(main())


def test_the_four_calls_reach_it_too(bench: Bench) -> None:
    """TGT-2: while the process lives; the next one ends what was never attempted."""

    async def main() -> None:
        async with bench.gateway(External("plat")) as gateway:
            done = await gateway.delivered(await gateway.attempting(await gateway.record(private("one"))), "m1")
            assert done.status is Status.SENT
            left = await gateway.record(private("two"))
        async with bench.gateway(External("plat")) as gateway:
            await bench.clock.advance(5)
            state = (await gateway.intent(left)).state
            assert (state.status, state.reason, state.code) == (Status.FAILED, "expired", "callback_gone")
            with pytest.raises(NotPossible, match="ended"):
                await gateway.attempting(left)

    bench.run(main())


def test_it_waits_for_its_turn_among_ordinary_messages(bench: Bench) -> None:
    """TGT-2, R7, G6: one conversation, one order, whoever sends."""

    async def main() -> None:
        own = Own(bench)
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            place = to("room-4711", replayable=False)
            first = asyncio.create_task(gateway.send(text("ordinary")))
            await until(lambda: bench.platform.requests)
            second = asyncio.create_task(bridge.deliver({"text": "private", "to": place}))
            await until(lambda: bench.types_of_intents().count("IntentRecorded") >= 2)
            assert own.shown == []
            gate.set()
            await bench.clock.settle()
            await first
            outcome = await second
            assert (outcome.status, own.before) == (Status.SENT, [1])

    bench.run(main())
