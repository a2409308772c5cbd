"""Lanes: first in, first out, one at a time; what frees one, and what goes around it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgledger import Message, Status
from msgledger.ledger import events as e
from msgledger.ledger.outcome import Cause
from msgledger.ledger.store.append import Append
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS
from msgledger.projections.intents import heads

from .kit import SHORT, Bench, parts, text, to
from .platform import DEADLINE_S, SETTLE_S, Request, accept, drop, gated, lose, refuse, reject


def test_order_is_kept_through_failures_and_restarts(bench: Bench) -> None:
    """GAP-8, G6, OB-21: later ones wait for the first, whatever happens to it."""

    async def main() -> None:
        bench.platform.plan(refuse, reject("transient"), reject("rate_limit", retry_after_s=30))
        async with bench.gateway() as gateway:
            for number in range(6):
                await gateway.send(text(f"{number}"), wait=False)
            await bench.clock.advance(2)
        for _ in range(3):
            async with bench.gateway():
                await bench.clock.advance(30)
        assert bench.platform.texts == [f"{number}" for number in range(6)]

    bench.run(main())


def test_one_of_a_lane_is_in_flight(bench: Bench) -> None:
    """R7, GAP-8: the record of the second is committed, its claim is not."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as gateway:
            first = await gateway.send(text("first"), timeout_s=0.05)
            second = await gateway.send(text("second"), timeout_s=0.05)
            assert (first.status, second.status) == (Status.SENDING, Status.PENDING)
            assert bench.types(second.intent) == ["IntentRecorded"]
            gate.set()
            assert (await second.wait(5)).status is Status.SENT
        assert bench.platform.texts == ["first", "second"]

    bench.run(main())


def test_many_at_once_go_out_in_the_order_of_recording(bench: Bench) -> None:
    """G6, R7: sends that race for one lane."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            await asyncio.gather(*(gateway.send(text(f"{n:03}"), timeout_s=20) for n in range(40)))
            recorded = [
                one.data["content"]["batch"]["units"][0]["text"]
                for one in bench.events()
                if one.type == "IntentRecorded"
            ]
        assert bench.platform.texts == recorded
        assert len(recorded) == 40

    bench.run(main())


def test_one_that_is_recorded_while_the_lanes_are_read_is_not_forgotten(bench: Bench) -> None:
    """G6, SC-24: what was read is older than the messages; the second goes out when the first has ended."""

    async def main() -> None:
        gate, read = asyncio.Event(), asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            real: Any = gateway.store.read
            late: list[asyncio.Future[Any]] = []

            async def slowly(found: asyncio.Future[Any]) -> Any:
                answer = await found
                await read.wait()
                return answer

            def reading(work: Any, *arguments: Any) -> Any:
                found = real(work, *arguments)
                if work is not heads or late:
                    return found
                late.append(asyncio.ensure_future(slowly(found)))
                return late[0]

            gateway.store.read = reading  # type: ignore[method-assign]
            gateway.dispatcher.wake()
            while not late:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            first = await gateway.send(text("first"), wait=False)
            second = await gateway.send(text("second"), wait=False)
            read.set()
            while not late[0].done() or gateway.dispatcher._wake.is_set():
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            gate.set()
            assert (await first.wait(5)).status is Status.SENT
            await bench.clock.advance(10)
            assert (await second.wait(0.1)).status is Status.SENT
        assert bench.platform.texts == ["first", "second"]

    bench.run(main())


def test_a_message_recorded_unordered_goes_around_and_blocks_nobody(bench: Bench) -> None:
    """GAP-8, G6: it waits for none, and none waits for it."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as gateway:
            await gateway.send(text("first"), timeout_s=0.05)
            around = await gateway.send(text("around"), ordered=False)
            assert around.status is Status.SENT
            gate.set()
            await bench.clock.settle()
            bench.platform.plan(reject("rate_limit", retry_after_s=3600))
            await gateway.send(text("unordered, waits"), ordered=False)
            assert (await gateway.send(text("last"))).status is Status.SENT
        assert bench.platform.texts == ["around", "first", "last"]

    bench.run(main())


def test_another_thread_account_or_room_is_another_lane(bench: Bench) -> None:
    """GAP-8, REC-10: the lane is channel, account and target with its thread."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        channels = bench.platform.channel(account="one"), bench.platform.channel(account="two")
        async with bench.gateway(*channels) as gateway:
            await gateway.send(text("stuck", account="one"), timeout_s=0.05)
            targets = [to(thread="thread-9"), to("another-room"), to(space="another-space")]
            for target in targets:
                assert (await gateway.send(Message.text("x", to=target, account="one"))).status is Status.SENT
            assert (await gateway.send(text("x", account="two"))).status is Status.SENT
            gate.set()

    bench.run(main())


def test_an_unknown_outcome_keeps_its_lane_until_its_lease_ends(bench: Bench) -> None:
    """R6, GAP-5: without a look-up it is held then, and the lane goes on; it is not sent again."""

    async def main() -> None:
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            began = bench.clock.boot_ms()
            await gateway.send(text("who knows"))
            await gateway.send(text("behind it"), wait=False)
            await bench.clock.advance(DEADLINE_S + SETTLE_S - 0.5)
            assert len(bench.platform.requests) == 1
            await bench.clock.advance(5)
            assert bench.platform.texts == ["behind it"]
        assert bench.platform.requests[1].at - began >= (DEADLINE_S + SETTLE_S) * 1000

    bench.run(main())


def test_with_a_look_up_it_is_held_a_minute_after_that(bench: Bench) -> None:
    """R6: what nothing has settled 60 s after the lease end lets the lane go on."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.proves_absence = False
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            began = bench.clock.boot_ms()
            await gateway.send(text("who knows"))
            await gateway.send(text("behind it"), wait=False)
            await bench.clock.until(lambda: bench.platform.texts == ["behind it"], within_s=120)
        waited = bench.platform.requests[1].at - began
        lease_ms = (DEADLINE_S + SETTLE_S) * 1000
        assert lease_ms + 60_000 <= waited <= lease_ms + 65_000

    bench.run(main())


