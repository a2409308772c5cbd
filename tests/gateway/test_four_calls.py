"""The four calls of a gateway that sends by itself: every order of them, their guards, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest
from msgledger import (
    Attachment,
    External,
    InvalidMessage,
    LaneBusy,
    Message,
    NoSuchIntent,
    NotDispatched,
    NotPossible,
    Receipt,
    ReceiptPart,
    Rejected,
    Status,
)
from msgledger.ledger.outcome import Accepted

from .kit import Bench, TestGateway, text, to

DEADLINE_S, SETTLE_S = 5.0, 10.0


def external(**more: Any) -> External:
    return External("plat", **{"deadline_s": DEADLINE_S, "settle_s": SETTLE_S, **more})


# ---- every order

START = "-"
AFTER: dict[tuple[str, str], str | type[Exception]] = {
    (START, "record"): "pending",
    (START, "attempting"): NoSuchIntent,
    (START, "delivered"): NoSuchIntent,
    (START, "failed"): NoSuchIntent,
    ("pending", "record"): "pending",
    ("pending", "attempting"): "sending",
    ("pending", "delivered"): NotPossible,
    ("pending", "failed"): NotPossible,
    ("sending", "record"): "sending",
    ("sending", "attempting"): NotPossible,
    ("sending", "delivered"): "sent",
    ("sending", "failed"): "failed",
    ("sent", "record"): "sent",
    ("sent", "attempting"): NotPossible,
    ("sent", "delivered"): "sent",
    ("sent", "failed"): "sent",
    ("failed", "record"): "failed",
    ("failed", "attempting"): NotPossible,
    ("failed", "delivered"): "failed",
    ("failed", "failed"): "failed",
}
"""What each call does to an intent in each status. A word against the end is a contradiction: recorded, not obeyed."""
CALLS = ("record", "attempting", "delivered", "failed")


@pytest.mark.parametrize("first", CALLS)
def test_every_order_of_the_calls(bench: Bench, first: str) -> None:
    """SND-7, DUR-4, R2: all 256 of four calls; a wrong one is a clear error and changes nothing."""

    async def call(gateway: TestGateway, name: str, key: str, id: str) -> Any:
        match name:
            case "record":
                return await gateway.record(text(key, key), key=key)
            case "attempting":
                return await gateway.attempting(id)
            case "delivered":
                return await gateway.delivered(id, "m1")
            case _:
                return await gateway.failed(id, Rejected("invalid_payload", "no such room"))

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            for order in product((first,), CALLS, CALLS, CALLS):
                key, id, status = "-".join(order), "0193-nobody", START
                for name in order:
                    expected = AFTER[status, name]
                    if isinstance(expected, str):
                        answer = await call(gateway, name, key, id)
                        id, status = answer.intent, expected
                        assert (await gateway.intent(id)).state.status == status, (order, name)
                    else:
                        with pytest.raises(expected):
                            await call(gateway, name, key, id)
                        if status != START:
                            assert (await gateway.intent(id)).state.status == status, (order, name)
                if status == "sending":
                    await gateway.delivered(id, "m1")

    bench.run(main())


def test_the_events_are_those_of_a_send_of_ours(bench: Bench) -> None:
    """MIG-3, R9, G1, CORE-1: the attempt is durable when `attempting` returns, the receipt when `delivered` does."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            intent = await gateway.record(text("hello"))
            assert bench.types(intent.intent) == ["IntentRecorded"]
            attempt = await gateway.attempting(intent)
            assert bench.types(intent.intent) == ["IntentRecorded", "AttemptStarted"]
            started = bench.last(intent.intent, "AttemptStarted")
            assert (started["owner"], started["attempt"]) == (gateway.worker, attempt.attempt)
            assert (started["deadline_ms"], started["margin_ms"]) == (5000, 10_000)
            assert (attempt.deadline_s, attempt.message.target) == (DEADLINE_S, to())
            done = await gateway.delivered(attempt, ["m1", "m2"])
            assert bench.types(intent.intent)[2:] == ["UnitAccepted", "IntentCommitted"]
            assert (done.status, done.receipt.platform_ids) == (Status.SENT, ("m1", "m2"))
            assert done.receipt.primary_platform_id == "m1"
            assert await gateway.by_platform_id("plat", "m2", to()) == [intent.intent]

    bench.run(main())


