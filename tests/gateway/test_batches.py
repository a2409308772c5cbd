"""Messages of several units: one plan written first, receipts per unit, and only what is missing is sent again."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger import InvalidMessage, Message, RenderContext, RenderedBatch, RenderedUnit, Status
from msgledger.ledger.message import Atomicity

from .kit import SHORT, Bench, parts, text
from .platform import Request, accept, drop, hang, lose, refuse, reject


def four(atomicity: Atomicity = "all_or_retry_remaining", optional: tuple[int, ...] = ()) -> Any:
    """A renderer of four units."""

    def render(message: Message, context: RenderContext) -> RenderedBatch:
        assert message.body is not None
        units = [
            RenderedUnit(index, text=f"{message.body.text} {index}", required=index not in optional)
            for index in range(4)
        ]
        return RenderedBatch(tuple(units), atomicity)

    return render


def sent_units(bench: Bench) -> list[int]:
    return [request.unit.index for request in bench.platform.requests]


def test_the_whole_plan_is_stored_before_the_first_unit_leaves(bench: Bench) -> None:
    """BAT-6, CORE-6: and its units count up from 0."""
    seen: list[list[int]] = []

    async def look(request: Request) -> None:
        record = bench.last(request.context.intent, "IntentRecorded")
        seen.append([unit["index"] for unit in record["content"]["batch"]["units"]])

    async def main() -> None:
        bench.platform.before = look
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            await gateway.send(text(parts(3)))

    bench.run(main())
    assert seen[0] == [0, 1, 2]


def test_units_with_gaps_in_their_numbers_are_refused(bench: Bench) -> None:
    """BAT-2: nothing is recorded."""

    def render(message: Message, context: RenderContext) -> RenderedBatch:
        return RenderedBatch((RenderedUnit(0, text="a"), RenderedUnit(2, text="b")))

    async def main() -> None:
        async with bench.gateway(bench.platform.channel(render=render)) as gateway:
            with pytest.raises(InvalidMessage, match="numbered"):
                await gateway.send(text("x"))
            assert bench.types_of_intents() == []

    bench.run(main())


def test_after_a_failure_only_the_missing_units_are_sent(bench: Bench) -> None:
    """BAT-1, BAT-3, BAT-7, SC-19, SC-36, SC-37, SC-38, REC-7, OB-19: two of four, then the other two, under the
    same keys."""

    async def main() -> None:
        bench.platform.plan(accept, accept, reject("transient", status=503))
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            delivery = await gateway.send(text(parts(4)))
            assert delivery.status is Status.PENDING
            assert delivery.receipt is not None and delivery.receipt.platform_ids == ("m1", "m2")
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            await bench.clock.advance(60)
            done = (await gateway.intent(delivery.intent)).state
            assert (done.status, done.platform_ids) == (Status.SENT, ("m1", "m2", "m3", "m4"))
        assert sent_units(bench) == [0, 1, 2, 2, 3]
        keys = {index: set[str]() for index in range(4)}
        for request in bench.platform.requests:
            keys[request.unit.index].add(request.context.provider_key)
        assert [len(found) for found in keys.values()] == [1, 1, 1, 1]
        second = [e.data for e in bench.events(delivery.intent) if e.type == "AttemptStarted"][1]
        assert [one["unit"] for one in second["units"]] == [2, 3]

    bench.run(main())


@pytest.mark.parametrize("behind", range(1, 4))
def test_a_message_in_four_parts_is_completed_after_a_crash_behind_any_part(bench: Bench, behind: int) -> None:
    """G14, BAT-6, BAT-7, SND-4, SC-39: the look-up settles the unit in doubt, the rest follows, every id is kept."""

    async def main() -> None:
        bench.platform.looks_up = True
        channel = bench.platform.channel(text=SHORT, deadline_s=60)
        bench.platform.plan(*[accept] * behind, hang)
        gateway = bench.gateway(channel)
        await gateway.start()
        delivery = await gateway.send(text(parts(4)), timeout_s=0.1)
        await gateway.kill()
        assert bench.types(delivery.intent).count("UnitAccepted") == behind
        async with bench.gateway(channel) as gateway:
            await bench.clock.until(lambda: len(bench.platform.texts) == 4, within_s=300)
            await bench.clock.settle()
            state = (await gateway.intent(delivery.intent)).state
            assert (state.status, state.platform_ids) == (Status.SENT, ("m1", "m2", "m3", "m4"))
        assert len(set(bench.platform.texts)) == 4

    bench.run(main())


def test_a_unit_in_doubt_keeps_back_those_behind_it(bench: Bench) -> None:
    """BAT-7, SC-35: nothing follows an unknown outcome until it is settled."""

    async def main() -> None:
        bench.platform.plan(accept, lose())
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            delivery = await gateway.send(text(parts(4)))
            await bench.clock.advance(3600)
            assert (delivery.status, len(bench.platform.texts)) == (Status.UNKNOWN, 2)
        assert sent_units(bench) == [0, 1]

    bench.run(main())


def test_best_effort_parts_go_on_behind_a_failure_and_say_what_is_missing(bench: Bench) -> None:
    """BAT-4, SC-34, SC-35: what can be delivered is; the commit lists the gap."""

    async def main() -> None:
        bench.platform.plan(accept, reject("invalid_payload"))
        async with bench.gateway(bench.platform.channel(render=four("best_effort_parts"))) as gateway:
            delivery = await gateway.send(text("part"))
            assert delivery.status is Status.SENT
        assert bench.platform.texts == ["part 0", "part 2", "part 3"]
        assert bench.last(delivery.intent, "IntentCommitted")["missing"] == [1]

    bench.run(main())


def test_best_effort_parts_of_which_none_was_taken_have_failed(bench: Bench) -> None:
    """BAT-4, SC-04: without any receipt it is not sent."""

    async def main() -> None:
        bench.platform.rule = reject("invalid_payload")
        async with bench.gateway(bench.platform.channel(render=four("best_effort_parts"))) as gateway:
            assert (await gateway.send(text("part"))).status is Status.FAILED

    bench.run(main())


def test_a_message_that_lacks_a_required_unit_is_not_sent(bench: Bench) -> None:
    """SC-34, SC-42, BAT-3: it is failed, with the partial receipt, and nobody is told otherwise."""

    async def main() -> None:
        bench.platform.plan(accept, reject("not_found"))
        async with bench.gateway(bench.platform.channel(render=four())) as gateway:
            delivery = await gateway.send(text("part"))
            assert (delivery.status, delivery.reason) == (Status.FAILED, "rejected")
            assert delivery.receipt is not None and delivery.receipt.platform_ids == ("m1",)
        assert bench.platform.texts == ["part 0"]

    bench.run(main())


@pytest.mark.parametrize("failure", ["transient", "auth", "invalid_payload"])
def test_an_optional_unit_that_fails_does_not_fail_the_message(bench: Bench, failure: str) -> None:
    """GAP-7: recorded, not retried, listed as missing."""

    async def main() -> None:
        bench.platform.plan(accept, reject(failure))
        async with bench.gateway(bench.platform.channel(render=four(optional=(1,)))) as gateway:
            delivery = await gateway.send(text("part"))
            assert delivery.status is Status.SENT
            await bench.clock.advance(600)
        assert bench.platform.texts == ["part 0", "part 2", "part 3"]
        assert bench.types(delivery.intent).count("AttemptFailed") == 1
        assert bench.last(delivery.intent, "IntentCommitted")["missing"] == [1]

    bench.run(main())


def test_a_resend_uses_the_stored_units(bench: Bench) -> None:
    """BAT-8, SC-09, REC-5, REC-4: a renderer that changed between crash and recovery changes nothing."""

    def changed(message: Message, context: RenderContext) -> RenderedBatch:
        raise AssertionError("rendered again")

    async def main() -> None:
        bench.platform.plan(refuse)
        async with bench.gateway(bench.platform.channel(render=four())) as gateway:
            await gateway.send(text("as it was"))
        async with bench.gateway(bench.platform.channel(render=changed)):
            await bench.clock.advance(60)
        assert bench.platform.texts == [f"as it was {index}" for index in range(4)]

    bench.run(main())


def test_a_resumed_message_under_a_lost_answer_never_repeats_an_accepted_unit(bench: Bench) -> None:
    """SC-36, SC-38, SC-41: lost, looked up, refused, accepted: each part once."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(accept, lose(), refuse, drop(), accept, reject("rate_limit", retry_after_s=5))
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            delivery = await gateway.send(text(parts(4)))
            await bench.clock.until(lambda: len(bench.platform.texts) == 4, within_s=600)
            await bench.clock.settle()
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert len(set(bench.platform.texts)) == 4
        assert [one.unit for one in bench.platform.visible] == [0, 1, 2, 3]
        facts = [event for event in bench.events(delivery.intent) if event.type == "AttemptFailed"]
        assert [(one.data["unit"], one.data.get("bytes_left", True)) for one in facts] == [(2, False), (3, True)]

    bench.run(main())
