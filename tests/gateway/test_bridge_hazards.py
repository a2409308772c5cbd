"""What goes wrong when a gateway's delivery is moved: effects that are lost, arrays cut short, echoes told by text."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger import External, Message, Origin, RenderContext, RenderedBatch, RenderedUnit, Status, bridge_checks
from msgledger.adapters.surface import TextLimit
from msgledger.ledger import decide
from msgledger.ledger.store.apply import apply

from .bridge_kit import REPLY, Own, message_of, until
from .kit import Bench, text, to
from .platform import accept, hang_visible, lose


def test_the_echo_cache_is_filled_by_recovered_sends_too(bench: Bench) -> None:
    """MIG-9, AC-10: a cache of our own ids knows what the process before had recorded and this one sent."""

    async def main() -> None:
        own = Own(bench)
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            await bridge.deliver({"text": "owed"})
        bench.platform.ready = True
        cache: list[str] = []

        async def remember(effect: Any) -> None:
            cache.extend(part.id for part in effect.event.parts)

        gateway = bench.gateway()
        await gateway.on_sent("echo-cache", remember)
        async with gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            await bench.clock.advance(5)
            await bridge.deliver({"text": "live"})
            await until(lambda: len(cache) >= 2)
        assert sorted(cache) == ["m1", "m2"]
        assert bench.platform.texts == ["owed", "live"]

    bench.run(main())


def signed(message: Message, context: RenderContext) -> RenderedBatch:
    """A channel that signs what it sends; each rendering is another."""
    words = message.body.text if message.body else ""
    return RenderedBatch((RenderedUnit(0, "text", f"{words}\n-- {context.intent}"),))


def test_signature_and_thread_survive_recovery(bench: Bench) -> None:
    """MIG-9, BAT-8, REC-4: what was rendered is stored; a recovered send shows it once, in its thread, as a reply."""

    async def main() -> None:
        channel = {"render": signed, "threads": True, "carries": ("reply_to",)}
        bench.platform.ready = False
        async with bench.gateway(bench.platform.channel(**channel)) as gateway:
            bridge = gateway.bridge("plat", Own(bench).deliver, project=message_of, durable=True)
            outcome = await bridge.deliver({"text": "hello", "to": to(thread="t1"), "reply": REPLY})
        bench.platform.ready = True
        async with bench.gateway(bench.platform.channel(**channel)):
            await bench.clock.advance(5)
        [seen] = bench.platform.visible
        assert (seen.text, seen.thread, seen.reply_to) == (f"hello\n-- {outcome.intent}", "t1", "m-4711")

    bench.run(main())


def test_a_silent_fallback_array_is_delivered_whole(bench: Bench) -> None:
    """MIG-9, BAT-5, BAT-6: a process that dies after the first of three leaves the other two owed, in one intent."""

    async def main() -> None:
        channel = {"carries": ("silent",), "text": TextLimit(max=200)}
        bench.platform.plan(accept, hang_visible)
        bench.platform.looks_up = True
        gateway = bench.gateway(bench.platform.channel(deadline_s=0.3, **channel))
        await gateway.start()
        bridge = gateway.bridge("plat", Own(bench).deliver, project=message_of, durable=True, needs=("silent",))
        outcome = await bridge.deliver({"text": ["first", "second", "third"]})
        assert outcome.status in (Status.SENDING, Status.UNKNOWN)
        await gateway.kill()
        async with bench.gateway(bench.platform.channel(**channel)) as later:
            await bench.clock.advance(120)
            state = (await later.intent(outcome.intent)).state
            assert (state.status, state.platform_ids) == (Status.SENT, ("m1", "m2", "m3"))
        assert bench.platform.texts == ["first", "second", "third"]
        assert bench.types_of_intents().count("IntentRecorded") == 1

    bench.run(main())


@pytest.mark.parametrize("durable", [None, True], ids=["own", "durable"])
def test_the_effects_of_a_wrapper_run_once(bench: Bench, durable: Any) -> None:
    """MIG-9, AC-10: token, proxy, cache and clean-up belong to the one function that sends, whoever calls it."""

    async def main() -> None:
        effects: list[str] = []

        async def wrapped(place: str, words: str) -> str:
            effects.append("token")
            try:
                effects.append("proxy")
                effects.append("cache")
                return f"m{words}"
            finally:
                effects.append("cleanup")

        async def by_unit(unit: RenderedUnit, context: Any) -> str:
            return await wrapped(context.target.id, unit.text or "")

        async def by_payload(payload: Any) -> str:
            return await wrapped(to().id, payload["text"])

        async with bench.gateway(bench.platform.channel(deliver=by_unit)) as gateway:
            bridge = gateway.bridge("plat", by_payload, project=message_of, durable=durable)
            outcome = await bridge.deliver({"text": "1"})
            assert (outcome.receipt.platform_ids, outcome.durable) == (("m1",), bool(durable))
            assert effects == ["token", "proxy", "cache", "cleanup"]

    bench.run(main())


def test_a_failure_text_is_told_by_its_tag_and_not_by_its_words(bench: Bench) -> None:
    """MIG-9: two payloads with the same words; only the tagged one is a gateway's failure, and people see both."""

    async def main() -> None:
        own = Own(bench)
        tag = Origin("gateway", "gateway_failure", "missing_api_key", "drop_bot_room_echo")
        words = "Agent failed before reply: no API key"
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            tagged = await bridge.deliver({"text": words, "origin": tag})
            untagged = await bridge.deliver({"text": words})
            found = [(await gateway.intent(one.intent)).message.origin for one in (tagged, untagged)]
            assert found == [tag, Origin()]
            assert [row.origin for row in await gateway.intents()] == ["unknown", "gateway"]
        assert bench.platform.texts == [words, words]

    bench.run(main())


