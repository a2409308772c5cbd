"""The recovery loop: bounded, continuous, lane by lane, and nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import apsw
import pytest
from msgledger import Status
from msgledger.ledger import events as e
from msgledger.ledger.store.append import Append
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS
from msgledger.projections.intents import LANE_HEADS

from .kit import Bench, TestGateway, backlog, text
from .platform import DEADLINE_S, SETTLE_S, accept, drop, gated, hang, lose, refuse, reject


def test_all_four_open_statuses_are_picked_up(bench: Bench) -> None:
    """GAP-2, REC-1, REC-8: pending, sending, committing and unknown."""

    async def main() -> None:
        gateway = bench.gateway()
        await gateway.start()
        bench.platform.plan(refuse, lose(), hang, hang)
        pending = await gateway.send(text("text of pend", "room-aaaa"))
        unknown = await gateway.send(text("text of unkn", "room-bbbb"))
        sending = await gateway.send(text("text of send", "room-cccc"), timeout_s=0.05)
        committing = await gateway.send(text("text of comm", "room-dddd"), timeout_s=0.05)
        await gateway.kill()
        fact = e.UnitAccepted(at=1, by="worker:x", attempt=1, unit=0, parts=(e.AcceptedPart("m99"),))
        with Store.open(bench.path, VIEWS, wall_ms=bench.clock.wall_ms) as store:
            store.append_sync(Append(committing.intent, (fact,)))
        found = dict(bench.query("SELECT id, status FROM obligations"))
        assert [found[one.intent] for one in (pending, sending, committing, unknown)] == [
            "pending",
            "sending",
            "committing",
            "unknown_after_send",
        ]
        async with bench.gateway() as gateway:
            await bench.clock.advance(60)
            states = [(await gateway.intent(one.intent)).state for one in (pending, sending, committing, unknown)]
            assert [one.status for one in states] == [Status.SENT, Status.UNKNOWN, Status.SENT, Status.UNKNOWN]
            assert [one.hold for one in states] == [None, "unresolved", None, "unresolved"]

    bench.run(main())


def test_committing_needs_no_question(bench: Bench) -> None:
    """GAP-3, SC-15, REC-3, SND-4: the receipt is there; recovery commits it without any call of the channel."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(hang)
        gateway = bench.gateway()
        await gateway.start()
        delivery = await gateway.send(text("accepted"), timeout_s=0.05)
        await gateway.kill()
        fact = e.UnitAccepted(at=1, by="worker:x", attempt=1, unit=0, parts=(e.AcceptedPart("m99"),))
        with Store.open(bench.path, VIEWS, wall_ms=bench.clock.wall_ms) as store:
            store.append_sync(Append(delivery.intent, (fact,)))
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            await bench.clock.advance(1)
            state = (await gateway.intent(delivery.intent)).state
            assert (state.status, state.platform_ids) == (Status.SENT, ("m99",))
        assert (len(bench.platform.requests), bench.platform.looked_up) == (1, [])

    bench.run(main())


def test_recovery_looks_up_before_it_sends(bench: Bench) -> None:
    """REC-6, OB-6, R1: nothing goes out again before the platform was asked."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.window_s = 3600.0
        bench.platform.plan(hang)
        gateway = bench.gateway()
        await gateway.start()
        await gateway.send(text("in doubt"), timeout_s=0.05)
        await gateway.kill()
        asked: list[int] = []

        async def count(request: Any) -> None:
            asked.append(len(bench.platform.looked_up))

        bench.platform.before = count
        async with bench.gateway():
            await bench.clock.advance(120)
        assert bench.platform.texts == ["in doubt"]
        assert asked and asked[0] > 0

    bench.run(main())


def test_what_a_look_up_did_not_find_is_sent_again_by_its_key_at_once(bench: Bench) -> None:
    """REC-6, R5: the platform would recognise it, so nothing waits for the lease end."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.window_s = 3600.0
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            began = bench.clock.boot_ms()
            unknown = await gateway.send(text("lost on its way"), timeout_s=DEADLINE_S)
            assert unknown.status is Status.UNKNOWN
            await bench.clock.until(lambda: bench.platform.texts, within_s=120, step_s=0.25)
            waited_ms = bench.clock.boot_ms() - began
            state = (await gateway.intent(unknown.intent)).state
        lease_ms = (DEADLINE_S + SETTLE_S) * 1000
        assert waited_ms < lease_ms / 2
        assert (state.attempts, len(bench.platform.looked_up), bench.platform.texts) == (2, 1, ["lost on its way"])

    bench.run(main())


