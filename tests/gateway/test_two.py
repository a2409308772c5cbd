"""Two gateways over one file: one sends, the other sees it; living owners are left alone, dead ones are not."""

from __future__ import annotations

import asyncio
from typing import Any

from msgledger import Status
from msgledger.ledger import decide
from msgledger.ledger import events as e
from msgledger.ledger.store.append import Append
from msgledger.ledger.store.apply import apply
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from .kit import Bench, text
from .platform import DEADLINE_S, SETTLE_S, drop, gated, hang_visible, refuse, reject

LEASE_S = DEADLINE_S + SETTLE_S


def test_two_gateways_never_double_and_keep_the_order(bench: Bench) -> None:
    """G3, G5, G6, R7, OB-10, REC-2, SC-27, SC-28: a backlog and live messages from both, in shared lanes."""

    async def main() -> None:
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            for number in range(20):
                await gateway.send(text(f"a{number:03}", f"room-{number % 4:04}"), wait=False)
        bench.platform.ready = True
        async with bench.gateway(seed=1) as one, bench.gateway(seed=2) as two:
            for number in range(20):
                sender = one if number % 2 else two
                await sender.send(text(f"b{number:03}", f"room-{number % 4:04}"), wait=False)
                await bench.clock.advance(0.1)
            for _ in range(300):
                await bench.clock.advance(0.5)
                if len(bench.platform.texts) >= 40:
                    break
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            await bench.clock.advance(120)
            assert await one.owed() == []
        assert len(bench.platform.requests) == 40
        assert len(set(bench.platform.texts)) == 40
        by_room: dict[str, list[str]] = {}
        for seen in bench.platform.visible:
            by_room.setdefault(seen.place, []).append(seen.text)
        assert all(texts == sorted(texts) for texts in by_room.values())
        workers = {one.data["owner"] for one in bench.events() if one.type == "AttemptStarted"}
        assert len(workers) == 2

    bench.run(main())


def test_many_who_wait_do_not_ask_one_by_one_whenever_another_process_writes(bench: Bench) -> None:
    """G12, REC-10: reads stay few, and what the other process settles is heard of."""
    reads: list[Any] = []

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.rule = gated(gate)
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            sends = [
                asyncio.create_task(gateway.send(text(f"{n:03}"), key=f"key-{n}", timeout_s=60)) for n in range(200)
            ]
            while len(gateway.dispatcher.waiters.streams()) < 200 or bench.query("SELECT count(*) FROM intents") != [
                (200,)
            ]:
                await asyncio.sleep(0.01)
            real: Any = gateway.store.read

            def reading(work: Any, *arguments: Any) -> Any:
                reads.append(work)
                return real(work, *arguments)

            gateway.store.read = reading  # type: ignore[method-assign]
            last = bench.query("SELECT id FROM intents ORDER BY position DESC LIMIT 1")[0][0]
            with Store.open(bench.path, VIEWS, wall_ms=bench.clock.wall_ms) as other:
                at = bench.clock.wall_ms()
                await apply(other, last, lambda state: decide.cancelled(state, "not now", at=at, by="operator:x@y"))
                for _ in range(1000):
                    if sum(send.done() for send in sends):
                        break
                    await asyncio.sleep(0.005)
            assert [send.result().status for send in sends if send.done()] == [Status.CANCELLED]
            assert len(reads) < 20
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
            gate.set()
            await bench.clock.until(lambda: len(bench.platform.texts) == 199, within_s=600)

    bench.run(main())


def test_the_loser_sees_the_winner(bench: Bench) -> None:
    """SC-28, SC-44, REC-2: the same key in two programs; the other is told of the claim and its owner."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as one, bench.gateway() as two:
            first = await one.send(text("once"), key="a-key-of-mine", timeout_s=0.05)
            second = await two.send(text("once"), key="a-key-of-mine", timeout_s=0.05)
            assert (second.intent, second.repeated, second.status) == (first.intent, True, Status.SENDING)
            current = (await two.intent(first.intent)).state.current
            assert current is not None and current.owner == one.worker
            gate.set()
            assert (await second.wait(5)).status is Status.SENT
        assert bench.platform.texts == ["once"]

    bench.run(main())


def test_a_living_owner_keeps_its_attempt_while_its_lease_runs(bench: Bench) -> None:
    """OB-4, SC-27: a sweep by another one does not pick it up."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as one, bench.gateway():
            delivery = await one.send(text("in flight"), timeout_s=0.05)
            bench.clock.free = True
            await bench.clock.advance(LEASE_S - 1)
            bench.clock.free = False
            assert bench.types(delivery.intent) == ["IntentRecorded", "AttemptStarted"]
            gate.set()
            assert (await delivery.wait(5)).status is Status.SENT
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_a_dead_owner_is_taken_over_at_once_by_one_that_runs(bench: Bench) -> None:
    """OB-6, OB-12, SC-11, REC-9: its lock is free; the lease does not have to end for the word `unknown`."""

    async def main() -> None:
        one = bench.gateway()
        await one.start()
        async with bench.gateway() as two:
            bench.platform.plan(hang_visible)
            delivery = await one.send(text("in flight"), timeout_s=0.05)
            await one.kill()
            await bench.clock.advance(2)
            assert (await two.intent(delivery.intent)).state.status is Status.UNKNOWN
            assert bench.last(delivery.intent, "OutcomeUnknown")["by"] == f"worker:{two.worker}"

    bench.run(main())