def test_a_prepared_dispatcher_is_not_durable_before_it_sends(bench: Bench) -> None:
    """MIG-9, MIG-3: a process that dies in it owes nothing; what it gave to `send` before is owed."""

    async def main() -> None:
        own = Own(bench)
        bench.platform.ready = False
        gateway = bench.gateway()
        await gateway.start()
        turn = gateway.bridge("plat", own.deliver).turn()

        async def dispatch() -> None:
            await turn.send(text("given to the ledger"))
            raise RuntimeError("and then it died")

        with pytest.raises(RuntimeError):
            await turn.run_prepared(dispatch)
        await gateway.kill()
        bench.platform.ready = True
        async with bench.gateway() as later:
            await bench.clock.advance(5)
            assert await later.owed(channel="plat") == []
        assert (bench.platform.texts, own.shown) == (["given to the ledger"], [])

    bench.run(main())


# ---- before a bridged path is made durable


def unmet(channel: Any) -> set[str]:
    return {check.name for check in bridge_checks(channel) if not check.met}


def lossy(message: Message, context: RenderContext) -> RenderedBatch:
    return RenderedBatch((RenderedUnit(0, "text", (message.body.text if message.body else "")[:100]),))


def test_the_checks_say_what_a_channel_does_not_meet(bench: Bench) -> None:
    """MIG-8: each point is met, or named with the reason."""
    count = iter(range(1000))

    def restless(message: Message, context: RenderContext) -> RenderedBatch:
        return RenderedBatch((RenderedUnit(0, "text", f"{message.body.text if message.body else ''} {next(count)}"),))

    def odd(message: Message, context: RenderContext) -> RenderedBatch:
        words = message.body.text if message.body else ""
        return RenderedBatch((RenderedUnit(0, "text", words, payload={"pair": (1, 2)}),))

    channel = bench.platform.channel
    assert unmet(channel()) == set()
    assert unmet(channel(text=TextLimit(max=200, chunking=True))) == set()
    assert unmet(channel(receipt="none")) == {"all_ids"}
    assert unmet(channel(render=lossy)) == {"all_payloads"}
    assert "replayable_plan" in unmet(channel(render=restless))
    assert unmet(channel(render=odd)) == {"replayable_plan"}
    assert unmet(External("plat")) == {"same_render_and_transport", "effects_kept", "prepared_converted"}
    assert all(check.why for check in bridge_checks(channel()))


def test_a_person_settles_what_a_bridge_left_in_doubt(bench: Bench) -> None:
    """MIG-7, UNK-5: the reference that came back is the one that an operator decides about."""

    async def main() -> None:
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", Own(bench).deliver, project=message_of, durable=True)
            outcome = await bridge.deliver({"text": "hello"})
            at, by = bench.clock.wall_ms(), "operator:ann@host"
            resolved = lambda now: decide.resolved(now, "sent", "seen", at=at, by=by, platform_id="m1")  # noqa: E731
            await apply(gateway.store, outcome.intent, resolved)
            gateway.dispatcher.wake()
            await bench.clock.advance(1)
            newer = await outcome.delivery.wait(1)
            assert (newer.status, newer.receipt.platform_ids) == (Status.SENT, ("m1",))

    bench.run(main())
