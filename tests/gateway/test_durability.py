"""Durability: required fails closed, best effort says what it lost, disabled leaves nothing, uncertain is not lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

import apsw
import pytest
from msgledger import Message, Status, StoreUnavailable, WriteUncertain
from msgledger.adapters import calls
from msgledger.adapters.surface import TextLimit
from msgledger.ledger import limits
from msgledger.ledger.errors import StoreFull, StoreLocked, StoreReadOnly
from msgledger.lifecycle.dispatch import direct, loop

from .kit import Bench, TestGateway, text
from .platform import accept, drop, gated, refuse, reject


def break_begin(gateway: TestGateway, error: Exception) -> Any:
    """Every transaction of the writer fails with it; what is returned mends that."""
    batch: Any = gateway.store._writer._batch  # type: ignore[union-attr]
    real = batch.begin

    def begin(until: float, *, careful: bool) -> None:
        raise error

    batch.begin = begin

    def mend() -> None:
        batch.begin = real

    return mend


def break_commit(gateway: TestGateway, *, really: bool) -> Any:
    """The next commit fails with an I/O error, before or after it happened."""
    batch: Any = gateway.store._writer._batch  # type: ignore[union-attr]
    real = batch._commit

    def commit() -> None:
        batch._commit = real
        if really:
            real()
        raise apsw.IOError("the disk failed")

    batch._commit = commit


@pytest.mark.parametrize(
    ("error", "typed"),
    [(apsw.ReadOnlyError("x"), StoreReadOnly), (apsw.FullError("x"), StoreFull)],
    ids=["read-only", "full"],
)
def test_required_sends_nothing_where_nothing_can_be_written(bench: Bench, error: Exception, typed: type) -> None:
    """DUR-1, G12, GAP-11: the default; a typed error, no request, no event."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            mend = break_begin(gateway, error)
            with pytest.raises(typed):
                await gateway.send(text("never"))
            mend()
            assert bench.types_of_intents() == []
        assert bench.platform.requests == []

    bench.run(main())


def test_a_locked_ledger_is_a_typed_error_within_the_bound_and_the_loop_goes_on(bench: Bench) -> None:
    """DUR-1, G12, OB-18, SC-70: the loop's lag is measured while somebody else holds the lock."""

    async def main() -> None:
        async with bench.gateway(lock_wait_s=0.4) as gateway:
            await bench.clock.settle()
            lags: list[float] = []

            async def measure() -> None:
                while True:
                    before = time.monotonic()
                    await asyncio.sleep(0.005)
                    lags.append(time.monotonic() - before - 0.005)

            meter = asyncio.create_task(measure())
            with bench.locked():
                began = time.monotonic()
                with pytest.raises(StoreLocked):
                    await gateway.send(text("never"))
                took = time.monotonic() - began
            meter.cancel()
            assert 0.3 < took < 2.0
            assert len(lags) > 20 and sorted(lags)[-2] < 0.2
            assert (await gateway.send(text("afterwards"))).status is Status.SENT
        assert bench.platform.texts == ["afterwards"]

    bench.run(main())


def test_a_timeout_shorter_than_the_wait_for_the_lock_is_no_missing_intent(bench: Bench) -> None:
    """DUR-1, SC-70: the record is under way; the caller hears what became of it, not that it does not exist."""

    async def main() -> None:
        async with bench.gateway(lock_wait_s=3.0) as gateway:
            await bench.clock.settle()
            with bench.locked():
                sending = asyncio.create_task(gateway.send(text("in time"), timeout_s=0.05))
                await asyncio.sleep(0.3)
            delivery = await sending
            assert (await delivery.wait(5)).status is Status.SENT
        assert bench.platform.texts == ["in time"]

    bench.run(main())


