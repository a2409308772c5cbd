"""An outcome that nobody knows: looked up, held, or copied where the intent allows it; never blindly repeated."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgledger import Accepted, Capabilities, NotSent, Sent, Status, Unresolved
from msgledger.adapters.surface import Lookup
from msgledger.ledger import events as e
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.store.append import Append
from msgledger.ledger.store.store import Store
from msgledger.lifecycle.dispatch import loop
from msgledger.projections import VIEWS

from .kit import SHORT, Bench, killed_while_sending, parts, text
from .platform import DEADLINE_S, SETTLE_S, drop, hang, hang_visible, lose, no_id, raises

LEASE_S = DEADLINE_S + SETTLE_S


@pytest.mark.parametrize("behaviour", [hang, hang_visible], ids=["not-arrived", "arrived"])
def test_a_crash_in_the_dangerous_gap_is_found_and_not_sent_again(bench: Bench, behaviour: Any) -> None:
    """UNK-1, OB-6, SC-11, SND-4, REC-8, G4: unknown, `owner_lost`, held, and no further request."""

    async def main() -> None:
        intent = await killed_while_sending(bench, behaviour)
        async with bench.gateway() as gateway:
            await bench.clock.advance(1)
            assert (await gateway.intent(intent)).state.status is Status.UNKNOWN
            assert bench.last(intent, "OutcomeUnknown")["cause"] == "owner_lost"
            await bench.clock.advance(7200)
            state = (await gateway.intent(intent)).state
            assert (state.status, state.hold) == (Status.UNKNOWN, "unresolved")
            assert [row.id for row in await gateway.owed()] == [intent]
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_a_declared_look_up_needs_its_function(bench: Bench) -> None:
    """UNK-2, GAP-1, ADP-2: refused before anything is opened; a channel without a look-up is no error in itself."""
    bench.platform.looks_up = True
    with pytest.raises(InvalidConfig, match="look-up"):
        bench.platform.channel(reconcile=None)

    class Bare:
        """A channel of its own making."""

        name, account, surface, version = "plat", "default", 1, "1"
        capabilities = Capabilities(reconcile=Lookup("by_key"))
        ready, credential, config = True, "", ""

        def render(self, message: Any, context: Any) -> Any:
            raise AssertionError

        async def deliver(self, unit: Any, context: Any) -> Any:
            raise AssertionError

    with pytest.raises(InvalidConfig, match="reconcile"):
        bench.gateway(Bare())
    bench.platform.looks_up = False
    bench.gateway()


def test_what_a_look_up_finds_is_recorded_and_nothing_is_sent(bench: Bench) -> None:
    """UNK-3, REC-6, SC-07, GAP-1: sent, with the receipt that was found."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("arrived"))
            assert (delivery.status, delivery.retry) == (Status.UNKNOWN, "ledger")
            await bench.clock.advance(60)
            later = await delivery.wait(1)
            assert (later.status, later.retry) == (Status.SENT, None)
            assert later.receipt is not None and later.receipt.platform_ids == ("m1",)
        assert (len(bench.platform.requests), bench.platform.texts) == (1, ["arrived"])
        assert bench.types(delivery.intent)[2:] == ["OutcomeUnknown", "OutcomeReconciled", "IntentCommitted"]

    bench.run(main())


def test_after_a_unit_was_found_only_the_others_are_sent(bench: Bench) -> None:
    """UNK-3, R3, BAT-7: the verdict is about one unit."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(lose())
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            delivery = await gateway.send(text(parts(3)))
            await bench.clock.advance(60)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert [request.unit.index for request in bench.platform.requests] == [0, 1, 2]

    bench.run(main())


def test_proof_of_absence_leads_to_exactly_one_new_attempt(bench: Bench) -> None:
    """UNK-4, G4, R1, R4: back to pending, and sent once."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("never arrived"))
            await bench.clock.advance(120)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert len(bench.platform.requests) == 2
        assert bench.platform.texts == ["never arrived"]
        verdicts = [one.data["verdict"] for one in bench.events(delivery.intent) if one.type == "OutcomeReconciled"]
        assert verdicts[-1] == "not_sent"

    bench.run(main())