def test_a_discarded_intent_frees_its_lane_only_at_its_lease_end(bench: Bench) -> None:
    """R6: its request may still land."""
    from msgledger.ledger import decide
    from msgledger.ledger.store.apply import apply

    async def main() -> None:
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            unknown = await gateway.send(text("who knows"))

            def discard(state: Any) -> e.Event:
                return decide.resolved(state, "discard", "never mind", at=bench.clock.wall_ms(), by="operator:a@b")

            await apply(gateway.store, unknown.intent, discard)
            await gateway.send(text("behind it"), wait=False)
            await bench.clock.advance(DEADLINE_S + SETTLE_S - 0.5)
            assert len(bench.platform.requests) == 1
            await bench.clock.advance(5)
        assert bench.platform.texts == ["behind it"]

    bench.run(main())


def test_a_unit_whose_deadline_has_passed_is_not_begun(bench: Bench) -> None:
    """R9, SC-13: the last look stops it, with proof; the next attempt sends the rest."""

    async def slow(request: Request) -> Any:
        bench.clock._boot += int(DEADLINE_S * 1000) + 1
        return await accept(request)

    async def main() -> None:
        bench.platform.plan(slow)
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            delivery = await gateway.send(text(parts(2)))
            await bench.clock.advance(30)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert [(r.unit.index, r.context.attempt) for r in bench.platform.requests] == [(0, 1), (1, 2)]
        failed = bench.last(delivery.intent, "AttemptFailed")
        assert (failed["code"], failed["proof"], failed["bytes_left"]) == ("superseded", "never_dispatched", False)

    bench.run(main())


def test_an_attempt_that_somebody_else_went_on_with_begins_no_further_unit(bench: Bench) -> None:
    """R9, G5: what the late owner learned is recorded; its next unit is the other's business."""

    async def taken(request: Request) -> Any:
        bench.clock._boot += 2_000
        event = e.OutcomeUnknown(at=bench.clock.wall_ms(), by="worker:other", attempt=1, unit=0, cause=Cause.OWNER_LOST)
        with Store.open(bench.path, VIEWS, wall_ms=bench.clock.wall_ms) as other:
            head = other.state_of(request.context.intent).head  # type: ignore[union-attr]
            other.append_sync(Append(request.context.intent, (event,), expected=head))
        return await accept(request)

    async def main() -> None:
        bench.platform.plan(taken)
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            delivery = await gateway.send(text(parts(2)), timeout_s=2)
            await bench.clock.advance(30)
            state = (await gateway.intent(delivery.intent)).state
            assert (state.status, state.platform_ids) == (Status.SENT, ("m1", "m2"))
        assert [(r.unit.index, r.context.attempt) for r in bench.platform.requests] == [(0, 1), (1, 2)]

    bench.run(main())


@pytest.mark.parametrize("ends", ["cancelled", "failed", "expired"])
def test_an_end_lets_the_next_one_go(bench: Bench, ends: str) -> None:
    """GAP-8, R6: terminal is out of the way at once."""

    async def main() -> None:
        bench.platform.plan(reject("invalid_payload") if ends == "failed" else refuse)
        async with bench.gateway() as gateway:
            first = await gateway.send(text("first"), max_age_s=1 if ends == "expired" else None)
            second = await gateway.send(text("second"), wait=False)
            if ends == "cancelled":
                await gateway.cancel(first, "never mind")
            bench.platform.plan(*([refuse] * 3 if ends == "expired" else []))
            await bench.clock.advance(120)
            assert (await gateway.intent(second.intent)).state.status is Status.SENT
        assert bench.platform.texts[-1] == "second"

    bench.run(main())


def test_a_lost_answer_found_keeps_the_order(bench: Bench) -> None:
    """G6, UNK-3: the second follows once the first is known."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.lag_s = 8
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            await gateway.send(text("first"))
            await gateway.send(text("second"), wait=False)
            await bench.clock.advance(60)
        assert bench.platform.texts == ["first", "second"]

    bench.run(main())


@pytest.mark.parametrize("held_open", [False, True], ids=["send", "sending"])
def test_a_claim_whose_commit_nobody_has_heard_of_is_ours(bench: Bench, held_open: bool) -> None:
    """G5: the loop may find the attempt in the ledger before this process hears that it was committed."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            append, heard = gateway.store.append, asyncio.Event()

            def slow(*items: Append) -> asyncio.Future[Any]:
                async def late(real: asyncio.Future[Any]) -> Any:
                    result = await real
                    await heard.wait()
                    return result

                claims = any(isinstance(event, e.AttemptStarted) for item in items for event in item.events)
                return asyncio.ensure_future(late(append(*items))) if claims else append(*items)

            async def send() -> Status:
                if not held_open:
                    return (await gateway.send(text("once"))).status
                async with gateway.sending(text("once")) as transaction:
                    return (await transaction.send()).status

            gateway.store.append = slow
            sending = asyncio.ensure_future(send())
            while bench.types_of_intents() != ["IntentRecorded", "AttemptStarted"]:
                await asyncio.sleep(0.001)
            for _ in range(3):
                await gateway.dispatcher._pass()
                await bench.clock.advance(2)
            heard.set()
            assert await asyncio.wait_for(sending, 5) is Status.SENT
        assert bench.types_of_intents()[-2:] == ["UnitAccepted", "IntentCommitted"]
        assert bench.platform.texts == ["once"]

    bench.run(main())