def test_open_does_not_wait_for_the_backlog_nor_a_lane_for_a_slow_channel(bench: Bench) -> None:
    """REC-10, SC-22: with a channel that answers nobody, the other channel's messages and other lanes go out."""

    async def main() -> None:
        slow = bench.other("slow")
        slow.rule = hang
        channels = slow.channel(deadline_s=60), bench.platform.channel()
        bench.platform.ready = slow.ready = False
        async with bench.gateway(*channels) as gateway:
            for number in range(5):
                await gateway.send(text(f"slow {number}", f"room-{number:04}", "slow"), wait=False)
                await gateway.send(text(f"quick {number}", f"room-{number:04}"), wait=False)
        bench.platform.ready = slow.ready = True
        bench.clock.free = True
        gateway = bench.gateway(*channels)
        await gateway.start()
        for _ in range(100):
            await bench.clock.advance(0.05)
            if len(bench.platform.texts) == 5:
                break
        assert sorted(bench.platform.texts) == [f"quick {number}" for number in range(5)]
        assert len(slow.requests) == 5
        await gateway.kill()

    bench.run(main())


def test_an_intent_that_waits_long_is_passed_over(bench: Bench) -> None:
    """SC-22, REC-10: the intents of other lanes behind it are sent."""

    async def main() -> None:
        bench.platform.plan(reject("rate_limit", retry_after_s=3600))
        async with bench.gateway() as gateway:
            await gateway.send(text("waits", "room-aaaa"))
            for number in range(30):
                await gateway.send(text(f"goes {number}", f"room-{number:04}"))
            assert len(bench.platform.texts) == 30

    bench.run(main())


def test_a_channel_that_is_not_ready_costs_no_attempt(bench: Bench) -> None:
    """REC-11, OB-14, OB-15, SC-03, SC-23: through many starts; delivered without a restart when it connects."""

    async def main() -> None:
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("waits"), wait=False, max_attempts=1)
        for _ in range(5):
            async with bench.gateway() as gateway:
                await bench.clock.advance(60)
                state = (await gateway.intent(delivery.intent)).state
                assert (state.status, state.attempts, state.charged) == (Status.PENDING, 0, 0)
        async with bench.gateway() as gateway:
            await bench.clock.advance(60)
            bench.platform.ready = True
            await bench.clock.advance(1)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert bench.types(delivery.intent) == ["IntentRecorded", "AttemptStarted", "UnitAccepted", "IntentCommitted"]

    bench.run(main())