def test_an_owner_of_another_host_is_judged_by_its_lease(bench: Bench) -> None:
    """OB-13, R10: there is no lock to look at; before the lease has ended, as it was watched here, nothing happens."""

    async def main() -> None:
        bench.platform.plan(hang_visible)
        one = bench.gateway()
        await one.start()
        delivery = await one.send(text("elsewhere"), timeout_s=0.05)
        await one.kill()
        for lock in bench.path.with_name(bench.path.name + ".d").iterdir():
            lock.unlink()
        async with bench.gateway() as two:
            await bench.clock.advance(LEASE_S - 2)
            assert (await two.intent(delivery.intent)).state.status is Status.SENDING
            await bench.clock.advance(10)
            assert (await two.intent(delivery.intent)).state.status is Status.UNKNOWN
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_what_a_late_owner_learned_is_recorded_and_settles_it(bench: Bench) -> None:
    """G5, R2, UNK-8: it was taken over, answers after all, and overwrites nothing."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        channel = bench.platform.channel(deadline_s=2.0, settle_s=1.0)
        async with bench.gateway(channel) as one, bench.gateway(channel) as two:
            delivery = await one.send(text("late"), timeout_s=0.05)
            bench.clock.free = True
            await bench.clock.advance(4)
            bench.clock.free = False
            for _ in range(100):
                if "OutcomeUnknown" in bench.types(delivery.intent):
                    break
                await asyncio.sleep(0.01)
            assert bench.last(delivery.intent, "OutcomeUnknown")["by"] == f"worker:{two.worker}"
            gate.set()
            await bench.clock.settle()
            assert (await delivery.wait(5)).status is Status.SENT
            assert bench.types(delivery.intent).count("UnitAccepted") == 1
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_what_comes_too_late_is_counted_and_changes_nothing(bench: Bench) -> None:
    """OB-11, UNK-8: a receipt after the end, a failure after the receipt; the status stands."""

    async def main() -> None:
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            given_up = await gateway.send(text("given up"))
            sent = await gateway.send(text("sent", "room-bbbb"))

            def discard(state: Any) -> e.Event:
                return decide.resolved(state, "discard", "never mind", at=bench.clock.wall_ms(), by="operator:a@b")

            await apply(gateway.store, given_up.intent, discard)
        receipt = e.UnitAccepted(at=1, by="worker:x", attempt=1, unit=0, parts=(e.AcceptedPart("m99"),))
        failure = e.AttemptFailed(at=1, by="worker:x", attempt=1, unit=0, failure="transient", proof="rejected")
        with Store.open(bench.path, VIEWS, wall_ms=bench.clock.wall_ms) as store:
            for _ in range(2):
                store.append_sync(Append(given_up.intent, (receipt,)), Append(sent.intent, (failure,)))
        async with bench.gateway() as gateway:
            await bench.clock.advance(60)
            states = [(await gateway.intent(one.intent)).state for one in (given_up, sent)]
            assert [one.status for one in states] == [Status.FAILED, Status.SENT]
            assert [one.contradictions for one in states] == [1, 1]
        assert len(bench.platform.requests) == 2

    bench.run(main())


def test_two_sweepers_of_one_dead_worker_make_one_copy(bench: Bench) -> None:
    """OB-10, REC-2, G5: both see it at the same time, one claims."""

    async def main() -> None:
        bench.platform.plan(refuse, reject("transient"))
        for number in range(6):
            gateway = bench.gateway()
            await gateway.start()
            await gateway.send(text(f"{number}", f"room-{number:04}"), wait=False)
            await gateway.kill()
        gateways = [bench.gateway(seed=seed) for seed in range(3)]
        await asyncio.gather(*(gateway.start() for gateway in gateways))
        for _ in range(60):
            await bench.clock.advance(1)
            await asyncio.sleep(0.005)
        for gateway in gateways:
            await gateway.close()
        assert len(set(bench.platform.texts)) == len(bench.platform.texts)

    bench.run(main())