def test_absence_before_the_lease_end_proves_nothing(bench: Bench) -> None:
    """R1, UNK-5: early looks are unresolved, cost no check, and nothing is sent before the lease ends."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            began = bench.clock.boot_ms()
            delivery = await gateway.send(text("silence"))
            await bench.clock.advance(LEASE_S - 0.1)
            assert len(bench.platform.requests) == 1
            assert bench.platform.looked_up
            state = (await gateway.intent(delivery.intent)).state
            assert (state.status, state.checks) == (Status.UNKNOWN, 0)
            await bench.clock.advance(60)
        assert bench.platform.requests[1].at - began >= LEASE_S * 1000

    bench.run(main())


@pytest.mark.parametrize("absence", [True, False], ids=["proves-absence", "cannot-prove"])
def test_unresolved_checks_come_further_apart_and_end_in_a_hold(
    bench: Bench, absence: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNK-5, GAP-5, SC-10, R6: no send however many passes see it, and one log line for each change of status."""
    monkeypatch.setattr(loop, "POLL_S", 20.0)

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.proves_absence = absence
        bench.platform.look = lambda unit, context: Unresolved("cannot say")
        bench.platform.plan(drop())
        caplog.set_level(logging.INFO, "msgledger")
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("who knows"))
            await bench.clock.advance(26 * 3600)
            state = (await gateway.intent(delivery.intent)).state
            assert (state.status, state.hold, state.due_at) == (Status.UNKNOWN, "unresolved", None)
            assert delivery.intent in [row.id for row in await gateway.owed()]
            assert (await delivery.wait(0.05)).retry == "person"
        assert len(bench.platform.requests) == 1
        assert 3 <= len(bench.platform.looked_up) <= 12
        said = [r.message for r in caplog.records if delivery.intent in r.message and "unknown" in r.message]
        assert len(said) <= 2

    bench.run(main())


def test_a_held_outcome_may_still_be_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6, UNK-3, GAP-5: held, the checks go on; found is sent."""
    monkeypatch.setattr(loop, "POLL_S", 20.0)

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.proves_absence = False
        bench.platform.lag_s = 600
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("seen late"))
            await bench.clock.advance(300)
            assert (await gateway.intent(delivery.intent)).state.hold == "unresolved"
            await bench.clock.advance(24 * 3600)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_a_look_up_that_raises_is_tried_again_and_stops_nobody(bench: Bench) -> None:
    """UNK-6, REC-10: unresolved; the other lane goes on."""

    async def main() -> None:
        bench.platform.looks_up = True
        tries = 0

        def look(unit: Any, context: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise ConnectionError("the history is away")
            return Sent(Accepted("m1"))

        bench.platform.look = look
        bench.platform.plan(lose())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("arrived"))
            assert (await gateway.send(text("beside it", "room-of-others"))).status is Status.SENT
            await bench.clock.advance(3600)
            assert (await gateway.intent(delivery.intent)).state.status is Status.SENT
            assert tries == 3

    bench.run(main())


def test_a_receipt_beats_a_verdict(bench: Bench) -> None:
    """UNK-8, R2: it came while the look-up was saying that nothing is there."""

    async def main() -> None:
        bench.platform.looks_up = True
        bench.platform.plan(drop())
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("late receipt"))

            def look(unit: Any, context: Any) -> Any:
                fact = e.UnitAccepted(at=1, by="worker:x", attempt=1, unit=0, parts=(e.AcceptedPart("m77"),))
                with Store.open(bench.path, VIEWS, wall_ms=bench.clock.wall_ms) as other:
                    other.append_sync(Append(context.intent, (fact,)))
                return NotSent()

            bench.platform.look = look
            await bench.clock.advance(120)
            for _ in range(100):
                await asyncio.sleep(0.01)
                if (await gateway.owed()) == []:
                    break
            done = await delivery.wait(1)
            assert done.status is Status.SENT
            assert done.receipt is not None and done.receipt.platform_ids == ("m77",)
        assert len(bench.platform.requests) == 1

    bench.run(main())


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        (no_id, "no_identity"),
        (lose("reset"), "reset"),
        (lose("server_error"), "server_error"),
        (drop("malformed_answer"), "malformed_answer"),
        (raises(ValueError("the answer holds room-4711")), "raised"),
    ],
    ids=["no-id", "reset", "5xx", "malformed", "raised"],
)
def test_what_proves_nothing_is_unknown(bench: Bench, behaviour: Any, cause: str) -> None:
    """GAP-10, CAP-5, FAIL-9, FAIL-11, SC-04, SC-06, SC-41, SND-7: never a success, never pending; the caller is told,
    and it is owed."""

    async def main() -> None:
        bench.platform.plan(behaviour)
        async with bench.gateway() as gateway:
            delivery = await gateway.send(text("who knows"))
            assert (delivery.status, delivery.receipt) == (Status.UNKNOWN, None)
            assert delivery.retry in ("ledger", "person")
            assert bench.last(delivery.intent, "OutcomeUnknown")["cause"] == cause
            assert [row.id for row in await gateway.owed()] == [delivery.intent]
            await bench.clock.advance(3600)
        assert len(bench.platform.requests) == 1

    bench.run(main())


def test_a_request_that_gets_no_answer_ends_at_its_deadline(bench: Bench) -> None:
    """FAIL-8, FAIL-9, SC-06: cut off while it is under way, it is unknown with the cause `timeout`."""

    async def main() -> None:
        bench.platform.plan(hang)
        async with bench.gateway(bench.platform.channel(deadline_s=0.1)) as gateway:
            delivery = await gateway.send(text("no answer"), timeout_s=5)
            assert delivery.status is Status.UNKNOWN
            assert bench.last(delivery.intent, "OutcomeUnknown")["cause"] == "timeout"

    bench.run(main())
