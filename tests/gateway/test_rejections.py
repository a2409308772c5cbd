"""What a platform rejects: another plan once, a hold for its configuration, a conflict on our key, a cancel."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger import (
    FailureClass,
    Message,
    RenderContext,
    RenderedBatch,
    RenderedUnit,
    Reply,
    Status,
)
from msgledger.adapters.callable import CallableChannel

from .kit import SHORT, Bench, parts, text
from .platform import accept, lose, refuse, reject


class WithFallback(CallableChannel):
    """A channel that has another plan for a batch that was refused whole."""

    asked: list[tuple[str, str | None]]

    def fallback(
        self,
        message: Message,
        refused: RenderedBatch,
        failure: FailureClass,
        context: RenderContext,
        code: str | None = None,
    ) -> RenderedBatch | None:
        self.asked = [*getattr(self, "asked", []), (failure.value, code)]
        assert message.body is not None
        return RenderedBatch((RenderedUnit(0, text="plain: " + message.body.text),))


def falling_back(bench: Bench, **more: Any) -> WithFallback:
    plain = bench.platform.channel(**more)
    return WithFallback("plat", bench.platform.deliver, capabilities=plain.capabilities)


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
