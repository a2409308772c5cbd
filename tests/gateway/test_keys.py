"""Keys: one message for one key, two for none; other content under a key is a conflict; who owns the retry is told."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgledger import IdempotencyConflict, Status

from .kit import Bench, text
from .platform import DEADLINE_S, Request, gated, lose, refuse, reject


def test_two_equal_texts_are_two_messages(bench: Bench) -> None:
    """SC-46, GAP-9: without a key nothing is swallowed; each key is told."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            one, two = await gateway.send(text("heartbeat")), await gateway.send(text("heartbeat"))
            assert one.key != two.key
            assert not two.repeated
        assert bench.platform.texts == ["heartbeat", "heartbeat"]

    bench.run(main())


@pytest.mark.parametrize("when", ["pending", "in flight", "sent", "failed", "unknown"])
def test_the_same_key_gives_the_standing_intent(bench: Bench, when: str) -> None:
    """OB-3, SC-44, SC-47, RCP-5: nothing new is recorded, nothing more goes out, in whatever state it stands."""

    async def main() -> None:
        gate = asyncio.Event()
        behaviour = {
            "pending": refuse,
            "in flight": gated(gate),
            "failed": reject("invalid_payload"),
            "unknown": lose(),
        }.get(when)
        if behaviour is not None:
            bench.platform.plan(behaviour)
        async with bench.gateway() as gateway:
            first = await gateway.send(text("once"), key="a-key-of-mine", wait=when != "in flight")
            before = bench.types_of_intents()
            began = time.monotonic()
            for _ in range(5):
                again = await gateway.send(text("once"), key="a-key-of-mine", wait=when != "in flight")
                assert (again.intent, again.repeated) == (first.intent, True)
                assert again.status is first.status
                assert again.retry == first.retry
            assert bench.types_of_intents() == before
            assert time.monotonic() - began < DEADLINE_S, "what has come to rest is told at once"
            gate.set()
            await bench.clock.advance(60)
        assert len(bench.platform.texts) == (0 if when == "failed" else 1)

    bench.run(main())


def test_the_same_key_with_other_content_is_a_conflict(bench: Bench) -> None:
    """SC-46, OB-3: the error names the intent that stands, and nothing is recorded."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            first = await gateway.send(text("once"), key="a-key-of-mine")
            for other in (text("twice"), text("once", "another-room")):
                with pytest.raises(IdempotencyConflict) as caught:
                    await gateway.send(other, key="a-key-of-mine")
                assert caught.value.intent == first.intent
            assert bench.types_of_intents().count("IntentRecorded") == 1
        assert bench.platform.texts == ["once"]

    bench.run(main())


def test_two_at_once_under_one_key_are_one_message(bench: Bench) -> None:
    """OB-3, SC-45: the store admits it once."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            all_of_them = await asyncio.gather(
                *(gateway.send(text("once"), key="a-key-of-mine", timeout_s=1) for _ in range(10))
            )
            assert len({one.intent for one in all_of_them}) == 1
            assert [one.repeated for one in all_of_them].count(False) == 1
            assert {one.status for one in all_of_them} == {Status.SENT}
        assert bench.platform.texts == ["once"]

    bench.run(main())


def test_a_run_that_is_run_again_records_each_of_its_sends_once(bench: Bench) -> None:
    """SC-45, SC-47: derived from producer, run and ordinal, over a restart, and the first content stands."""

    async def main() -> None:
        for turn in range(3):
            async with bench.gateway() as gateway:
                one = await gateway.send(text("first"), producer="cron", run="tuesday")
                two = await gateway.send(text(f"second, turn {turn}"), producer="cron", run="tuesday")
                assert (one.repeated, two.repeated) == (turn > 0, turn > 0)
        assert bench.platform.texts == ["first", "second, turn 0"]

    bench.run(main())


def test_jobs_of_different_producers_or_runs_never_share_a_key(bench: Bench) -> None:
    """SC-46: (a, bc) and (ab, c) are different too."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            for producer, run in (("a", "bc"), ("ab", "c"), ("a", "b"), ("b", "a")):
                assert not (await gateway.send(text("job done"), producer=producer, run=run)).repeated
        assert len(bench.platform.texts) == 4

    bench.run(main())


def test_a_given_key_never_meets_a_derived_one(bench: Bench) -> None:
    """SC-46: a key of a caller that looks like a derived one."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            derived = await gateway.send(text("by run"), producer="cron", run="tuesday")
            fresh = await gateway.send(text("by nobody"))
            for key in (derived.key, fresh.key):
                with pytest.raises(IdempotencyConflict):
                    await gateway.send(text("by key"), key=key)

    bench.run(main())


def test_an_edit_under_a_key_is_made_once(bench: Bench) -> None:
    """OB-3: keys of edits and deletes too; the same key for an edit and a send is a conflict."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("first"))
            for _ in range(2):
                await gateway.edit(sent, text("second"), key="an-edit-of-mine")
            with pytest.raises(IdempotencyConflict):
                await gateway.send(text("second"), key="an-edit-of-mine")
        assert len(bench.platform.log) == 1

    bench.run(main())


def test_the_provider_key_is_the_same_for_every_attempt(bench: Bench) -> None:
    """BAT-1, SC-39: stored before the send, and another for every message."""
    stored: list[bool] = []

    async def look(request: Request) -> None:
        tries = bench.last(request.context.intent, "AttemptStarted")["units"]
        stored.append(request.context.provider_key in [one["key"] for one in tries])

    async def main() -> None:
        bench.platform.before = look
        bench.platform.plan(refuse, reject("transient"))
        async with bench.gateway() as gateway:
            await gateway.send(text("one"), wait=False)
            await gateway.send(text("two"), wait=False)
            await bench.clock.advance(120)
        keys = [(request.text, request.context.provider_key) for request in bench.platform.requests]
        assert len(keys) == 4
        assert len(set(keys)) == len({key for _, key in keys}) == 2

    bench.run(main())
    assert all(stored)