@pytest.mark.parametrize(
    ("receipt", "ids"),
    [
        ("m1", ("m1",)),
        (17, ("17",)),
        (("a", 2), ("a", "2")),
        (Receipt((ReceiptPart(0, "x", thread="t"), ReceiptPart(1, "y")), "x"), ("x", "y")),
        (Accepted("m9"), ("m9",)),
    ],
    ids=["text", "number", "list", "receipt", "accepted"],
)
def test_what_a_receipt_may_be(bench: Bench, receipt: Any, ids: tuple[str, ...]) -> None:
    """RCP-2, RCP-5: every id comes back, whatever form the gateway has it in."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            done = await gateway.delivered(attempt, receipt)
            assert done.receipt is not None and done.receipt.platform_ids == ids

    bench.run(main())


@pytest.mark.parametrize("receipt", [None, "", True, 1.5, [], ["a", None], object()], ids=repr)
def test_what_names_no_message_is_refused_and_loses_nothing(bench: Bench, receipt: Any) -> None:
    """CAP-5: the attempt stands, so that the right word can follow."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            with pytest.raises(InvalidMessage, match="id"):
                await gateway.delivered(attempt, receipt)
            assert (await gateway.delivered(attempt, "m1")).status == Status.SENT

    bench.run(main())


def test_a_channel_without_ids_needs_none(bench: Bench) -> None:
    """CAP-5"""

    async def main() -> None:
        async with bench.gateway(external(receipt="none")) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            done = await gateway.delivered(attempt)
            assert (done.status, done.receipt.identity) == (Status.SENT, "none")

    bench.run(main())


# ---- guards


def test_one_of_a_lane_at_a_time_and_in_order(bench: Bench) -> None:
    """R7, G6: the second waits for the word on the first, another conversation does not."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            first = await gateway.record(text("one"))
            second = await gateway.record(text("two"))
            aside = await gateway.record(text("aside"), ordered=False)
            elsewhere = await gateway.record(text("else", "room-other"))
            with pytest.raises(LaneBusy, match="ordered=False"):
                await gateway.attempting(second)
            attempt = await gateway.attempting(first)
            with pytest.raises(LaneBusy):
                await gateway.attempting(second)
            for other in (aside, elsewhere):
                assert (await gateway.delivered(await gateway.attempting(other), "m")).status == Status.SENT
            await gateway.delivered(attempt, "m1")
            assert (await gateway.delivered(await gateway.attempting(second), "m2")).status == Status.SENT

    bench.run(main())


def test_two_gateways_and_one_attempt(bench: Bench) -> None:
    """G5, REC-2: of two that claim at once one gets it; the other is told who has it."""

    async def main() -> None:
        async with bench.gateway(external()) as one, bench.gateway(external()) as two:
            intent = await one.record(text("hello"))
            answers = await asyncio.gather(one.attempting(intent), two.attempting(intent), return_exceptions=True)
            assert sorted(isinstance(answer, NotPossible) for answer in answers) == [False, True]
            assert bench.types(intent.intent).count("AttemptStarted") == 1
            [attempt] = [answer for answer in answers if not isinstance(answer, BaseException)]
            done = await (one if attempt is answers[0] else two).delivered(attempt, "m1")
            assert done.status == Status.SENT

    bench.run(main())


def test_a_retry_waits_for_its_time(bench: Bench) -> None:
    """FAIL-2, FAIL-1: the platform named the wait; before it is over no attempt begins."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            attempt = await gateway.attempting(await gateway.record(text("hello")))
            waits = await gateway.failed(attempt, Rejected("rate_limit", retry_after_s=60))
            assert (waits.status, waits.failure) == (Status.PENDING, "rate_limit")
            assert waits.due_at >= bench.clock.wall_ms() + 60_000
            with pytest.raises(NotPossible, match=str(waits.due_at)):
                await gateway.attempting(attempt.intent)
            await bench.clock.advance(130)
            again = await gateway.attempting(attempt.intent)
            assert (again.attempt, again.key) == (2, attempt.key)
            assert (await gateway.delivered(again, "m1")).status == Status.SENT

    bench.run(main())


