"""The four calls where no word comes, or comes late, twice, or against the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgledger import (
    External,
    LaneBusy,
    LedgerError,
    Lookup,
    NotDispatched,
    NotPossible,
    NotSent,
    Rejected,
    Sent,
    Status,
    StoreUnavailable,
    Unknown,
)
from msgledger.ledger import decide
from msgledger.ledger import events as e
from msgledger.ledger.outcome import Accepted
from msgledger.ledger.store.append import Append

from .kit import Bench, text
from .test_four_calls import DEADLINE_S, SETTLE_S, external

SILENT_S = 0.3
"""The deadline where no word is said; deadlines run in real time."""


async def lease_over(bench: Bench) -> None:
    await bench.clock.advance(SILENT_S + SETTLE_S + 1)


def test_silence_is_unknown_and_the_lane_goes_on(bench: Bench) -> None:
    """R1, R6, UNK-5, GAP-5: held at the lease end, never sent again, and the next of the lane may go."""

    async def main() -> None:
        async with bench.gateway(external(deadline_s=SILENT_S)) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("silence")))
            behind = await gateway.record(text("behind"))
            await bench.clock.advance(SILENT_S + 1)
            assert (await gateway.intent(attempt.intent)).state.status == Status.UNKNOWN
            assert bench.last(attempt.intent, "OutcomeUnknown")["cause"] == "timeout"
            with pytest.raises(NotPossible, match="may have arrived"):
                await gateway.attempting(attempt.intent)
            with pytest.raises(LaneBusy):
                await gateway.attempting(behind)
            await lease_over(bench)
            assert (await gateway.intent(attempt.intent)).state.hold == "unresolved"
            assert (await gateway.delivered(await gateway.attempting(behind), "m2")).status == Status.SENT
            assert (await gateway.owed(channel="plat"))[0].id == attempt.intent

    bench.run(main())


@pytest.mark.parametrize("when", ["in doubt", "held", "restarted"])
@pytest.mark.parametrize("by", ["attempt", "intent"])
def test_a_late_receipt_settles_it(bench: Bench, when: str, by: str) -> None:
    """R2, UNK-8: a fact is taken at any time, and commits what is open."""

    async def main() -> None:
        async with bench.gateway(external(deadline_s=SILENT_S)) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("late")))
            await bench.clock.advance(SILENT_S + 1)
            if when != "in doubt":
                await lease_over(bench)
            if when != "restarted":
                done = await gateway.delivered(attempt if by == "attempt" else attempt.intent, "m1")
                assert (done.status, done.receipt.platform_ids) == (Status.SENT, ("m1",))
                return
        async with bench.gateway(external(deadline_s=SILENT_S)) as gateway:
            done = await gateway.delivered(attempt if by == "attempt" else attempt.intent, "m1")
            assert done.status == Status.SENT
            assert bench.types(attempt.intent)[-2:] == ["UnitAccepted", "IntentCommitted"]

    bench.run(main())


def test_a_late_proof_of_not_sent_reopens_it(bench: Bench) -> None:
    """FAIL-11, R4: the gateway's own proof; a timeout proves nothing, also late."""

    async def main() -> None:
        async with bench.gateway(external(deadline_s=SILENT_S)) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("late")))
            await bench.clock.advance(SILENT_S + 1)
            doubt = await gateway.failed(attempt, TimeoutError("no answer"))
            assert doubt.status == Status.UNKNOWN
            assert bench.types(attempt.intent).count("OutcomeUnknown") == 1, "the ledger knew that nobody knows"
            back = await gateway.failed(attempt, NotDispatched("it stood in our own queue"))
            assert back.status == Status.PENDING
            await bench.clock.advance(120)
            assert (await gateway.delivered(await gateway.attempting(attempt.intent), "m1")).status == Status.SENT

    bench.run(main())


