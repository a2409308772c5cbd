"""What comes back from a bridge: receipts in every case, the callback's own error, and the ledger's word."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger import (
    DeliveryFailed,
    NoSend,
    Receipt,
    ReceiptPart,
    Rejected,
    Status,
    StoreUnavailable,
    Unknown,
)
from msgledger.ledger.errors import StoreReadOnly

from .bridge_kit import Own, message_of, nothing_recorded
from .kit import Bench
from .platform import lose, reject
from .test_durability import break_begin

# ---- receipts of the gateway's own delivery


@pytest.mark.parametrize(
    ("answer", "ids", "reason"),
    [
        ("m7", ("m7",), False),
        (7, ("7",), False),
        (["a", "b", "c"], ("a", "b", "c"), False),
        (Receipt((ReceiptPart(0, "a"), ReceiptPart(1, "b")), "a"), ("a", "b"), False),
        ({"message_id": 9}, (), True),
    ],
    ids=["id", "number", "list", "receipt", "something else"],
)
@pytest.mark.parametrize("durable", [None, True], ids=["off", "unavailable"])
def test_own_deliveries_give_their_receipts_back(
    bench: Bench, answer: Any, ids: tuple[str, ...], reason: bool, durable: Any
) -> None:
    """TI-7, RCP-5, RCP-3: with durability off, and with a channel that cannot; never nothing on success."""

    async def main() -> None:
        own = Own(bench)
        own.answer = answer
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=durable, needs=("silent",))
            outcome = await bridge.deliver({"text": "hello"})
            assert (outcome.kind, outcome.path, outcome.said) == ("handled_visible", "own", answer)
            assert outcome.receipt is not None and outcome.receipt.platform_ids == ids
            assert outcome.receipt.primary_platform_id == (ids[0] if ids else None)
            assert bool(outcome.reason) is reason

    bench.run(main())


def test_the_ids_may_be_taken_out_of_what_the_callback_returns(bench: Bench) -> None:
    """TI-7, RCP-5: and what goes wrong there takes nothing back that was delivered."""

    async def main() -> None:
        own = Own(bench)
        own.answer = {"message_id": 9}
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, ids=lambda sent: sent["message_id"])
            outcome = await bridge.deliver({"text": "hello"})
            assert (outcome.receipt.platform_ids, outcome.said) == (("9",), {"message_id": 9})
            own.answer = {}
            again = await bridge.deliver({"text": "hello"})
            assert again.kind == "handled_visible" and "KeyError" in again.reason

    bench.run(main())


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), Rejected("auth"), Unknown("reset")], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("returned", [False, True], ids=["raised", "returned"])
def test_the_callbacks_own_error_gets_through(bench: Bench, error: Exception, returned: bool) -> None:
    """MIG-5, MIG-4: as it is, once, and nobody sends in its place."""

    async def main() -> None:
        own = Own(bench)
        calls: list[Any] = []

        async def deliver(payload: Any) -> Any:
            calls.append(payload)
            if returned:
                return error
            raise error

        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", deliver, project=message_of)
            with pytest.raises(type(error)) as raised:
                await bridge.deliver({"text": "hello"})
            assert raised.value is error
            assert (len(calls), bench.platform.requests, bridge.counts) == (1, [], {"own.failed": 1})
            assert own.shown == [] and nothing_recorded(bench)

    bench.run(main())


def test_the_callback_may_say_that_nothing_is_to_be_sent(bench: Bench) -> None:
    """SC-68, MIG-5: a check inside the gateway's own delivery is an outcome too."""

    async def main() -> None:
        own = Own(bench)
        own.answer = NoSend("quiet hours")
        async with bench.gateway() as gateway:
            outcome = await gateway.bridge("plat", own.deliver).deliver({"text": "hello"})
            assert (outcome.kind, outcome.reason, outcome.receipt) == ("handled_no_send", "quiet hours", None)

    bench.run(main())


# ---- the ledger's word


def test_a_queued_send_has_a_reference_that_lasts(bench: Bench) -> None:
    """MIG-7: the id stands for the intent also in the next process, which delivers it."""

    async def main() -> None:
        own = Own(bench)
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            outcome = await bridge.deliver({"text": "hello"})
            assert (outcome.kind, outcome.status, outcome.receipt) == ("handled_visible", Status.PENDING, None)
            assert outcome.intent is not None and outcome.reason
        bench.platform.ready = True
        async with bench.gateway() as gateway:
            await bench.clock.advance(5)
            dossier = await gateway.intent(outcome.intent)
            assert (dossier.state.status, dossier.state.platform_ids) == (Status.SENT, ("m1",))
        assert (own.shown, bench.platform.texts) == ([], ["hello"])

    bench.run(main())


def test_what_may_have_arrived_is_not_delivered_again(bench: Bench) -> None:
    """G4, MIG-5, UNK-1: the callback is no second way out of doubt."""

    async def main() -> None:
        own = Own(bench)
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            outcome = await bridge.deliver({"text": "hello"})
            assert (outcome.kind, outcome.status) == ("handled_visible", Status.UNKNOWN)
            assert (own.shown, bench.platform.texts) == ([], ["hello"])

    bench.run(main())


def test_a_failed_delivery_propagates(bench: Bench) -> None:
    """MIG-5: with the intent that tells why, and without a second way."""

    async def main() -> None:
        own = Own(bench)
        bench.platform.plan(reject("invalid_payload"))
        async with bench.gateway() as gateway:
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=True)
            with pytest.raises(DeliveryFailed, match="rejected") as failed:
                await bridge.deliver({"text": "hello"})
            assert (await gateway.intent(failed.value.intent)).state.status == Status.FAILED
            assert (own.shown, bridge.counts) == ([], {"durable.failed": 1})

    bench.run(main())


@pytest.mark.parametrize("durable", ["required", "best_effort"])
def test_a_ledger_that_cannot_be_written(bench: Bench, durable: Any) -> None:
    """AC-8, DUR-1, DUR-2: `required` fails closed, the callback is no way around it; `best_effort` is not counted as
    durable."""

    async def main() -> None:
        own = Own(bench)
        async with bench.gateway() as gateway:
            await bench.clock.settle()
            mend = break_begin(gateway, StoreReadOnly("x"))
            bridge = gateway.bridge("plat", own.deliver, project=message_of, durable=durable)
            if durable == "required":
                with pytest.raises(StoreUnavailable):
                    await bridge.deliver({"text": "hello"})
                assert bench.platform.requests == []
                assert bridge.counts == {"none.failed": 1}
            else:
                outcome = await bridge.deliver({"text": "hello"})
                assert (outcome.path, outcome.durable) == ("best_effort", False)
                assert bench.platform.texts == ["hello"]
            mend()
            assert own.shown == []

    bench.run(main())
