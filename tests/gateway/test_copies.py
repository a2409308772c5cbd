"""Sending again what may be there already: under its key inside the window, or as a marked copy by explicit choice."""

from __future__ import annotations

import pytest
from msgledger import InvalidMessage, Message, RenderContext, RenderedBatch, RenderedUnit, Status
from msgledger.adapters.text import DUPLICATE_MARKER

from .kit import SHORT, Bench, killed_while_sending, text
from .platform import DEADLINE_S, SETTLE_S, accept, hang, hang_visible, lose, refuse, reject

LEASE_S = DEADLINE_S + SETTLE_S


def test_a_copy_by_explicit_choice_carries_the_marker(bench: Bench) -> None:
    """UNK-7, SC-07, OB-6, CORE-2: licence and mark on the attempt, the marker in the text, copies counted."""

    async def main() -> None:
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("twice if need be"), on_unknown="at_least_once")
            await bench.clock.advance(60)
            done = await delivery.wait(1)
            assert done.status is Status.SENT
            assert done.receipt is not None and done.receipt.duplicates == 1
        assert bench.platform.texts == ["twice if need be", DUPLICATE_MARKER + "twice if need be"]
        started = bench.last(delivery.intent, "AttemptStarted")
        assert (started["licence"], started["marked"], started["why"]) == ("at_least_once", True, "recovery")
        assert bench.last(delivery.intent, "IntentRecorded")["policy"]["on_unknown"] == "at_least_once"

    bench.run(main())


def test_the_second_recovery_knows_of_the_attempt_of_the_first(bench: Bench) -> None:
    """OB-7: whoever died in between, what goes out now carries the marker."""

    async def main() -> None:
        intent = await killed_while_sending(bench, hang_visible, on_unknown="at_least_once")
        bench.platform.plan(hang)
        second = bench.gateway(bench.platform.channel(text=SHORT))
        await second.start()
        bench.clock.free = True
        await bench.clock.advance(3)
        bench.clock.free = False
        assert len(bench.platform.requests) == 2
        await second.kill()
        async with bench.gateway(bench.platform.channel(text=SHORT)) as third:
            await bench.clock.advance(120)
            assert (await third.intent(intent)).state.status is Status.SENT
        assert bench.platform.texts == ["ambiguous", DUPLICATE_MARKER + "ambiguous"]
        assert [request.context.marked for request in bench.platform.requests] == [False, True, True]

    bench.run(main())


def test_an_open_window_allows_the_same_request_under_the_same_key(bench: Bench) -> None:
    """G4, R5, SC-39, UNK-4: recognised, one copy, the same key and bytes."""

    async def main() -> None:
        bench.platform.window_s = 3600.0
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("under its key"))
            await bench.clock.advance(60)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert bench.platform.texts == ["under its key"]
        tries = [one.data["units"] for one in bench.events(delivery.intent) if one.type == "AttemptStarted"]
        assert len(tries) == 2 and tries[0] == tries[1]
        assert bench.last(delivery.intent, "AttemptStarted")["licence"] == "window"
        assert bench.last(delivery.intent, "UnitAccepted")["duplicate"]

    bench.run(main())


@pytest.mark.parametrize("why", ["window", "credential", "clock"])
def test_a_closed_window_allows_nothing(bench: Bench, why: str) -> None:
    """R5, SC-39, G4: too late, another credential, or a clock that runs behind the ledger."""

    async def main() -> None:
        bench.platform.window_s = 30.0 if why == "window" else 3600.0
        channel = bench.platform.channel(credential="first token")
        bench.platform.ready = True
        bench.platform.plan(hang_visible)
        gateway = bench.gateway(channel)
        await gateway.start()
        delivery = await gateway.send(text("ambiguous"), timeout_s=0.05)
        await gateway.kill()
        if why == "window":
            await bench.clock.advance(25)
        if why == "clock":
            bench.clock.jump(-3600)
        again = bench.platform.channel(credential="rotated token" if why == "credential" else "first token")
        async with bench.gateway(again) as gateway:
            await bench.clock.advance(1800)
            assert (await gateway.intent(delivery.intent)).state.status is Status.UNKNOWN
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_a_failure_of_a_copy_does_not_end_the_doubt_of_the_first(bench: Bench) -> None:
    """R2, R4: proof about the second attempt says nothing of the first."""

    async def main() -> None:
        bench.platform.window_s = 3600.0
        bench.platform.plan(lose(), reject("invalid_payload"), refuse, accept)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("in doubt"))
            await bench.clock.advance(300)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert bench.platform.texts == ["in doubt"]
        assert "IntentFailed" not in bench.types(delivery.intent)

    bench.run(main())


def test_a_channel_without_a_marked_form_is_refused_for_copies(bench: Bench) -> None:
    """UNK-7, G4: a copy never goes out without its marker, so nothing is recorded that could need one."""

    def render(message: Message, context: RenderContext) -> RenderedBatch:
        return RenderedBatch((RenderedUnit(0, "text", "bare"),))

    async def main() -> None:
        async with bench.gateway(bench.platform.channel(render=render)) as gateway:
            with pytest.raises(InvalidMessage, match="no marked copy of unit 0"):
                await gateway.send(text("x"), on_unknown="at_least_once")
            assert (await gateway.send(text("x"))).status is Status.SENT
        assert len(bench.platform.texts) == 1

    bench.run(main())