@pytest.mark.parametrize(
    ("error", "status", "last"),
    [
        (TimeoutError("slow"), Status.UNKNOWN, "timeout"),
        (RuntimeError("who knows"), Status.UNKNOWN, "raised"),
        (None, Status.UNKNOWN, "raised"),
        (Unknown("reset"), Status.UNKNOWN, "reset"),
        (Rejected("invalid_payload"), Status.FAILED, "declared"),
        (Rejected("auth"), Status.PENDING, "declared"),
        (NotDispatched(), Status.PENDING, "declared"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_what_a_failure_may_be(bench: Bench, error: Any, status: Status, last: str) -> None:
    """FAIL-9, FAIL-10, FAIL-11: only the gateway's explicit word is proof that nothing was sent."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            done = await gateway.failed(attempt, error)
            assert done.status == status
            event = bench.events(attempt.intent)[2].data
            assert (event.get("cause") or event["proof"]) == last

    bench.run(main())


def test_a_word_against_the_end_is_a_contradiction(bench: Bench) -> None:
    """R2, G5: recorded and counted, and the end stands."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            await gateway.failed(attempt, Rejected("invalid_payload"))
            done = await gateway.delivered(attempt, "m1")
            assert done.status == Status.FAILED
            assert (await gateway.intent(attempt.intent)).state.contradictions == 1
            await gateway.delivered(attempt, "m1")
            assert bench.types(attempt.intent).count("UnitAccepted") == 1, "said twice it is one fact"

    bench.run(main())


def test_a_late_word_is_about_its_own_attempt(bench: Bench) -> None:
    """R2, G5: the first attempt was given up and has arrived after all, while the second is under way."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            first = await gateway.attempting(await gateway.record(text("hello")))
            await gateway.failed(first, NotDispatched("so it seemed"))
            await bench.clock.advance(120)
            second = await gateway.attempting(first.intent)
            await gateway.delivered(first, "m1")
            assert bench.last(first.intent, "UnitAccepted")["attempt"] == 1
            assert (await gateway.intent(first.intent)).state.status == Status.SENDING
            done = await gateway.delivered(second, "m2")
            assert (done.status, done.receipt.platform_ids, done.receipt.duplicates) == (Status.SENT, ("m1",), 1)

    bench.run(main())


class Deaf(External):
    """The last look ends its attempts whatever the gateway has said meanwhile."""

    def __init__(self) -> None:
        super().__init__("plat", deadline_s=DEADLINE_S, settle_s=SETTLE_S)
        self.gate = asyncio.Event()

    async def deliver(self, unit: Any, context: Any) -> Any:
        await self.gate.wait()
        raise decide.superseded("another worker has gone on with it")


def test_a_word_that_the_attempt_did_not_hear_is_recorded_all_the_same(bench: Bench) -> None:
    """R9, G5, G14: said between the claim and its end."""

    async def main() -> None:
        channel = Deaf()
        async with bench.gateway(channel) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            saying = asyncio.create_task(gateway.delivered(attempt, "m1"))
            await bench.clock.settle()
            channel.gate.set()
            done = await saying
            assert done.receipt is not None and done.receipt.platform_ids == ("m1",)

    bench.run(main())


def test_words_said_at_once_are_one_outcome(bench: Bench) -> None:
    """G14: two tasks of the gateway say the same; nothing is recorded twice."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            words = await asyncio.gather(*(gateway.delivered(attempt, "m1") for _ in range(3)))
            assert {word.status for word in words} == {Status.SENT}
            assert bench.types(attempt.intent)[2:] == ["UnitAccepted", "IntentCommitted"]

    bench.run(main())


@pytest.mark.parametrize("found", [True, False], ids=["found", "absent"])
def test_the_gateways_own_look_up(bench: Bench, found: bool) -> None:
    """UNK-2, UNK-3, UNK-4: it settles what is unknown, and its absence gives the attempt back to the gateway."""

    async def look(unit: Any, context: Any) -> Any:
        return Sent(Accepted("m7")) if found else NotSent()

    async def main() -> None:
        lookup = Lookup("by_key", can_prove_absence=True, evidence="documented")
        async with bench.gateway(external(deadline_s=SILENT_S, reconcile=look, lookup=lookup)) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            await bench.clock.advance(SILENT_S + 1)
            await lease_over(bench)
            await bench.clock.advance(30)
            state = (await gateway.intent(attempt.intent)).state
            if found:
                assert (state.status, state.platform_ids) == (Status.SENT, ("m7",))
            else:
                assert (state.status, state.attempts) == (Status.PENDING, 1)
                assert (await gateway.delivered(await gateway.attempting(attempt.intent), "m8")).attempts == 2

    bench.run(main())


def test_a_caller_that_goes_away_before_it_could_send(bench: Bench) -> None:
    """SND-7, G7: its claim proves that nothing left, and another attempt may follow."""

    async def main() -> None:
        async with bench.gateway(external(deadline_s=SILENT_S)) as gateway:
            intent = await gateway.record(text("hello"))
            claiming = asyncio.create_task(gateway.attempting(intent))
            while not gateway.dispatcher.handed:
                await asyncio.sleep(0)
            claiming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claiming
            await bench.clock.advance(120)
            assert (await gateway.intent(intent)).state.status == Status.PENDING
            assert (await gateway.delivered(await gateway.attempting(intent), "m1")).status == Status.SENT

    bench.run(main())


def test_closing_says_that_it_does_not_know(bench: Bench) -> None:
    """FAIL-8, UNK-1: closing waits for the word until the deadline, and guesses nothing."""

    async def main() -> None:
        async with bench.gateway(external(deadline_s=SILENT_S)) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            closing = asyncio.create_task(gateway.close())
            await bench.clock.advance(SILENT_S + 1)
            await closing
        assert bench.types(attempt.intent) == ["IntentRecorded", "AttemptStarted", "OutcomeUnknown"]

    bench.run(main())


def test_a_word_that_comes_while_the_gateway_closes(bench: Bench) -> None:
    """FAIL-8, G7: closing waits for it, and it is the outcome; after the end it is a typed error."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            closing = asyncio.create_task(gateway.close())
            await asyncio.sleep(0)
            with pytest.raises(LedgerError):
                await gateway.record(text("too late"))
            assert (await gateway.delivered(attempt, "m1")).status == Status.SENT
            await closing
            with pytest.raises(StoreUnavailable):
                await gateway.delivered(attempt, "m1")
        assert bench.types(attempt.intent)[2:] == ["UnitAccepted", "IntentCommitted"]

    bench.run(main())


def test_what_was_held_for_its_channel_is_let_go(bench: Bench) -> None:
    """REC-11: another process found nobody who serves the channel; the gateway that does goes on with it."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            intent = await gateway.record(text("hello"))
            held = e.IntentHeld(at=bench.clock.wall_ms(), by="worker:other", hold="channel")
            await gateway.store.append(Append(intent.intent, (held,)))
            assert (await gateway.intent(intent)).state.hold == "channel"
            assert (await gateway.delivered(await gateway.attempting(intent), "m1")).status == Status.SENT

    bench.run(main())