def test_spent_attempts_and_age_end_it(bench: Bench) -> None:
    """R8, OB-8, OB-9: by the same rules as a send of ours, with nobody calling."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            spent = await gateway.record(text("spent"), max_attempts=1)
            done = await gateway.failed(await gateway.attempting(spent), Rejected("transient"))
            assert (done.status, done.reason) == (Status.FAILED, "attempts_exhausted")
            old = await gateway.record(text("old", "room-other"), max_age_s=30)
            await bench.clock.advance(95)
            dossier = await gateway.intent(old)
            assert (dossier.state.status, dossier.state.reason) == (Status.FAILED, "expired")
            with pytest.raises(NotPossible, match="ended"):
                await gateway.attempting(old)

    bench.run(main())


def test_nothing_is_ever_started_by_the_dispatcher(bench: Bench) -> None:
    """MIG-3, G4: neither what is recorded, nor what failed and is due, nor after a restart."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            recorded = await gateway.record(text("recorded"))
            failing = await gateway.record(text("failing", "room-other"))
            await gateway.failed(await gateway.attempting(failing), NotDispatched("refused"))
            await bench.clock.advance(300)
        async with bench.gateway(external()) as gateway:
            await bench.clock.advance(300)
            assert bench.types(recorded.intent) == ["IntentRecorded"]
            assert bench.types(failing.intent) == ["IntentRecorded", "AttemptStarted", "AttemptFailed"]
            assert {row.id for row in await gateway.owed(channel="plat")} == {recorded.intent, failing.intent}
            for intent in (recorded, failing):  # the gateway that comes back goes on with them
                done = await gateway.delivered(await gateway.attempting(intent.intent), "m9")
                assert done.status == Status.SENT

    bench.run(main())


def test_what_only_the_gateway_can_move_is_looked_at_seldom(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """G13, REC-9: a conversation that waits for its gateway costs the dispatcher a look a minute."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            await gateway.record(text("hello"))
            await bench.clock.advance(2)
            looks: list[str] = []
            decides = gateway.dispatcher._decide

            def counted(dossier: Any, *more: Any) -> Any:
                looks.append(dossier.state.id)
                return decides(dossier, *more)

            monkeypatch.setattr(gateway.dispatcher, "_decide", counted)
            await bench.clock.advance(115)
            assert 1 <= len(looks) <= 2

    bench.run(main())


def test_handed_over_to_a_channel_that_delivers(bench: Bench) -> None:
    """MIG-7: what was recorded and never attempted is sent once a channel of that name can deliver."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            owed = await gateway.record(text("handed over"))
            sent = await gateway.delivered(await gateway.attempting(await gateway.record(text("x", "o"))), "m0")
        async with bench.gateway() as gateway:
            await bench.clock.advance(5)
            assert bench.platform.texts == ["handed over"]
            assert (await gateway.intent(owed)).state.status == Status.SENT
            with pytest.raises(NotPossible, match="External"):
                await gateway.attempting(sent)

    bench.run(main())


# ---- what is refused


Refused = Callable[[TestGateway], Awaitable[Any]]
FILE = Attachment.of_bytes("a.png", b"1")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda gateway: gateway.send(text("hello")), "attempting"),
        (lambda gateway: gateway.record(text("hello", channel="other")), "other"),
        (lambda gateway: gateway.record(Message.text("", to=to())), "neither text nor attachment"),
        (lambda gateway: gateway.record(Message.text("x", to=to(), attachments=(FILE,))), "a.png"),
    ],
    ids=["send", "unknown channel", "empty", "file"],
)
def test_what_is_refused_leaves_nothing(bench: Bench, call: Refused, match: str) -> None:
    """MIG-3, CORE-1: with the way out, and nothing is recorded."""

    async def main() -> None:
        async with bench.gateway(external()) as gateway:
            with pytest.raises(InvalidMessage, match=match):
                await call(gateway)
            await bench.clock.settle()
            assert bench.types_of_intents() == []

    bench.run(main())


def test_a_channel_of_ours_is_not_sent_on_by_others(bench: Bench) -> None:
    """REL-5, CORE-1: there is one way to send on it."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            with pytest.raises(InvalidMessage, match=r"External\('plat'\)"):
                await gateway.record(text("hello"))
            delivery = await gateway.send(text("hello"))
            for call in (gateway.attempting(delivery), gateway.delivered(delivery, "m"), gateway.failed(delivery)):
                with pytest.raises(NotPossible, match="External"):
                    await call

    bench.run(main())