@pytest.mark.parametrize("damage", ["body", "type"])
def test_a_bad_row_holds_its_own_stream_and_is_reported(
    bench: Bench, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """REC-12: a body that does not decode, or a type from the future; all other streams go on, live and recovered."""

    async def main() -> None:
        await backlog(bench, 3, 3)
        victim = bench.query("SELECT id FROM intents ORDER BY position LIMIT 1")[0][0]
        connection = apsw.Connection(str(bench.path))
        change = "state = X'7B22'" if damage == "body" else "topic = 'IntentFromTheFuture'"
        connection.execute(f"UPDATE stored_events SET {change} WHERE originator_id = ?", (victim,))
        connection.close()
        with caplog.at_level(logging.ERROR, "msgledger"):
            async with bench.gateway() as gateway:
                await bench.clock.advance(5)
                assert sorted(bench.platform.texts) == ["0001", "0002"]
                assert (await gateway.send(text("live", "room-live"))).status is Status.SENT
                assert [held.stream for held in gateway.store.held_streams()] == [victim]
                await bench.clock.advance(30)
        assert len([r for r in caplog.records if victim in r.getMessage()]) in (1, 2)

    bench.run(main())


def test_a_row_of_a_view_without_events_stops_nobody(bench: Bench) -> None:
    """REC-12, REC-10: damage that a rebuild mends; until then all others go on."""

    async def main() -> None:
        await backlog(bench, 3, 3)
        connection = apsw.Connection(str(bench.path))
        victim = bench.query("SELECT id FROM intents ORDER BY position LIMIT 1")[0][0]
        connection.execute("UPDATE intents SET id = 'nothing', lane = 'nowhere', due_at = 0 WHERE id = ?", (victim,))
        connection.close()
        async with bench.gateway() as gateway:
            await bench.clock.advance(5)
            assert sorted(bench.platform.texts) == ["0001", "0002"]
            await asyncio.get_running_loop().run_in_executor(None, gateway.store.rebuild)
            await bench.clock.advance(120)
        assert sorted(bench.platform.texts) == ["0000", "0001", "0002"]

    bench.run(main())


def test_an_intent_that_cannot_be_handled_stops_nobody(bench: Bench) -> None:
    """REC-12, REC-10: a channel that raises where it must not, for one message only."""

    class Broken:
        """Delegates, and raises for one text."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def request_bytes(self, unit: Any, context: Any) -> bytes:
            if unit.text == "0000":
                raise RuntimeError("cannot be built")
            return (unit.text or "").encode()

    async def main() -> None:
        await backlog(bench, 4, 4)
        async with bench.gateway(Broken(bench.platform.channel())) as gateway:
            await bench.clock.advance(10)
            assert sorted(bench.platform.texts) == ["0001", "0002", "0003"]
            assert len(await gateway.owed()) == 1

    bench.run(main())


def test_what_another_process_records_is_sent_without_a_restart(bench: Bench) -> None:
    """REC-9: seen within moments."""

    async def main() -> None:
        def never() -> bool:
            return False

        async with bench.gateway(), bench.gateway(bench.platform.channel(ready=never)) as other:
            delivery = await other.send(text("from the other"), wait=False)
            done = await delivery.wait(5)
            assert done.status is Status.SENT
        assert bench.platform.texts == ["from the other"]

    bench.run(main())


def test_a_failure_while_the_gateway_goes_down_leaves_it_pending(bench: Bench) -> None:
    """SC-02: proof of not sent, and the next start sends it."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate, refuse))
        gateway = bench.gateway()
        await gateway.start()
        delivery = await gateway.send(text("going down"), timeout_s=0.05)
        closing = asyncio.create_task(gateway.close())
        await asyncio.sleep(0.05)
        gate.set()
        await closing
        assert bench.query("SELECT status FROM intents WHERE id = ?", delivery.intent) == [("pending",)]
        async with bench.gateway():
            await bench.clock.advance(60)
        assert bench.platform.texts == ["going down"]

    bench.run(main())


def test_a_dead_owner_without_an_attempt_leaves_no_doubt(bench: Bench) -> None:
    """OB-5, SND-4: sent by the next start, without a marker, at once."""

    async def main() -> None:
        bench.platform.ready = False
        gateway = bench.gateway()
        await gateway.start()
        await gateway.send(text("not begun"), wait=False, on_unknown="at_least_once")
        await gateway.kill()
        bench.platform.ready = True
        async with bench.gateway():
            await bench.clock.advance(0.5)
        assert bench.platform.texts == ["not begun"]
        assert [request.context.marked for request in bench.platform.requests] == [False]

    bench.run(main())


def test_attempts_are_counted_over_restarts(bench: Bench) -> None:
    """SC-26, OB-8: a message that cannot be sent is not begun anew with each start."""

    async def main() -> None:
        bench.platform.rule = reject("transient", status=500)
        for _ in range(12):
            async with bench.gateway() as gateway:
                if not bench.platform.requests:
                    delivery = await gateway.send(text("in vain"), max_attempts=4)
                await bench.clock.advance(400)
        assert len(bench.platform.requests) == 4
        assert bench.query("SELECT status, reason FROM intents WHERE id = ?", delivery.intent) == [
            ("failed", "attempts_exhausted")
        ]

    bench.run(main())


def test_a_lease_covers_deadline_and_settling(bench: Bench) -> None:
    """R1, REC-8: what the channel declares stands in the attempt."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("as declared"))
            started = bench.last(sent.intent, "AttemptStarted")
            assert started["deadline_ms"] == DEADLINE_S * 1000
            assert started["margin_ms"] >= SETTLE_S * 1000

    bench.run(main())


def steps_of(bench: Bench, statement: str, arguments: tuple[Any, ...]) -> int:
    """How many steps SQLite takes for it."""
    connection = apsw.Connection(str(bench.path), flags=apsw.SQLITE_OPEN_READONLY)
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    connection.set_progress_handler(step, 1)
    connection.execute(statement, arguments).fetchall()
    connection.close()
    return count


def test_a_pass_costs_what_is_owed_not_what_has_been(bench: Bench) -> None:
    """G13, REC-1: the same steps with ten times the history, and more with more that is owed."""

    async def main() -> None:
        async def history(gateway: TestGateway, count: int) -> None:
            await asyncio.gather(
                *(gateway.send(text(f"{n:04}", f"room-{n % 50:04}"), timeout_s=20) for n in range(count))
            )

        async with bench.gateway() as gateway:
            bench.platform.rule = reject("rate_limit", retry_after_s=7200)
            for number in range(3):
                await gateway.send(text(f"owed {number}", f"lane-{number:04}"))
            bench.platform.rule = accept
            await history(gateway, 40)
            now = bench.clock.wall_ms()
            few = steps_of(bench, LANE_HEADS, (now, now, now))
            await history(gateway, 400)
            many = steps_of(bench, LANE_HEADS, (now, now, now))
            bench.platform.rule = reject("rate_limit", retry_after_s=7200)
            for number in range(30):
                await gateway.send(text(f"owed {number}", f"more-{number:04}"))
            assert steps_of(bench, LANE_HEADS, (now, now, now)) > many
        assert many == few

    bench.run(main())
