"""Each class of failure: what the ledger makes of it, through the whole gateway."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from msgledger import (
    FailureClass,
    NotDispatched,
    Rejected,
    Status,
)
from msgledger.ledger import events as e
from msgledger.ledger.errors import StoreOverloaded
from msgledger.ledger.limits import BACKOFF_MS, PROBE_AFTER_FAILURES

from .kit import Bench, text
from .platform import gated, raises, refuse, reject


def started_at(bench: Bench) -> list[int]:
    return [request.at for request in bench.platform.requests]


def test_transient_is_tried_again_with_growing_jittered_waits(bench: Bench) -> None:
    """FAIL-1, GAP-4, SC-26: pending, each wait below a ceiling that grows, and another seed waits otherwise."""

    async def main() -> None:
        bench.platform.plan(*[reject("transient", status=503)] * 5)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("again and again"))
            assert (delivery.status, delivery.failure) == (Status.PENDING, FailureClass.TRANSIENT)
            assert delivery.retry == "ledger"
            await bench.clock.advance(3600)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        at = started_at(bench)
        waits = [after - before for before, after in itertools.pairwise(at)]
        assert len(waits) == 5
        assert all(0 < wait <= ceiling + 2 for wait, ceiling in zip(waits, BACKOFF_MS, strict=True))
        assert len(set(waits)) == 5

    bench.run(main())


def test_spent_attempts_end_the_intent_aloud(bench: Bench) -> None:
    """OB-8, R8, GAP-4, FAIL-1, G7: failed, and found by its reason."""

    async def main() -> None:
        bench.platform.rule = reject("transient", status=503)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("in vain"), max_attempts=3)
            await bench.clock.advance(3600)
            [row] = await gateway.intents(status="failed")
            assert (row.id, row.reason, row.failure) == (delivery.intent, "attempts_exhausted", "transient")
        assert len(bench.platform.requests) == 3

    bench.run(main())


@pytest.mark.parametrize("after_s", [5, 3600])
def test_a_rate_limit_is_never_undercut_and_never_charged(bench: Bench, after_s: int) -> None:
    """FAIL-2, GAP-4: 3600 means at least 3600, also with a single attempt left."""

    async def main() -> None:
        bench.platform.plan(reject("rate_limit", status=429, retry_after_s=after_s))
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("slowly"), max_attempts=1)
            assert delivery.status is Status.PENDING
            assert delivery.due_at is not None
            assert delivery.due_at >= bench.clock.wall_ms() + after_s * 1000
            await bench.clock.advance(after_s - 1)
            assert len(bench.platform.requests) == 1
            await bench.clock.advance(after_s + 5)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        first, second = started_at(bench)
        assert second - first >= after_s * 1000

    bench.run(main())


def test_a_long_rate_limit_survives_a_restart(bench: Bench) -> None:
    """SC-08, FAIL-2: pending meanwhile, never `sending`, and sent after its time."""

    async def main() -> None:
        bench.platform.plan(reject("rate_limit", status=429, retry_after_s=3600))
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("slowly"))
        await bench.clock.advance(600)
        async with bench.gateway() as gateway:
            await bench.clock.advance(600)
            assert (await gateway.intent(delivery.intent)).state.status is Status.PENDING
            assert len(bench.platform.requests) == 1
            await bench.clock.advance(7200)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT

    bench.run(main())


def test_a_rate_limit_of_the_account_stops_its_other_lanes(bench: Bench) -> None:
    """FAIL-2: scope account: nobody else asks before its time."""

    async def main() -> None:
        bench.platform.plan(reject("rate_limit", status=429, retry_after_s=600, scope="account"))
        async with bench.gateway() as gateway:
            await gateway.send(text("first", "room-aaaa"))
            await gateway.send(text("second", "room-bbbb"), wait=False)
            await bench.clock.advance(590)
            assert len(bench.platform.requests) == 1
            await bench.clock.advance(1200)
        assert sorted(bench.platform.texts) == ["first", "second"]

    bench.run(main())


@pytest.mark.parametrize(
    "error",
    [ValueError("teapot"), RuntimeError("connection refused"), OSError("429")],
    ids=["value-error", "says-refused", "says-429"],
)
def test_the_core_reads_no_error_text(bench: Bench, error: Exception) -> None:
    """FAIL-10, FAIL-11, SC-18: whatever a text says, an unmapped error is unknown."""

    async def main() -> None:
        bench.platform.plan(raises(error))
        async with bench.gateway() as gateway:
            assert (await gateway.send(text("who knows"))).status is Status.UNKNOWN

    bench.run(main())


def test_a_class_outside_the_set_is_unknown(bench: Bench) -> None:
    """FAIL-10: it is never taken for a rejection."""

    async def teapot(request: Any) -> Any:
        return Rejected("teapot")

    async def main() -> None:
        bench.platform.plan(teapot)
        async with bench.gateway() as gateway:
            assert (await gateway.send(text("who knows"))).status is Status.UNKNOWN

    bench.run(main())


def test_an_answer_of_another_kind_is_unknown(bench: Bench) -> None:
    """FAIL-9, FAIL-10: no rule names it."""

    async def strange(request: Any) -> Any:
        return {"ok": True}

    async def main() -> None:
        bench.platform.plan(strange)
        async with bench.gateway() as gateway:
            assert (await gateway.send(text("who knows"))).status is Status.UNKNOWN

    bench.run(main())


def test_a_refused_connection_is_proof_and_costs_no_attempt(bench: Bench) -> None:
    """FAIL-11, SC-07, SC-12, SC-13, GAP-4: pending, and sent when the outage ends, whatever the budget."""

    async def main() -> None:
        bench.platform.plan(*[refuse] * 20)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("through the outage"), max_attempts=1)
            assert delivery.status is Status.PENDING
            failed = bench.last(delivery.intent, "AttemptFailed")
            assert (failed["proof"], failed["bytes_left"]) == ("declared", False)
            await bench.clock.advance(3600)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert bench.platform.texts == ["through the outage"]

    bench.run(main())


def test_a_target_that_is_gone_ends_after_one_attempt(bench: Bench) -> None:
    """SC-48, SC-20, SC-18: no other route is guessed, nothing is tried again."""

    async def main() -> None:
        bench.platform.rule = reject("not_found", code="chat_gone", status=404)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("to nobody"))
            assert (delivery.status, delivery.failure) == (Status.FAILED, FailureClass.NOT_FOUND)
            await bench.clock.advance(3600)
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_what_fails_before_the_request_leaves_is_recorded_with_that_proof(bench: Bench) -> None:
    """SC-13, SC-41: back to pending, with what is known about the bytes."""

    async def main() -> None:
        bench.platform.plan(raises(NotDispatched("no route")))
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("not yet"))
            assert delivery.status is Status.PENDING
            assert not bench.last(delivery.intent, "AttemptFailed")["bytes_left"]
            await bench.clock.advance(60)
        assert bench.platform.texts == ["not yet"]

    bench.run(main())


def test_after_three_failures_to_connect_one_lane_at_a_time_probes(bench: Bench) -> None:
    """GAP-4, REC-10: an outage is not hammered by every lane."""

    async def main() -> None:
        bench.platform.rule = refuse
        async with bench.gateway() as gateway:
            for number in range(8):
                await gateway.send(text(f"message {number}", f"room-{number:04}"), wait=False)
            await bench.clock.advance(120)
            before = len(bench.platform.requests)
            gate = asyncio.Event()
            bench.platform.rule = gated(gate, refuse)
            bench.clock.free = True
            await bench.clock.advance(70)
            assert len(bench.platform.requests) - before == 1
            bench.clock.free = False
            bench.platform.rule = None
            gate.set()
            await bench.clock.advance(300)
        assert len(bench.platform.texts) == 8

    bench.run(main())


def test_a_channel_that_goes_down_while_too_much_waits_for_the_ledger_ends_no_attempt(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """SND-7, REC-10: that it is down may go unrecorded; the attempt that found it out goes on and is heard of."""

    async def main() -> None:
        bench.platform.plan(*[refuse] * PROBE_AFTER_FAILURES)
        async with bench.gateway() as gateway:
            real: Any = gateway.store.append

            def crowded(*items: Any) -> Any:
                if any(isinstance(event, e.ChannelDown) for item in items for event in item.events):
                    raise StoreOverloaded("20000 appends wait already")
                return real(*items)

            gateway.store.append = crowded  # type: ignore[method-assign]
            for number in range(PROBE_AFTER_FAILURES):
                delivery = await gateway.send(text("x", f"room-{number}"), timeout_s=5)
                assert (delivery.status, delivery.attempts) == (Status.PENDING, 1)
        assert not [record for record in caplog.records if record.exc_info]

    bench.run(main())
