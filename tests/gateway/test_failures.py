"""Each class of failure: what the ledger makes of it, through the whole gateway."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger import (
    FailureClass,
    Message,
    NotDispatched,
    Rejected,
    RenderContext,
    RenderedBatch,
    RenderedUnit,
    Reply,
    Status,
)
from msgledger.adapters.callable import CallableChannel
from msgledger.ledger.limits import BACKOFF_MS

from .kit import SHORT, Bench, parts, text
from .platform import accept, drop, gated, lose, raises, refuse, reject


class WithFallback(CallableChannel):
    """A channel that has another plan for a batch that was refused whole."""

    asked: list[tuple[str, str | None]]

    def fallback(
        self, message: Message, refused: RenderedBatch, failure: FailureClass, context: RenderContext,
        code: str | None = None,
    ) -> RenderedBatch | None:
        self.asked = [*getattr(self, "asked", []), (failure.value, code)]
        assert message.body is not None
        return RenderedBatch((RenderedUnit(0, text="plain: " + message.body.text),))


def falling_back(bench: Bench, **more: Any) -> WithFallback:
    plain = bench.platform.channel(**more)
    return WithFallback("plat", bench.platform.deliver, capabilities=plain.capabilities)


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
        waits = [after - before for before, after in zip(at, at[1:], strict=False)]
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


def test_invalid_payload_is_not_tried_again(bench: Bench) -> None:
    """FAIL-3, SC-18: failed after that one attempt, at no later start either."""

    async def main() -> None:
        bench.platform.rule = reject("invalid_payload", status=400, code="bad_markup")
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("malformed"))
            assert (delivery.status, delivery.reason, delivery.retry) == (Status.FAILED, "rejected", "caller")
        for _ in range(2):
            async with bench.gateway() as gateway:
                await bench.clock.advance(3600)
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_a_fallback_plan_is_tried_once(bench: Bench) -> None:
    """FAIL-3, SC-20, SC-19: a new plan of the same intent, under a key of its own."""

    async def main() -> None:
        channel = falling_back(bench)
        bench.platform.plan(reject("not_found", code="reply_gone"))
        async with bench.gateway(channel) as gateway:
            delivery = await gateway.send(text("an answer", relation=Reply(reply_to="gone-message")))
            await bench.clock.advance(5)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert channel.asked == [("not_found", "reply_gone")]
        assert bench.platform.texts == ["plain: an answer"]
        assert bench.types(delivery.intent).count("BatchPlanned") == 1
        first, second = [request.context.provider_key for request in bench.platform.requests]
        assert first != second

    bench.run(main())


def test_a_refused_fallback_ends_it(bench: Bench) -> None:
    """FAIL-3: there is no third plan."""

    async def main() -> None:
        channel = falling_back(bench)
        bench.platform.rule = reject("invalid_payload")
        async with bench.gateway(channel) as gateway:
            delivery = await gateway.send(text("malformed"))
            await bench.clock.advance(600)
            assert (await gateway.intent(delivery.intent)).state.status is Status.FAILED
        assert len(bench.platform.requests) == 2
        assert len(channel.asked) == 1

    bench.run(main())


def test_a_fallback_survives_a_restart(bench: Bench) -> None:
    """FAIL-3, BAT-8, SC-36: the second plan is stored, and goes out as it was planned."""

    async def main() -> None:
        bench.platform.plan(reject("invalid_payload"), refuse)
        async with bench.gateway(falling_back(bench)) as gateway:
            await gateway.send(text("an answer"))
            await bench.clock.advance(0.5)
        async with bench.gateway():
            await bench.clock.advance(60)
        assert bench.platform.texts == ["plain: an answer"]

    bench.run(main())


def test_what_is_visible_already_is_not_planned_anew(bench: Bench) -> None:
    """SC-36, SC-19, FAIL-3: with a part accepted, a fallback for the whole would show it twice."""

    async def main() -> None:
        channel = falling_back(bench, text=SHORT)
        bench.platform.plan(accept, reject("invalid_payload"))
        async with bench.gateway(channel) as gateway:
            delivery = await gateway.send(text(parts(3)))
            await bench.clock.advance(60)
            assert (await gateway.intent(delivery.intent)).state.status is Status.FAILED
        assert len(bench.platform.texts) == 1

    bench.run(main())


@pytest.mark.parametrize("failure", ["auth", "permission"])
def test_missing_rights_hold_until_the_configuration_changes(bench: Bench, failure: str) -> None:
    """FAIL-4, FAIL-5, SC-04, SC-18: held as `config`, not asked again; a new configuration wakes it, in order."""

    async def main() -> None:
        bench.platform.rule = reject(failure, status=401)
        channel = bench.platform.channel(config="scope=read")
        async with bench.gateway(channel) as gateway:
            deliveries = [await gateway.send(text(f"message {number}")) for number in range(3)]
            first = deliveries[0]
            assert (first.status, first.hold, first.retry) == (Status.PENDING, "config", "ledger")
            await bench.clock.advance(1800)
        asked = len(bench.platform.requests)
        assert asked == 3
        async with bench.gateway(channel) as gateway:
            await bench.clock.advance(1800)
            assert len(bench.platform.requests) == asked, "the same configuration is no change"
            bench.platform.rule = None
            channel.config = "scope=write"
            await bench.clock.advance(5)
            assert await gateway.owed() == []
        assert bench.platform.texts == ["message 0", "message 1", "message 2"]

    bench.run(main())


def test_a_new_configuration_at_the_next_start_wakes_it(bench: Bench) -> None:
    """FAIL-4: also where the credential is another, and twenty and more wait in one lane, in their order."""

    async def main() -> None:
        bench.platform.rule = reject("auth", status=401)
        async with bench.gateway(bench.platform.channel(credential="old-token")) as gateway:
            for number in range(30):
                await gateway.send(text(f"message {number}"), wait=False)
            await bench.clock.advance(30)
            assert {row.hold for row in await gateway.owed()} == {"config"}
        bench.platform.rule = None
        async with bench.gateway(bench.platform.channel(credential="new-token")) as gateway:
            await bench.clock.until(lambda: len(bench.platform.texts) == 30, within_s=60)
        assert bench.platform.texts == [f"message {number}" for number in range(30)]

    bench.run(main())


def test_what_is_held_for_its_configuration_expires_in_the_end(bench: Bench) -> None:
    """G7, OB-8, FAIL-4: only its age ends it, and says so."""

    async def main() -> None:
        bench.platform.rule = reject("auth", status=401)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("held"), max_age_s=600)
            await bench.clock.advance(700)
            state = (await gateway.intent(delivery.intent)).state
            assert (state.status, state.reason) == (Status.FAILED, "expired")

    bench.run(main())


@pytest.mark.parametrize("looks_up", [True, False], ids=["look-up", "no-look-up"])
def test_a_conflict_on_our_own_key_means_that_it_is_there(bench: Bench, looks_up: bool) -> None:
    """FAIL-7: sent; with the receipt that a look-up finds, else with one that says that there is no identity."""

    async def main() -> None:
        bench.platform.window_s, bench.platform.conflict, bench.platform.looks_up = 3600.0, True, looks_up
        if looks_up:
            bench.platform.lag_s = 20
            bench.platform.proves_absence = False
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("once"))
            await bench.clock.advance(120)
            done = await delivery.wait(1)
            assert done.status is Status.SENT
            assert done.receipt is not None
            assert done.receipt.platform_ids == (("m1",) if looks_up else ())
        assert bench.platform.texts == ["once"]

    bench.run(main())


def test_a_conflict_that_is_not_about_our_key_is_a_rejection(bench: Bench) -> None:
    """FAIL-7, SC-04: a channel without keys of ours knows no conflict on one."""

    async def main() -> None:
        bench.platform.rule = reject("conflict", status=409)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("not there"))
            assert (delivery.status, delivery.receipt) == (Status.FAILED, None)

    bench.run(main())


def test_a_channel_that_cancels_with_proof_cancels(bench: Bench) -> None:
    """FAIL-8, GAP-6: nothing was sent, and the intent says so."""

    async def main() -> None:
        bench.platform.plan(reject("cancelled", bytes_left=False))
        async with bench.gateway() as gateway:
            assert (await gateway.send(text("taken back"))).status is Status.CANCELLED

    bench.run(main())


def test_cancelled_after_some_parts_is_discarded_with_the_partial_receipt(bench: Bench) -> None:
    """GAP-6, FAIL-8: never `cancelled` where something is visible."""

    async def main() -> None:
        bench.platform.plan(accept, reject("cancelled", bytes_left=False))
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            delivery = await gateway.send(text(parts(2)))
            assert (delivery.status, delivery.reason) == (Status.FAILED, "discarded")
            assert delivery.receipt is not None and delivery.receipt.platform_ids == ("m1",)

    bench.run(main())


@pytest.mark.parametrize(
    "error",
    [Rejected("teapot") if False else ValueError("teapot"), RuntimeError("connection refused"), OSError("429")],
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
    import asyncio

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
            await bench.clock.advance(3)
            assert len(bench.platform.requests) - before <= 1
            bench.clock.free = False
            bench.platform.rule = drop() if False else None
            gate.set()
            await bench.clock.advance(300)
        assert len(bench.platform.texts) == 8

    bench.run(main())