def test_best_effort_goes_out_without_the_ledger_and_is_recorded_late(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """DUR-2, SC-66, OB-18, GAP-11: one send, one warning, and its events afterwards with `late` and their own times."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            mend = break_begin(gateway, apsw.ReadOnlyError("x"))
            with caplog.at_level(logging.WARNING, "msgledger"):
                delivery = await gateway.send(text("out anyway"), durability="best_effort")
            assert (delivery.status, delivery.durable) == (Status.SENT, False)
            assert delivery.receipt is not None and delivery.receipt.platform_ids == ("m1",)
            assert [r for r in caplog.records if "without the ledger" in r.message]
            assert "out anyway" not in caplog.text
            sent_at = bench.clock.wall_ms()
            await bench.clock.advance(30)
            mend()
            for _ in range(1000):
                if bench.types(delivery.intent):
                    break
                await asyncio.sleep(0.005)
            record = bench.last(delivery.intent, "IntentRecorded")
            assert (record["late"], record["at"], record["durability"]) == (True, sent_at, "best_effort")
            assert bench.types(delivery.intent)[1:] == ["AttemptStarted", "UnitAccepted", "IntentCommitted"]
            [lost] = [event.data for event in bench.events() if event.type == "DurabilityLost"]
            assert lost["sends"] == 1
            assert "best-effort" not in lost["error"]
        assert bench.platform.texts == ["out anyway"]

    bench.run(main())


@pytest.mark.parametrize("outcome", ["refused", "unknown", "rejected"])
def test_a_late_record_tells_the_true_outcome_and_what_is_owed_goes_on(bench: Bench, outcome: str) -> None:
    """DUR-2: it is not made better than it was."""
    behaviour = {"refused": refuse, "unknown": drop(), "rejected": reject("not_found")}[outcome]
    expected = {"refused": Status.SENT, "unknown": Status.UNKNOWN, "rejected": Status.FAILED}[outcome]

    async def main() -> None:
        async with bench.gateway(durability="best_effort") as gateway:
            await bench.clock.settle()
            mend = break_begin(gateway, apsw.FullError("x"))
            bench.platform.plan(behaviour)
            delivery = await gateway.send(text("with trouble"))
            mend()
            for _ in range(1000):
                if bench.types(delivery.intent):
                    break
                await asyncio.sleep(0.005)
            await bench.clock.advance(120)
            assert (await gateway.intent(delivery.intent)).state.status is expected
        assert bench.platform.texts == (["with trouble"] if outcome == "refused" else [])

    bench.run(main())


async def late(bench: Bench, intent: str) -> list[str]:
    """The events of a send that went out without the ledger, once they are there."""
    for _ in range(1000):
        if bench.types(intent):
            break
        await asyncio.sleep(0.005)
    return bench.types(intent)


LATE = ["IntentRecorded", "AttemptStarted", "UnitAccepted", "IntentCommitted"]


def test_more_late_sends_than_one_transaction_takes_are_all_recorded(bench: Bench) -> None:
    """DUR-2: an outage of some length, and the close right after it."""

    async def main() -> None:
        async with bench.gateway(durability="best_effort") as gateway:
            await bench.clock.settle()
            mend = break_begin(gateway, apsw.FullError("x"))
            many = range(limits.GROUP_APPENDS_MAX + 20)
            sent = await asyncio.gather(*(gateway.send(text(f"number {n}", f"room-{n}")) for n in many))
            assert not any(delivery.durable for delivery in sent)
            mend()
        assert [await late(bench, delivery.intent) for delivery in sent] == [LATE] * len(many)
        assert [event.type for event in bench.events()].count("DurabilityLost") == 2

    bench.run(main())


def test_a_late_send_that_cannot_be_written_down_takes_no_other_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DUR-2: the loss of one is logged, and the others are recorded."""

    async def main() -> None:
        async with bench.gateway(
            bench.platform.channel(text=TextLimit(max=9_000)), durability="best_effort"
        ) as gateway:
            await bench.clock.settle()
            mend = break_begin(gateway, apsw.FullError("x"))
            words = ("before", "too long " * 900, "behind")
            sent = [await gateway.send(text(one, f"room-{n}")) for n, one in enumerate(words)]
            monkeypatch.setattr(limits, "EVENT_MAX_BYTES", 5_000)
            mend()
            types = [await late(bench, sent[0].intent), await late(bench, sent[2].intent), bench.types(sent[1].intent)]
            assert types == [LATE, LATE, []]
        assert [record.message for record in caplog.records if "is not in the ledger" in record.message]

    bench.run(main())


def test_a_caller_that_goes_away_takes_no_late_send_with_it(bench: Bench) -> None:
    """DUR-2: what the platform got is recorded all the same."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            mend = break_begin(gateway, apsw.FullError("x"))
            sending = asyncio.create_task(gateway.send(text("out anyway"), durability="best_effort"))
            while not bench.platform.requests:
                await asyncio.sleep(0.005)
            mend()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            gate.set()
            [request] = bench.platform.requests
            assert await late(bench, request.context.intent) == LATE
        assert bench.platform.texts == ["out anyway"]

    bench.run(main())


@pytest.mark.parametrize("answers", [True, False])
def test_closing_waits_for_a_late_send_and_records_it(
    bench: Bench, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-2: until its deadline; what is left then is recorded as unknown, and nothing goes on behind the close."""
    monkeypatch.setattr(direct, "CLOSE_EXTRA_S", 0.1)

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        gateway = bench.gateway(bench.platform.channel(deadline_s=30.0 if answers else 0.3))
        await gateway.start()
        await bench.clock.settle()
        if not answers:
            monkeypatch.setattr(calls, "within", lambda _: contextlib.nullcontext())
        mend = break_begin(gateway, apsw.FullError("x"))
        sending = asyncio.create_task(gateway.send(text("out anyway"), durability="best_effort"))
        while not bench.platform.requests:
            await asyncio.sleep(0.005)
        mend()
        closing = asyncio.create_task(gateway.close())
        if answers:
            await asyncio.sleep(0.05)
            gate.set()
        await asyncio.wait_for(closing, 10)
        delivery = await sending
        assert bench.types(delivery.intent) == (LATE if answers else [*LATE[:2], "OutcomeUnknown"])
        assert len(asyncio.all_tasks()) == 1

    bench.run(main())


def test_late_sends_are_bounded_also_while_they_are_on_their_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """DUR-2, G12: one more than may be kept in memory is refused, and not sent."""
    monkeypatch.setattr(direct, "LATE_SENDS_MAX", 5)

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.rule = gated(gate)
        async with bench.gateway(durability="best_effort") as gateway:
            await bench.clock.settle()
            mend = break_begin(gateway, apsw.FullError("x"))
            sends = [asyncio.create_task(gateway.send(text(f"number {n}", f"room-{n}"))) for n in range(8)]
            done, _ = await asyncio.wait(sends, timeout=10, return_when=asyncio.FIRST_EXCEPTION)
            await asyncio.wait(sends, timeout=0.1)
            assert len(bench.platform.requests) == 5 and done
            gate.set()
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert sum(isinstance(result, StoreFull) for result in results) == 3
            mend()

    bench.run(main())


def test_best_effort_with_a_working_ledger_is_durable_first(bench: Bench) -> None:
    """DUR-2: it only falls back; the ordinary path is the ordinary one."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("ordinary"), durability="best_effort")
            assert delivery.durable
            assert "late" not in bench.last(delivery.intent, "IntentRecorded")

    bench.run(main())


def test_disabled_leaves_no_event(bench: Bench) -> None:
    """DUR-3: the channel is called directly."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("unrecorded"), durability="disabled")
            assert (delivery.status, delivery.durable) == (Status.SENT, False)
            assert delivery.receipt is not None
        assert bench.platform.texts == ["unrecorded"]
        assert bench.types_of_intents() == []

    bench.run(main())


@pytest.mark.parametrize("able", [True, False])
def test_what_a_channel_can_do_does_not_change_how_durable_a_send_is(bench: Bench, able: bool) -> None:
    """DUR-5: from the send, else from the gateway's setting, else required."""

    async def main() -> None:
        if able:
            bench.platform.window_s, bench.platform.looks_up = 3600.0, True
        async with bench.gateway() as gateway:
            one = await gateway.send(text("by default"))
            two = await gateway.send(text("said so"), durability="best_effort")
        async with bench.gateway(durability="best_effort") as gateway:
            three = await gateway.send(text("as set"))
        said = [bench.last(one.intent, "IntentRecorded").get("durability", "required") for one in (one, two, three)]
        assert said == ["required", "best_effort", "best_effort"]

    bench.run(main())


@pytest.mark.parametrize("durability", ["required", "best_effort"])
@pytest.mark.parametrize("really", [True, False], ids=["committed", "not-committed"])
def test_an_uncertain_write_is_not_sent_around(bench: Bench, durability: Any, really: bool) -> None:
    """DUR-6: nothing goes out beside the ledger; asked again under its key it goes out once."""

    async def send(gateway: TestGateway, message: Message) -> Any:
        return await gateway.send(message, key="a-key-of-mine", durability=durability, timeout_s=1)

    async def main() -> None:
        bench.platform.looks_up = True
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            break_commit(gateway, really=really)
            if really:
                delivery = await send(gateway, text("once"))
                assert delivery.status is Status.SENT
            else:
                with pytest.raises(WriteUncertain):
                    await send(gateway, text("once"))
                assert bench.platform.requests == []
            await bench.clock.advance(60)
            again = await send(gateway, text("once"))
            assert (again.status, again.repeated) == (Status.SENT, really)
        assert bench.platform.texts == ["once"]
        assert len(bench.events(again.intent)) == 4, "one attempt, nothing to look up: it is known that nothing left"

    bench.run(main())


def test_best_effort_does_not_send_again_what_stands_under_its_key(bench: Bench) -> None:
    """DUR-2, DUR-6: the record exists, and only reading it failed."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            await gateway.send(text("once"), key="a-key-of-mine")

            async def unreadable(stream: str) -> Any:
                raise StoreReadOnly("the disk went away")

            gateway.dispatcher.attempts.reload = unreadable
            with pytest.raises(StoreUnavailable):
                await gateway.send(text("once"), key="a-key-of-mine", durability="best_effort")
        assert bench.platform.texts == ["once"]

    bench.run(main())


def test_best_effort_does_not_send_again_what_is_on_its_way(bench: Bench) -> None:
    """DUR-2, DUR-6: recorded and in flight; only saying how it stands failed."""

    async def main() -> None:
        gate = asyncio.Event()
        bench.platform.plan(gated(gate))
        async with bench.gateway() as gateway:

            async def unreadable(stream: str) -> Any:
                raise StoreReadOnly("the disk went away")

            gateway.dispatcher.attempts.reload = unreadable
            with pytest.raises(StoreUnavailable):
                await gateway.send(text("once"), durability="best_effort", timeout_s=0.1)
            gate.set()
        assert bench.platform.texts == ["once"]

    bench.run(main())


def test_an_outcome_waits_for_the_ledger(bench: Bench) -> None:
    """SND-7, SC-15, SC-37: the platform has it, the ledger cannot be written for a while; the receipt is not lost."""

    async def main() -> None:
        async with bench.gateway(lock_wait_s=0.05) as gateway:
            mends: list[Any] = []

            async def then_break(request: Any) -> Any:
                answer = await accept(request)
                mends.append(break_begin(gateway, apsw.FullError("x")))
                return answer

            bench.platform.plan(then_break)
            sending = asyncio.create_task(gateway.send(text("accepted"), timeout_s=5))
            await asyncio.sleep(0.3)
            mends[0]()
            assert (await sending).status is Status.SENT
        assert bench.platform.texts == ["accepted"]

    bench.run(main())


def test_closing_does_not_wait_for_ever_for_a_broken_ledger(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """SND-7: an outcome that cannot be written is left for the next start, which finds the attempt in doubt."""
    monkeypatch.setattr(loop, "CLOSE_EXTRA_S", 0.2)

    async def main() -> None:
        gateway = bench.gateway(bench.platform.channel(deadline_s=0.3), lock_wait_s=0.05)
        await gateway.start()

        async def then_break(request: Any) -> Any:
            answer = await accept(request)
            break_begin(gateway, apsw.FullError("x"))
            return answer

        bench.platform.plan(then_break)
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.2):
                await gateway.send(text("accepted"))
        async with asyncio.timeout(10):
            await gateway.close()
        async with bench.gateway() as gateway:
            await bench.clock.advance(1)
            [row] = await gateway.owed()
            assert row.status == "unknown_after_send"
        assert bench.platform.texts == ["accepted"]

    bench.run(main())


@pytest.mark.parametrize("really", [True, False])
def test_a_receipt_whose_commit_is_uncertain_is_kept_once(bench: Bench, really: bool) -> None:
    """SC-15, SC-37, G3: the platform's answer is written until it stands, whatever became of the first try."""

    async def main() -> None:
        async with bench.gateway() as gateway:

            async def answer(request: Any) -> Any:
                break_commit(gateway, really=really)
                return await accept(request)

            bench.platform.plan(answer)
            delivery = await gateway.send(text("once"))
            assert delivery.status is Status.SENT
            assert delivery.receipt is not None
            assert delivery.receipt.primary_platform_id is not None
        assert bench.platform.texts == ["once"]
        kinds = [event.type for event in bench.events() if event.stream == delivery.intent]
        assert kinds == ["IntentRecorded", "AttemptStarted", "UnitAccepted", "IntentCommitted"]

    bench.run(main())
